// Package docs holds the manual. Its tests compare what the documents say with what the code has.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rocet/control/config"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func documents(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("*.md")
	if err != nil || len(all) < 5 {
		t.Fatalf("documents: %v, %v", all, err)
	}
	for i := range all {
		all[i] = "docs/" + all[i]
	}
	return append(all, "README.md", "ARCHITECTURE.md")
}

// names are the identifiers of a package: Func, Type, Type.Method, Type.Field.
func names(t *testing.T, dir string, into map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, path := range files {
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				into[name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						into[s.Name.Name] = true
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return "?"
}

// packages are the folders of the packages that ARCHITECTURE.md may name. Two are called nvme, and one is the driver's.
var packages = map[string][]string{
	"config": {"control/config"}, "control": {"control"}, "invariants": {"internal/invariants"}, "memory": {"memory"},
	"nvme": {"nvme", "backend/nvme"}, "pcie": {"nvme/pcie"}, "rdma": {"rdma"}, "reactor": {"reactor"}, "target": {"target"},
	"tcp": {"tcp"},
}

func TestArchitectureNamesExist(t *testing.T) {
	text := read(t, "ARCHITECTURE.md")
	have := map[string]map[string]bool{}
	for name, dirs := range packages {
		have[name] = map[string]bool{}
		for _, dir := range dirs {
			names(t, dir, have[name])
		}
	}
	found := 0
	for _, m := range regexp.MustCompile(`\b([a-z]+)\.((?:[A-Za-z]\w*\.)?[A-Za-z]\w*)`).FindAllStringSubmatchIndex(text, -1) {
		whole, pkg, name := text[m[0]:m[1]], text[m[2]:m[3]], text[m[4]:m[5]]
		if have[pkg] == nil || m[0] > 0 && (text[m[0]-1] == '/' || text[m[0]-1] == '.') {
			continue
		}
		found++
		if !have[pkg][name] {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", whole)
		}
	}
	if found < 40 {
		t.Errorf("only %d names found in ARCHITECTURE.md", found)
	}
}

func TestPathsAndLinksExist(t *testing.T) {
	// Paths of the project in back quotes. Those of a machine begin with / or ~.
	path := regexp.MustCompile("`((?:nvme|memory|reactor|cgo|target|rdma|tcp|backend|host|control|cmd|lab|bench|scripts|internal|deploy|docs)/[^` ]*)")
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	found := 0
	for _, doc := range documents(t) {
		text := read(t, doc)
		check := func(at, p string) {
			found++
			if strings.HasPrefix(p, "bench/out") || strings.HasPrefix(p, "bench/results") {
				return // made by make bench
			}
			if _, err := os.Stat(filepath.Join("..", at, p)); err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		}
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			check("", m[1])
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			check(filepath.Dir(doc), m[1])
		}
	}
	if found < 60 {
		t.Errorf("only %d paths found", found)
	}
}

// rooms is the table of ARCHITECTURE.md: what a folder may import, itself and internal left out.
var rooms = map[string][]string{
	"nvme":                {},
	"memory":              {},
	"reactor":             {},
	"cgo":                 {},
	"cgo/verbs/verbstest": {"cgo", "memory"}, // its work requests must not move
	"internal":            {},
	"lab":                 {},
	"scripts":             {},
	"nvme/vfio":           {"memory"},
	"nvme/pcie":           {"nvme", "nvme/vfio", "memory"},
	"target":              {"nvme", "memory", "reactor"},
	"tcp":                 {"target", "nvme", "memory", "reactor"},
	"rdma":                {"target", "cgo/verbs", "nvme", "memory", "reactor"},
	"backend":             {"target", "nvme", "nvme/pcie", "nvme/vfio", "cgo/uring", "memory", "reactor"},
	"host":                {"cgo/verbs", "nvme", "memory"},
	"control":             {"target", "rdma", "tcp", "backend", "cgo/verbs", "nvme", "nvme/pcie", "nvme/vfio", "memory", "reactor"},
	"cmd":                 {"control", "control/config", "host", "rdma", "cgo/verbs", "nvme", "nvme/vfio"},
	"bench":               {"lab", "nvme", "host"},
	"docs":                {"control"},
	"control/config":      {"nvme"},
	"target/targettest":   {"target", "nvme", "memory", "reactor"},
}

// room is the most exact entry of rooms that a folder is in.
func room(dir string) string {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, ok := rooms[dir]; ok {
			return dir
		}
	}
	return ""
}

