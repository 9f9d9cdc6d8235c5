// Package invariants holds the assertions that are on in debug builds only: under the race detector, or with the build
// tag "invariants". In every other build its types have no size and its methods compile to nothing, so the hot path may
// call them freely.
//
//	Owner    one goroutine owns an object; another one that touches it panics
//	Credits  what is taken must be given back, and never more than that
//	Poison   freed memory is overwritten, so that a late reader shows
package invariants
