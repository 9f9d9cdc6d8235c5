package config

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// MarshalYAML implements yaml.InterfaceMarshaler.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }

// Marshal is the configuration as a file that Parse reads back as the same. What is zero is left out.
func (c *Config) Marshal() ([]byte, error) {
	b, err := yaml.MarshalWithOptions(c, yaml.OmitZero())
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return b, nil
}
