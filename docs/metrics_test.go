package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// metric is what package control says of one.
type metric struct{ name, kind, labels, help string }

// described reads the calls of describe, and what each metric is sent as.
func described(t *testing.T) map[string]*metric {
	t.Helper()
	files, err := filepath.Glob("../control/metrics*.go")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	vars, all := map[string]*metric{}, map[string]*metric{}
	set := token.NewFileSet()
	var parsed []*ast.File
	for _, path := range files {
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			call, ok := spec.Values[0].(*ast.CallExpr)
			if !ok {
				return true
			}
			if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "describe" {
				return true
			}
			var words []string
			for _, a := range call.Args {
				lit, ok := a.(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s: describe with something else than a string", set.Position(a.Pos()))
				}
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				words = append(words, s)
			}
			m := &metric{name: "rocet_" + words[0], kind: "histogram", help: words[1], labels: strings.Join(words[2:], ", ")}
			vars[spec.Names[0].Name], all[m.name] = m, m
			return true
		})
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "counter" && method.Sel.Name != "gauge" {
				return true
			}
			if id, ok := call.Args[0].(*ast.Ident); ok && vars[id.Name] != nil {
				vars[id.Name].kind = method.Sel.Name
			}
			return true
		})
	}
	return all
}

// TestMetricsTable holds that the table says of each metric what the program says.
func TestMetricsTable(t *testing.T) {
	text := read(t, "docs/metrics.md")
	all := described(t)
	if len(all) < 40 {
		t.Fatalf("only %d metrics found", len(all))
	}
	for _, m := range all {
		if row := fmt.Sprintf("| `%s` | %s | %s | %s |", m.name, m.kind, m.labels, m.help); !strings.Contains(text, row) {
			t.Errorf("docs/metrics.md lacks the row\n%s", row)
		}
	}
}

// TestAlerts holds that the rules are well-formed and use labels that their metrics have.
func TestAlerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Annotations      map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "deploy/alerts.yaml")), &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	all := described(t)
	seen := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			seen++
			if r.Alert == "" || r.Expr == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s: %+v is not complete", g.Name, r)
				continue
			}
			labels := "instance, job"
			for name, m := range all {
				if regexp.MustCompile(`\b` + name + `\b`).MatchString(r.Expr) {
					labels += ", " + m.labels
				}
			}
			var used []string
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"], -1) {
				used = append(used, m[1])
			}
			for _, m := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`).FindAllStringSubmatch(r.Expr, -1) {
				used = append(used, m[1])
			}
			for _, label := range used {
				if !strings.Contains(", "+labels+",", ", "+label+",") {
					t.Errorf("%s uses the label %s: %q has %s", r.Alert, label, r.Expr, labels)
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d rules found", seen)
	}
}
