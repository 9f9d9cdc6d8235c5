package memory

// Class says for whom memory is allocated.
type Class uint8

const (
	ClassIO    Class = iota // reads, writes: leaves the reserve alone
	ClassAdmin              // Connect, Identify, log pages: may use the reserve, so that a flood of I/O never shuts them out
	numClasses
)

// HugePolicy says what pages slabs are made of.
type HugePolicy uint8

const (
	HugeAuto    HugePolicy = iota // hugepages if there are enough of them, else ordinary pages, and one log line about it
	HugeRequire                   // hugepages or an error
	HugeNever                     // ordinary pages
)

// String is the word of the configuration file.
func (h HugePolicy) String() string {
	switch h {
	case HugeAuto:
		return "auto"
	case HugeRequire:
		return "require"
	case HugeNever:
		return "never"
	}
	return "unknown"
}
