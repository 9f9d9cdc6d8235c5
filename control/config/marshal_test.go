package config

import (
	"os"
	"reflect"
	"testing"
)

// roundTrip holds that a configuration which was read survives being written.
func roundTrip(t *testing.T, c *Config) {
	t.Helper()
	text, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	normal(again)
	normal(c)
	if !reflect.DeepEqual(c, again) {
		t.Fatalf("%+v became %+v through\n%s", c, again, text)
	}
}

// normal makes empty lists nil: writing leaves both out.
func normal(c *Config) {
	empty(&c.Reactors.Cores)
	empty(&c.Listeners)
	empty(&c.Subsystems)
	for i := range c.Subsystems {
		s := &c.Subsystems[i]
		empty(&s.Hosts)
		empty(&s.Namespaces)
		for j := range s.Namespaces {
			empty(&s.Namespaces[j].Backend.Members)
			for k := range s.Namespaces[j].Backend.Members {
				empty(&s.Namespaces[j].Backend.Members[k].Members)
			}
		}
	}
}

func empty[T any](list *[]T) {
	if len(*list) == 0 {
		*list = nil
	}
}

func TestMarshal(t *testing.T) {
	text, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("full.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, c)
}