func TestImportsRunOneWay(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir := filepath.Dir(strings.TrimPrefix(path, "../"))
		here := room(dir)
		if here == "" {
			t.Errorf("%s is in no room", path)
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		for _, i := range f.Imports {
			p, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "rocet/")
			if i.Path.Value == `"C"` && here != "cgo" {
				t.Errorf("%s imports C: that is for cgo/", path)
			}
			if !ok || strings.HasPrefix(p, "internal/") || room(p) == here {
				continue
			}
			if !slices.Contains(rooms[here], room(p)) && !slices.Contains(rooms[here], p) && !strings.HasPrefix(p, here+"/") {
				t.Errorf("%s imports %s: %s may import %v", path, p, here, rooms[here])
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files: %v", files, err)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	text := read(t, "docs/configuration.md")
	var walk func(reflect.Type)
	seen := map[reflect.Type]bool{}
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			key := typ.Field(i).Tag.Get("yaml")
			if !strings.Contains(text, "`"+key+"`") {
				t.Errorf("docs/configuration.md says nothing of %s (%s)", key, typ.Name())
			}
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

func TestExampleConfigurationsParse(t *testing.T) {
	files, err := filepath.Glob("../deploy/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, path := range files {
		if filepath.Base(path) == "alerts.yaml" {
			continue
		}
		if _, err := config.Load(path); err != nil {
			t.Errorf("%v", err)
		}
	}
	blocks := 0
	for _, doc := range documents(t) {
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, doc), -1) {
			blocks++
			if _, err := config.Parse(doc, []byte(m[1])); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
	if blocks == 0 {
		t.Error("no configuration in the documents")
	}
}

// TestMistakesAsDocumented holds that the example of a bad file is answered as the manual says.
func TestMistakesAsDocumented(t *testing.T) {
	m := regexp.MustCompile("(?s)```yml\n(.*?)```.*?```text\n(.*?)\n```").FindStringSubmatch(read(t, "docs/configuration.md"))
	if m == nil {
		t.Fatal("docs/configuration.md has no example of mistakes")
	}
	if _, err := config.Parse("rocet.yaml", []byte(m[1])); err == nil || err.Error() != m[2] {
		t.Errorf("got\n%v\nwant\n%s", err, m[2])
	}
}

// metrics are those that package control registers.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	files, _ := filepath.Glob("../control/metrics*.go")
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`describe\("([a-z_]+)"`).FindAllSubmatch(b, -1) {
			all["rocet_"+string(m[1])] = true
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d metrics found", len(all))
	}
	return all
}

func TestMetricsAreDocumented(t *testing.T) {
	have := metrics(t)
	name := regexp.MustCompile(`\brocet_[a-z_]+`)
	documented := map[string]bool{}
	for _, doc := range append(documents(t), "deploy/alerts.yaml", "deploy/grafana.json") {
		for _, m := range name.FindAllString(read(t, doc), -1) {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base := strings.TrimSuffix(m, suffix); have[base] {
					m = base
				}
			}
			if !have[m] {
				t.Errorf("%s names %s, which is not registered", doc, m)
			}
			if doc == "docs/metrics.md" {
				documented[m] = true
			}
		}
	}
	for m := range have {
		if !documented[m] {
			t.Errorf("docs/metrics.md says nothing of %s", m)
		}
	}
}

// TestFlagsAreDocumented finds the flags and commands in the source of the command line.
func TestFlagsAreDocumented(t *testing.T) {
	text := read(t, "docs/commands.md")
	files, _ := filepath.Glob("../cmd/rocet/*.go")
	flags := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`cli\.\w+Flag\{Name: "([a-z]+)"`).FindAllSubmatch(b, -1) {
			flags++
			if !strings.Contains(text, "`--"+string(m[1])) {
				t.Errorf("docs/commands.md says nothing of --%s (%s)", m[1], path)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\s+Name:\s+"([a-z]+)",$`).FindAllSubmatch(b, -1) {
			if !strings.Contains(text, "rocet "+string(m[1])) && !strings.Contains(text, "config "+string(m[1])) && string(m[1]) != "rocet" {
				t.Errorf("docs/commands.md says nothing of %s (%s)", m[1], path)
			}
		}
	}
	if flags < 15 {
		t.Errorf("only %d flags found", flags)
	}
}
