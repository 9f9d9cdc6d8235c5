package docs

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources are the program's text, tests left out.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTroublesAreSaid holds that the messages in the table of troubles are ones that the program has. Those of Linux
// are not the program's.
func TestTroublesAreSaid(t *testing.T) {
	_, table, ok := strings.Cut(read(t, "docs/operations.md"), "## Troubles")
	if !ok {
		t.Fatal("docs/operations.md has no troubles")
	}
	text := sources(t)
	rows := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		if row[1] == "the log says, or a host" || strings.HasPrefix(row[1], "Linux:") {
			continue
		}
		rows++
		for _, part := range regexp.MustCompile(`\.\.\.|;`).Split(row[1], -1) {
			if part = strings.TrimSpace(part); !strings.Contains(text, part) {
				t.Errorf("docs/operations.md explains %q, which nothing says", part)
			}
		}
	}
	if rows < 14 {
		t.Errorf("only %d troubles found", rows)
	}
}

// TestAnchorsExist follows the links that lead to a heading.
func TestAnchorsExist(t *testing.T) {
	found := 0
	for _, doc := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`).FindAllStringSubmatch(read(t, doc), -1) {
			found++
			to := doc
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(doc), m[1])
			}
			have := false
			for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(t, to), -1) {
				slug := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), "")
				have = have || strings.ReplaceAll(slug, " ", "-") == m[2]
			}
			if !have {
				t.Errorf("%s: %s has no heading %s", doc, to, m[2])
			}
		}
	}
	if found == 0 {
		t.Error("no link to a heading found")
	}
}

func TestDashboardIsJSON(t *testing.T) {
	var d struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana.json")), &d); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			asked++
			if q.Expr == "" {
				t.Errorf("panel %q asks nothing", p.Title)
			}
		}
	}
	if d.Title == "" || asked < 5 {
		t.Errorf("dashboard %q asks %d questions", d.Title, asked)
	}
}
