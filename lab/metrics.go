package lab

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Sample is one line of a scrape.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Metrics is a scrape of the Prometheus text format.
type Metrics []Sample

// Metrics scrapes the process at MetricsAddr.
func (r *Rocet) Metrics() Metrics {
	r.t.Helper()
	m, err := Scrape("http://" + MetricsAddr + "/metrics")
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return m
}

// Scrape reads the metrics at a URL.
func Scrape(url string) (Metrics, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return ParseMetrics(string(body))
}

// Sum adds the samples of a name up, of those whose labels have the given values ("op", "read", ...).
func (m Metrics) Sum(name string, labels ...string) float64 {
	var sum float64
	for _, s := range m {
		if s.Name == name && s.has(labels) {
			sum += s.Value
		}
	}
	return sum
}

// Has tells whether there is a sample of that name and labels.
func (m Metrics) Has(name string, labels ...string) bool {
	for _, s := range m {
		if s.Name == name && s.has(labels) {
			return true
		}
	}
	return false
}

func (s Sample) has(labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if s.Labels[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// ParseMetrics parses the Prometheus text format, without timestamps and exemplars.
func ParseMetrics(text string) (Metrics, error) {
	var m Metrics
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, fmt.Errorf("metrics line %d: %w: %q", i+1, err, line)
		}
		m = append(m, s)
	}
	return m, nil
}

func parseSample(line string) (Sample, error) {
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return Sample{}, fmt.Errorf("no value")
	}
	s := Sample{Name: line[:end], Labels: map[string]string{}}
	rest := line[end:]
	if rest[0] == '{' {
		rest = rest[1:]
		for !strings.HasPrefix(rest, "}") {
			name, after, ok := strings.Cut(rest, "=")
			if !ok {
				return Sample{}, fmt.Errorf("a label without a value")
			}
			quoted, err := strconv.QuotedPrefix(after)
			if err != nil {
				return Sample{}, fmt.Errorf("label %s: %w", name, err)
			}
			value, err := strconv.Unquote(quoted)
			if err != nil {
				return Sample{}, fmt.Errorf("label %s: %w", name, err)
			}
			s.Labels[name] = value
			rest = strings.TrimPrefix(after[len(quoted):], ",")
		}
		rest = rest[1:]
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
	if err != nil {
		return Sample{}, err
	}
	s.Value = value
	return s, nil
}
