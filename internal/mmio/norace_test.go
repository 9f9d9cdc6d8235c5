//go:build !race

package mmio

const isRace = false
