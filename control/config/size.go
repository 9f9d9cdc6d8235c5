package config

import (
	"fmt"
	"strconv"
	"strings"
)

// units of sizes. KB, MB and so on are powers of ten, as drives are sold; a single letter is what it is to fio and dd.
var units = map[string]uint64{
	"": 1, "B": 1,
	"k": 1 << 10, "K": 1 << 10, "m": 1 << 20, "M": 1 << 20, "g": 1 << 30, "G": 1 << 30, "t": 1 << 40, "T": 1 << 40,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
}

// ParseSize reads a number of bytes such as 4096, 128KiB or 1.5TiB.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	at := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if at < 0 {
		at = len(text)
	}
	unit, ok := units[strings.TrimSpace(text[at:])]
	if !ok || at == 0 {
		return 0, fmt.Errorf("%q is no size: want bytes as 4096, 128KiB, 1.5GiB, 2TB", s)
	}
	if n, err := strconv.ParseUint(text[:at], 10, 64); err == nil {
		if n > ^uint64(0)/unit {
			return 0, fmt.Errorf("%q is more than 64 bits can count", s)
		}
		return Size(n * unit), nil
	}
	f, err := strconv.ParseFloat(text[:at], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no size: want bytes as 4096, 128KiB, 1.5GiB, 2TB", s)
	}
	if f *= float64(unit); f >= 1<<63 {
		return 0, fmt.Errorf("%q is more than 63 bits can count", s)
	}
	if f != float64(uint64(f)) {
		return 0, fmt.Errorf("%q is no whole number of bytes", s)
	}
	return Size(f), nil
}

// String is the size in the largest binary unit that it is a whole number of.
func (s Size) String() string {
	for _, u := range []string{"PiB", "TiB", "GiB", "MiB", "KiB"} {
		if n := units[u]; uint64(s) >= n && uint64(s)%n == 0 {
			return strconv.FormatUint(uint64(s)/n, 10) + u
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}
