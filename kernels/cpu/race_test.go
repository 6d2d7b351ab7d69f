//go:build race

package cpu

const underRace = true // Go code, the reference too, is ten times slower
