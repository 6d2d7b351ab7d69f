package main

import "plimsoll/internal/units"

// bandwidths is a flag with a comma-separated list of bandwidths.
type bandwidths []units.Bandwidth

func (b *bandwidths) String() string { return listText[units.Bandwidth](*b) }

// Set implements pflag.Value.
func (b *bandwidths) Set(text string) error { return setList((*[]units.Bandwidth)(b), text) }

// Type implements pflag.Value.
func (b *bandwidths) Type() string { return "bandwidths" }
