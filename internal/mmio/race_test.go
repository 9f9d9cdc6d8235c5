//go:build race

package mmio

const isRace = true
