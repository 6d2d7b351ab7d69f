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
}

func (f *linkFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.BoolVar(&f.duplex, "duplex", false, "plans may copy to host memory and back at the same time")
	s.Var(&f.memory, "host-memory", "limit of page-locked host memory: 4GiB (default: a part of what is available)")
}

// chain returns the chain with the link that plans may use: the one that was measured.
func (f *linkFlags) chain(c *chain.Chain) (*chain.Chain, error) {
	link := executor.LinkOf(c)
	if link.Duplex || !f.duplex {
		return c, nil
	}
	link.Duplex = true
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
