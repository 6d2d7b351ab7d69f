package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// planFlags are the flags of plimsoll plan.
type planFlags struct {
	chain     string
	memory    units.Size
	strategy  string
	bandwidth units.Bandwidth
	duplex    bool
	options   strategyFlags
	out       string
	text      bool
	list      bool
}

func (a *app) plan() *cobra.Command {
	f := &planFlags{}
	cmd := command("plan", "Plan a measured chain under a memory limit", `Plan the step of a chain file under a memory limit, and print what it costs.

The limit counts activations and gradients of activations, the input included; weights are counted by train, which
knows them. A share is one of the peak of store-all, the step that recomputes nothing.`, nil)
	cmd.Example = `  plimsoll plan -c c.json --memory 4GiB --strategy rotor -o p.json
  plimsoll plan -c c.json --memory 40% --text
  plimsoll plan --list`
	s := cmd.Flags()
	s.StringVarP(&f.chain, "chain", "c", "", "chain file")
	s.Var(&f.memory, "memory", "memory limit: 4GiB, 512MB, 123, or a share as 40%")
	s.StringVar(&f.strategy, "strategy", auto, "strategy; --list shows them")
	s.Var(&f.bandwidth, "bandwidth", "bandwidth of the link to host memory: 12GB/s")
	s.BoolVar(&f.duplex, "duplex", false, "the link has a queue for each direction")
	f.options.register(cmd)
	s.StringVarP(&f.out, "output", "o", "", "write the plan file here")
	s.BoolVar(&f.text, "text", false, "print the sequence in its text form, one token an op")
	s.BoolVar(&f.list, "list", false, "list the strategies with their papers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.list {
			return a.listStrategies()
		}
		if err := f.options.check(cmd.Flags()); err != nil {
			return err
		}
		return a.runPlan(cmd.Context(), f)
	}
	return cmd
}

func (a *app) listStrategies() error {
	type entry struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
		Paper   string `json:"paper"`
		Section string `json:"section"`
	}
	list := struct {
		Strategies []entry `json:"strategies"`
	}{}
	for _, s := range planner.Strategies() {
		list.Strategies = append(list.Strategies, entry{s.Name, s.Summary, s.Paper, s.Section})
	}
	return a.print(list, func(w io.Writer) {
		for _, s := range list.Strategies {
			fmt.Fprintf(w, "%-15s %s\n%-15s   %s, %s\n", s.Name, s.Summary, "", s.Paper, s.Section)
		}
		fmt.Fprintf(w, "%-15s the first of %s that can deal with the chain\n", auto, strings.Join(autoOrder, ", "))
	})
}

// planFigures is what plan and check print: seconds and bytes.
type planFigures struct {
	Chain         string  `json:"chain"`
	Strategy      string  `json:"strategy"`
	MemoryBytes   int64   `json:"memory_bytes,omitempty"` // 0 when there is no limit
	MakespanS     float64 `json:"makespan_s"`
	PeakBytes     int64   `json:"peak_bytes"`
	IdleS         float64 `json:"idle_s"`
	StoreAllS     float64 `json:"store_all_s"`
	StoreAllBytes int64   `json:"store_all_peak_bytes"`
	Ops           int     `json:"ops"`
	Forwards      int     `json:"forwards"`
	Transfers     int     `json:"transfers"`
	Layers        int     `json:"layers"`
	Sequence      string  `json:"sequence"`
}

func (a *app) runPlan(ctx context.Context, f *planFlags) error {
	c, strategies, err := f.read()
	if err != nil {
		return err
	}
	all, err := storeAll(c)
	if err != nil {
		return err
	}
	problem := strategy.Problem{
		Chain: c, Memory: f.memory.Of(all.Peak), Options: f.options.Options,
		Link: schedule.Link{Bandwidth: float64(f.bandwidth), Duplex: f.duplex},
	}
	p, err := first(len(c.Layers), strategies, func(s strategy.Strategy) (*schedule.Plan, error) { return planner.Solve(ctx, s, problem) })
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := p.Write(f.out); err != nil {
			return err
		}
	}
	figures := figuresOf(c, p.Strategy, p.Ops, p.Limits.Memory, p.Predicted, all)
	return a.print(figures, func(w io.Writer) {
		if f.text {
			fmt.Fprintln(w, p.Ops)
			return
		}
		figures.write(w)
	})
}

// read checks the flags and reads what they name.
func (f *planFlags) read() (*chain.Chain, []strategy.Strategy, error) {
	s, err := candidates(f.strategy)
	if err != nil {
		return nil, s, err
	}
	if err := required("--chain", f.chain, "-c c.json"); err != nil {
		return nil, s, err
	}
	if f.memory.IsZero() {
		return nil, s, usage(fmt.Errorf("--memory is missing or 0: give it, as in --memory 4GiB or --memory 40%%"))
	}
	if err := writable("--output", f.out); err != nil {
		return nil, s, err
	}
	c, err := chain.Read(f.chain)
	return c, s, input(err)
}

// storeAll simulates the step that recomputes nothing.
func storeAll(c *chain.Chain) (*schedule.Result, error) {
	return schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
}

func figuresOf(c *chain.Chain, strategy string, seq schedule.Sequence, memory int64, p schedule.Predicted, all *schedule.Result) *planFigures {
	f := &planFigures{
		Chain: c.Name, Strategy: strategy, MakespanS: p.Makespan, PeakBytes: p.Peak, IdleS: p.Idle,
		StoreAllS: all.Makespan, StoreAllBytes: all.Peak, Ops: len(seq), Layers: c.Len(), Sequence: seq.String(),
	}
	if memory != schedule.NoLimit {
		f.MemoryBytes = memory
	}
	for _, op := range seq {
		switch {
		case op.Kind.Transfer():
			f.Transfers++
		case op.Kind != schedule.Backward:
			f.Forwards++
		}
	}
	return f
}

// write prints the figures for people.
func (f *planFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "chain\t%s, %d layers\n", f.Chain, f.Layers)
	fmt.Fprintf(w, "strategy\t%s\n", f.Strategy)
	if f.MemoryBytes > 0 {
		fmt.Fprintf(w, "limit\t%s, %s of store-all's peak\n", units.Bytes(f.MemoryBytes), share(float64(f.MemoryBytes), float64(f.StoreAllBytes)))
	}
	fmt.Fprintf(w, "peak\t%s (%s)\n", units.Bytes(f.PeakBytes), units.ExactBytes(f.PeakBytes))
	fmt.Fprintf(w, "makespan\t%s, %s of store-all's %s\n", units.Seconds(f.MakespanS), share(f.MakespanS, f.StoreAllS), units.Seconds(f.StoreAllS))
	if f.Transfers > 0 {
		fmt.Fprintf(w, "idle\t%s waiting for %d transfers\n", units.Seconds(f.IdleS), f.Transfers)
	}
	fmt.Fprintf(w, "ops\t%d: %d forwards, of which %d again\n", f.Ops, f.Forwards, f.Forwards-f.Layers)
	_ = w.Flush() // of a buffer
}

// share prints a part of a whole in per cent.
func share(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/whole)
}
