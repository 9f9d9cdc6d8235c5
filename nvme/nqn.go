package nvme

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ValidNQN checks a name against Base 2.1 section 4.7: UTF-8, at most 223
// bytes, and of one of the two forms
//
//	nqn.yyyy-mm.<reverse domain>:<string of the domain's owner>
//	nqn.2014-08.org.nvmexpress:uuid:<UUID>
//
// or the well-known DiscoveryNQN. The date must exist and the domain consist of
// labels as RFC 1034 has them, where digits may come first and underscores are
// taken too, since hosts with such names exist.
func ValidNQN(nqn string) error {
	switch {
	case nqn == "":
		return fmt.Errorf("NQN: empty")
	case len(nqn) > NQNMaxLength:
		return fmt.Errorf("NQN %.32q...: %d bytes, at most %d are allowed", nqn, len(nqn), NQNMaxLength)
	case !utf8.ValidString(nqn):
		return fmt.Errorf("NQN %q: not UTF-8", nqn)
	case strings.IndexByte(nqn, 0) >= 0:
		return fmt.Errorf("NQN %q: contains NUL", nqn)
	}
	rest, ok := strings.CutPrefix(nqn, "nqn.")
	if !ok {
		return fmt.Errorf(`NQN %q: must begin with "nqn."`, nqn)
	}
	if u, ok := strings.CutPrefix(nqn, NQNUUIDPrefix); ok {
		if _, err := ParseUUID(u); err != nil {
			return fmt.Errorf("NQN %q: %w", nqn, err)
		}
		return nil
	}
	if nqn == DiscoveryNQN {
		return nil
	}
	date, authority, ok := strings.Cut(rest, ".")
	if !ok || !validDate(date) {
		return fmt.Errorf(`NQN %q: "nqn." must be followed by a date yyyy-mm and a dot`, nqn)
	}
	domain, owned, ok := strings.Cut(authority, ":")
	if !ok || owned == "" {
		return fmt.Errorf("NQN %q: the domain must be followed by a colon and a string", nqn)
	}
	for label := range strings.SplitSeq(domain, ".") {
		if !validLabel(label) {
			return fmt.Errorf("NQN %q: %q is no reverse domain name (label %q)", nqn, domain, label)
		}
	}
	return nil
}

func validDate(s string) bool {
	if len(s) != len("yyyy-mm") || s[4] != '-' {
		return false
	}
	for i := range len(s) {
		if i != 4 && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	month := s[5:]
	return month >= "01" && month <= "12"
}

func validLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
