package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of what is read, far beyond any real file.
const (
	maxFile   = 1 << 20 // bytes
	maxNested = 64
	maxKeys   = 256  // of one map: the parser's time grows with their square
	maxErrors = 1000 // that are told one by one
	maxWords  = 400  // bytes of a path or a message, which quote what is in the file
)

// Error is a mistake in a configuration.
type Error struct {
	File   string
	Line   int // from 1; 0: the whole file
	Column int
	Path   string // subsystems[0].namespaces[1].backend.size
	Msg    string // what is wrong, and what would be right
}

// Error is one line: file:line:column: path: message.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Errors are all mistakes of a configuration, in the order of their places.
type Errors []*Error

// Error has a line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Load reads a configuration file. What is wrong with its contents is told as Errors.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // a device or a pipe has no size, and maybe no end
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a configuration; name is what errors call it. It finds every mistake, not only the first, and tells them
// as Errors.
func Parse(name string, data []byte) (*Config, error) {
	body, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	d := &decoder{file: name, places: map[string]*token.Position{}, broken: map[string]bool{}}
	c := &Config{}
	d.decode(body, c)
	check(c, d)
	if len(d.errs) > 0 {
		d.sort()
		if d.more > 0 {
			d.errs = append(d.errs, &Error{File: name, Msg: fmt.Sprintf("there are %d more mistakes", d.more)})
		}
		return nil, d.errs
	}
	return c, nil
}

// parse turns text into the one document that it must be.
func parse(name string, data []byte) (body ast.Node, err error) {
	fail := func(pos *token.Position, format string, args ...any) error {
		e := &Error{File: name, Msg: clip(fmt.Sprintf(format, args...))}
		if pos != nil {
			e.Line, e.Column = pos.Line, pos.Column
		}
		return Errors{e}
	}
	if len(data) > maxFile {
		return nil, fail(nil, "the file is larger than %d bytes: a configuration is not", maxFile)
	}
	if line := nestedTooDeep(data); line > 0 {
		return nil, fail(&token.Position{Line: line, Column: 1}, "lists and maps are nested more than %d deep", maxNested)
	}
	defer func() {
		if r := recover(); r != nil { // the library's bug, and still only a bad file
			body, err = nil, fail(nil, "this is not YAML that can be read: %v", r)
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if at := tooManyKeys(tokens); at != nil {
		return nil, fail(at, "this map has more than %d keys", maxKeys)
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // the decoder tells of all of them
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			return nil, fail(syntax.GetToken().Position, "%s", syntax.GetMessage())
		}
		return nil, fail(nil, "%v", err)
	}
	for i, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, fail(file.Docs[i].Body.GetToken().Position, "a second document begins here: a configuration is one")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, fail(nil, "the file is empty: it needs at least listeners and subsystems")
	}
	return body, nil
}

// tooManyKeys is where a map over several lines has more keys than maxKeys; nil: nowhere. Keys of one map begin in the same
// column, with none further left between them.
func tooManyKeys(tokens token.Tokens) *token.Position {
	counts := map[int]int{} // by column
	flow := 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow = max(flow-1, 0)
		case token.SequenceEntryType, token.MappingValueType:
			if flow > 0 {
				continue
			}
			at := t.Position
			if t.Type == token.MappingValueType && t.Prev != nil && t.Prev.Position.Line == at.Line {
				at = t.Prev.Position
			}
			for column := range counts {
				if column > at.Column {
					delete(counts, column)
				}
			}
			if t.Type == token.SequenceEntryType {
				continue
			}
			if counts[at.Column]++; counts[at.Column] > maxKeys {
				return at
			}
		}
	}
	return nil
}

// nestedTooDeep is the line where text nests so deeply that a parser could run out of stack; 0: nowhere. It need not be
// exact: brackets in strings count too.
func nestedTooDeep(data []byte) int {
	depth := 0
	for i, line := range bytes.Split(data, []byte("\n")) {
		items := 0 // - - - x
		for _, b := range bytes.TrimLeft(line, " ") {
			if b != '-' && b != ' ' && b != '?' {
				break
			}
			if b != ' ' {
				items++
			}
		}
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		for _, b := range line {
			switch b {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(depth-1, 0)
			}
			if depth > maxNested {
				return i + 1
			}
		}
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("---")) {
			items = 0
		}
		if items > maxNested || indent > 8*maxNested {
			return i + 1
		}
	}
	return 0
}
