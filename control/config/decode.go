package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// decoder fills a Config from a document. It goes on after a mistake, and remembers where every value stands.
type decoder struct {
	file   string
	errs   Errors
	more   int                        // mistakes beyond maxErrors
	places map[string]*token.Position // by path
	broken map[string]bool            // paths whose value is not there because it is wrong: nothing inside is missing
}

var (
	sizeType     = reflect.TypeFor[Size]()
	durationType = reflect.TypeFor[time.Duration]()
)

func (d *decoder) decode(n ast.Node, c *Config) { d.value(n, reflect.ValueOf(c).Elem(), "") }

// fail notes a mistake at a path: where that stands, or where the nearest thing around it does.
func (d *decoder) fail(path, format string, args ...any) {
	for p := path; p != ""; p = parent(p) {
		if d.broken[p] {
			return
		}
	}
	if len(d.errs) == maxErrors {
		d.more++
		return
	}
	e := &Error{File: d.file, Path: clip(path), Msg: clip(fmt.Sprintf(format, args...))}
	for p := path; ; p = parent(p) {
		if at := d.places[p]; at != nil {
			e.Line, e.Column = at.Line, at.Column
			break
		}
		if p == "" {
			break
		}
	}
	d.errs = append(d.errs, e)
}

// clip shortens what quotes a file that has no end of a word.
func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return strings.ToValidUTF8(s[:maxWords], "") + "..."
}

// parent is the path around a path.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

func (d *decoder) sort() {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// refuse notes that there is no value at a path because what is written there is wrong.
func (d *decoder) refuse(path, format string, args ...any) {
	d.fail(path, format, args...)
	d.broken[path] = true
}

// value decodes a node into v.
func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	if t := n.GetToken(); t != nil && d.places[path] == nil {
		d.places[path] = t.Position
	}
	switch n := n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.refuse(path, "anchors, aliases and tags are not understood here: write the value out")
		return
	case *ast.NullNode:
		if path != "" {
			d.refuse(path, "there is no value: write one, or leave the key out")
		}
		return
	case *ast.LiteralNode: // | and > blocks
		d.value(n.Value, v, path)
		return
	}
	switch {
	case v.Type() == sizeType:
		d.size(n, v, path)
	case v.Type() == durationType:
		d.duration(n, v, path)
	case v.Kind() == reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), path)
		v.Set(p)
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Slice:
		d.sequence(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// entries are the pairs of a mapping, which has two forms in the tree.
func entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	pairs, ok := entries(n)
	if !ok {
		d.refuse(path, "%s is given: want keys and values: %s", kind(n), strings.Join(keys(v.Type()), ", "))
		return
	}
	seen := make(map[string]*token.Position, len(pairs))
	for _, pair := range pairs {
		name, ok := pair.Key.(*ast.StringNode)
		if !ok {
			d.places[path+".?"] = pair.Key.GetToken().Position
			d.refuse(path+".?", "%s is no key: want one of %s", pair.Key.String(), strings.Join(keys(v.Type()), ", "))
			continue
		}
		at := name.Value
		if path != "" {
			at = path + "." + name.Value
		}
		here := name.GetToken().Position
		if first := seen[name.Value]; first != nil {
			d.again(at, here, first)
			continue
		}
		seen[name.Value] = here
		d.places[at] = here
		field, ok := field(v, name.Value)
		if !ok {
			d.fail(at, "there is no such key%s", suggest(name.Value, keys(v.Type())))
			continue
		}
		if pair.Value == nil {
			d.refuse(at, "there is no value: write one, or leave the key out")
			continue
		}
		d.value(pair.Value, field, at)
	}
}

// again notes a key that its map has already.
func (d *decoder) again(path string, here, first *token.Position) {
	d.places[path] = here
	d.fail(path, "the key is in line %d already: remove one of the two", first.Line)
	d.places[path] = first
}

func field(v reflect.Value, name string) (reflect.Value, bool) {
	t := v.Type()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func keys(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		out = append(out, t.Field(i).Tag.Get("yaml"))
	}
	return out
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.refuse(path, "%s is given: want a list", kind(n))
		return
	}
	for i, item := range list.Values {
		e := reflect.New(v.Type().Elem()).Elem()
		if item == nil {
			d.refuse(fmt.Sprintf("%s[%d]", path, i), "there is no value")
		} else {
			d.value(item, e, fmt.Sprintf("%s[%d]", path, i))
		}
		v.Set(reflect.Append(v, e))
	}
}

// text is a scalar as it was written.
func text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func kind(n ast.Node) string {
	if _, ok := entries(n); ok {
		return "a map"
	}
	if _, ok := n.(*ast.SequenceNode); ok {
		return "a list"
	}
	if s, ok := text(n); ok {
		return strconv.Quote(s)
	}
	return "something else"
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	s, ok := text(n)
	if !ok {
		want := "one value"
		if _, pairs := entries(n); pairs && v.Kind() == reflect.String {
			want += ", and text with a colon in quotes"
		} else if v.Kind() == reflect.Bool {
			want = "true or false"
		}
		d.refuse(path, "%s is given: want %s", kind(n), want)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.refuse(path, "%q is given: want true or false", s)
			return
		}
		v.SetBool(b.Value)
	case reflect.Int:
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v.OverflowInt(i) {
			d.refuse(path, "%q is given: want a whole number", s)
			return
		}
		v.SetInt(i)
	case reflect.Uint16, reflect.Uint32:
		u, err := strconv.ParseUint(s, 10, 64)
		if err != nil || v.OverflowUint(u) {
			d.refuse(path, "%q is given: want a whole number from 0 to %d", s, uint64(math.MaxUint64)>>(64-v.Type().Bits()))
			return
		}
		v.SetUint(u)
	default:
		panic("config: a field of a kind that is not decoded: " + v.Type().String())
	}
}

func (d *decoder) size(n ast.Node, v reflect.Value, path string) {
	s, ok := text(n)
	if !ok {
		d.refuse(path, "%s is given: want bytes as 4096, 128KiB, 1.5GiB, 2TB", kind(n))
		return
	}
	size, err := ParseSize(s)
	if err != nil {
		d.refuse(path, "%v", err)
		return
	}
	v.SetUint(uint64(size))
}

func (d *decoder) duration(n ast.Node, v reflect.Value, path string) {
	s, _ := text(n)
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 {
		d.refuse(path, "%s is given: want a time as 50us, 10ms, 2s", kind(n))
		return
	}
	v.SetInt(int64(t))
}

// suggest is " (did you mean ...?)" if a word is nearly one of those allowed, or else the list of them.
func suggest(word string, allowed []string) string {
	best, at := 3, ""
	for _, a := range allowed {
		if n := distance(strings.ToLower(word), a); n < best && n < max(len(a), 2) {
			best, at = n, a
		}
	}
	if at != "" {
		return fmt.Sprintf(": did you mean %s?", at)
	}
	return ": want one of " + strings.Join(allowed, ", ")
}

// distance is how many letters must be changed, added or removed to turn a into b.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}
