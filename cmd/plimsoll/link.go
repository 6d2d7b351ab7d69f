package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
)

// linkFlags say what plans may do with host memory and the link to it.
type linkFlags struct {
	duplex bool
	memory units.Size
	given  func() bool // whether the command line says --duplex or --duplex=false
	// half makes the link half duplex unless that is asked for, whatever was measured.
	half bool
}

func (f *linkFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.BoolVar(&f.duplex, "duplex", false, "plans may copy both ways at once (default: as the link)")
	f.given = func() bool { return s.Changed("duplex") }
	s.Var(&f.memory, "host-memory", "limit of page-locked host memory, as 4GiB (default: a part of all)")
}

// makeHalf changes the flags to those of a command whose results are named after what was asked for, and not after what was measured.
func (f *linkFlags) makeHalf(cmd *cobra.Command) {
	f.half = true
	cmd.Flags().Lookup("duplex").Usage = "plans may copy to host memory and back at the same time"
}

// chain returns the chain with the link that plans may use: the one that was measured, as the flags say.
func (f *linkFlags) chain(c *chain.Chain) (*chain.Chain, error) {
	own := executor.LinkOf(c)
	link := own
	switch {
	case f.duplex:
		link = executor.DuplexLink(c)
	case f.given():
		link.Duplex = false
	case !f.half:
		link = executor.MeasuredLink(c)
	}
	if link == own {
		return c, nil
	}
	return executor.WithLink(c, link)
}

func (f *linkFlags) check() error { return noShare("--host-memory", f.memory) }

// noShare refuses a share of nothing.
func noShare(flag string, s units.Size) error {
	if s.Share > 0 {
		return usage(fmt.Errorf("%s is %v: give a size, as in 4GiB", flag, &s))
	}
	return nil
}
