package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// field is a named value of a report, field order kept in text and in JSON.
type field struct {
	name  string
	value any
	text  string // how text shows it; empty: as it is
}

// fields are the names and values of one object.
type fields []field

func (f *fields) add(name string, value any) { *f = append(*f, field{name: name, value: value}) }

// hex is shown as 0x... in text, and is a number in JSON.
func (f *fields) hex(name string, value uint64) {
	*f = append(*f, field{name: name, value: value, text: fmt.Sprintf("%#x", value)})
}

// MarshalJSON makes one object.
func (f fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, x := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(x.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// print writes a line for each.
func (f fields) print(w io.Writer, width int, between string) {
	for _, x := range f {
		text := x.text
		if text == "" {
			text = fmt.Sprint(x.value)
		}
		fmt.Fprintf(w, "%-*s%s%s\n", width, x.name, between, printable(text))
	}
}

// printable keeps what a target sent from talking to the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
