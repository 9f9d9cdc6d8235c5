//go:build !race

package pcie

const raceEnabled = false
