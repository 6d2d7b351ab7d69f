package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
	"plimsoll/planner"
)

// validateFlags are the flags of plimsoll validate.
type validateFlags struct {
	job        jobFlags
	rate       rateFlags
	how        measureFlags
	options    strategyFlags
	link       linkFlags
	cache      cacheFlags
	memory     sizes
	strategies string
	steps      int
	audit      bool
	out        outFlags
	fleet      fleetFlags

	memoryGiven bool // --memory is not the default
}

func (a *app) validate() *cobra.Command {
	f := &validateFlags{memory: sizes{{Share: 1}, {Share: 0.75}, {Share: 0.5}}}
	cmd := command("validate", "Compare predicted and measured time and memory over a grid", `Train a few steps along the plan of every strategy under every limit, in turns with store-all, and print predicted beside
measured time and peak. Losses are compared with store-all's after every step, and weights, buffers, gradients and optimizer
states after the last one, byte for byte. With --audit the outputs, gradients, BatchNorm statistics and random state that every single op
leaves are compared too, and the first layer that differs is named.

Several --devices compare pipelines: the period of a plan, or the makespan of its step, the highest byte of every device and how
long it idles, each beside the prediction; the weights after steps with a flush beside those of one device. The devices of
cpu*4 share the cores of one machine, so kernels are slower than planned: with --simulated every task takes just the time that
it is planned to take, and periods can be compared. With --audit a step with a flush stops behind every task, to check that only
memory that minibatches in flight hold was written; their largest sum is the measured peak. A share of --memory is one of what the device that needs most needs of a
plan without a limit. --plan measures one plan, ours or not, as train runs it.

The exit code is 1 when a row differs from store-all, or from one device, or its peak from the predicted one.`, nil)
	cmd.Example = `  plimsoll validate -m resnet20 --batch 16 --memory 100%,75%,50% --strategy rotor,rotor-exact --steps 3
  plimsoll validate -m densenet121 --image 64 --batch 4 --memory 60% --audit
  plimsoll validate -m resnet20 --image 16 --batch 16 --devices "cpu*2;cpu*4" --strategy gpipe,1f1b-flush,zb-h1 --out out/validated
  plimsoll validate -m resnet20 --image 16 --batch 4 --devices "cpu*4" --strategy "1f1b*,madpipe,eager" --simulated --draws 3 --peer-bandwidth 10MB/s --svg run.svg`
	f.job.register(a, cmd)
	f.rate.register(cmd)
	f.how.register(cmd)
	f.options.register(cmd)
	f.options.registerTolerance(cmd)
	f.link.register(cmd)
	f.cache.register(cmd)
	s := cmd.Flags()
	s.Var(&f.memory, "memory", "memory limits of the arena, separated by commas; of pipelines 100%")
	s.StringVar(&f.strategies, "strategy", "all", "strategies, separated by commas; all is every one")
	s.IntVar(&f.steps, "steps", 3, "training steps of each row")
	s.BoolVar(&f.audit, "audit", false, "compare what every op leaves, too; pipeline with a flush: measure the peak")
	f.out.register(cmd, "", "folder for validate.json, index.html and trace.json, of pipelines also tables.md")
	f.fleet.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := firstOf(f.options.check(cmd.Flags()), f.prepare(cmd)); err != nil {
			return err
		}
		f.job.until = cmd.Context()
		if f.fleet.specs != nil {
			return a.validatePipelines(cmd.Context(), f)
		}
		return a.runValidate(cmd.Context(), f)
	}
	return cmd
}

func (a *app) runValidate(ctx context.Context, f *validateFlags) (err error) {
	g, err := a.grid(f)
	if err != nil {
		return err
	}
	place, err := f.out.open(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = firstOf(err, place.Close()) }()
	measure, err := f.how.measure(a.progress("profile"))
	if err != nil {
		return err
	}
	if g.Chain, err = a.chain(ctx, g.Job, f.cache, f.link, measure); err != nil {
		return err
	}
	if g.Strategies == nil {
		g.Strategies = planner.For(executor.LinkOf(g.Chain))
	}
	return a.runGrid(ctx, g, nil, nil, place, "validate")
}

// grid checks the flags and opens the job.
func (a *app) grid(f *validateFlags) (*bench.Grid, error) {
	rate, err := f.rate.rate(f.job.optimizer, f.steps)
	if err != nil {
		return nil, err
	}
	if err := f.link.check(); err != nil {
		return nil, err
	}
	strategies, err := namedStrategies(f.strategies)
	if err != nil {
		return nil, err
	}
	job, err := f.job.open()
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(job, f.memory)
	if err != nil {
		return nil, err
	}
	host := job.HostLimit(f.link.memory.Bytes)
	f.options.HostMemory = job.Work.HostRoom(host)
	return &bench.Grid{
		Job: job, Limits: limits, Strategies: strategies, Options: f.options.Options, Steps: f.steps, Rate: rate,
		Audit: f.audit, HostLimit: host, Progress: a.progress("validate"),
	}, nil
}

func limitsOf(job *train.Job, list sizes) ([]bench.Limit, error) {
	all, err := job.StoreAllBytes()
	if err != nil {
		return nil, err
	}
	var limits []bench.Limit
	for _, size := range list {
		if size.IsZero() {
			return nil, usage(fmt.Errorf("--memory %s: a limit is 0", list.String()))
		}
		limits = append(limits, bench.Limit{Name: size.String(), Bytes: size.Of(all)})
	}
	return limits, nil
}

// measureGrid measures a grid.
func (a *app) measureGrid(ctx context.Context, g *bench.Grid) (r *bench.Report, page *report.Page, err error) {
	if r, err = g.Run(ctx); err != nil {
		return nil, nil, err
	}
	if len(r.Rows) == 0 {
		return nil, nil, nothingFits(r)
	}
	page, err = g.Page(r, a.facts()...)
	return r, page, err
}

// runGrid measures a grid, and perhaps one of the same job on a smaller device and one of a language model, writes the folder, prints the
// tables, and fails when a row broke a promise.
func (a *app) runGrid(ctx context.Context, g, small, text *bench.Grid, place *folder.Folder, name string) error {
	r, page, err := a.measureGrid(ctx, g)
	if err != nil {
		return err
	}
	if small != nil {
		also, rows, err := a.measureGrid(ctx, small)
		if err != nil {
			return err
		}
		r.Append(page, also, rows)
	}
	var words *report.Page
	if text != nil {
		if r.Text, words, err = a.measureGrid(ctx, text); err != nil {
			return err
		}
	}
	if place != nil {
		err := place.Check()
		if err == nil && text != nil {
			err = text.WriteFolder(place.Path("text"), name, r.Text, words)
		}
		if err == nil {
			err = g.WriteFolder(place.Path(""), name, r, page)
		}
		if err != nil {
			return err
		}
	}
	if err := a.print(r, func(w io.Writer) {
		writeGrid(w, page, r)
		writeText(w, words, r.Text)
	}); err != nil {
		return err
	}
	failures, rows := r.Failures(), len(r.Rows)
	if r.Text != nil {
		failures, rows = append(failures, r.Text.Failures()...), rows+len(r.Text.Rows)
	}
	return broken(failures, rows, "rows")
}

// writeText prints the table of a language model, if there is one.
func writeText(w io.Writer, page *report.Page, r *bench.Report) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "\n%s on %s, %s of %s:\n\n", r.Model, r.Data, units.Count(r.Batch, "sample"), units.Count(r.Image, "token"))
	_ = page.Table().Text(w) // as all that is printed, it is not worth failing for
	fmt.Fprintf(w, "\n%d plans ran; the median error of the predicted time is %.1f%%\n", len(r.Rows), 100*r.MedianError)
}

// broken is the error of measurements of which some broke a promise about bits or bytes, nil when none did.
func broken(failures []string, of int, what string) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d %s broke a promise: %s", len(failures), of, what, strings.Join(failures, "; "))
}

// writeGrid prints a measured grid for people.
func writeGrid(w io.Writer, page *report.Page, r *bench.Report) {
	_ = page.Table().Text(w) // as all that is printed, it is not worth failing for
	fmt.Fprintf(w, "\n%d plans ran; the median error of the predicted time is %.1f%% (%.1f%% by the costs measured before planning)\n",
		len(r.Rows), 100*r.MedianError, 100*r.MedianPlannedError)
	fmt.Fprintf(w, "as steps vary, that median error is from %.1f%% to %.1f%%; if copies and ops took nothing from each other, it would be %.1f%%\n",
		100*r.MedianInterval[0], 100*r.MedianInterval[1], 100*r.MedianAsAloneError)
	fmt.Fprintf(w, "costs have drifted by a factor of %.3f since planning\n", r.Drift)
	writeSmall(w, r)
	fmt.Fprintf(w, "100%% is %s, of which %s weights, gradients and optimizer\n", units.Bytes(r.StoreAllBytes), units.Bytes(r.StaticBytes))
	fmt.Fprintf(w, "the worst error is %.1f%%\n\nwhere the gap between the predicted and the measured time comes from (of the step in the middle):\n", 100*r.WorstError)
	_ = r.Receipts().Text(w)
	seen := map[string]bool{}
	for _, s := range r.Skipped {
		switch {
		case seen[s.Strategy]:
		case s.SmallestBytes == 0:
			fmt.Fprintf(w, "%s: %s\n", s.Strategy, s.Reason)
		default:
			fmt.Fprintf(w, "%s needs at least %s\n", s.Strategy, units.Bytes(s.SmallestBytes))
		}
		seen[s.Strategy] = true
	}
}

// writeSmall says what the rows on a smaller device paid for it, against store-all's time among the rows above.
func writeSmall(w io.Writer, r *bench.Report) {
	var all []string
	device := int64(0)
	for i := range r.Rows {
		if row := &r.Rows[i]; row.DeviceBytes > 0 && r.Rows[0].StoreAllS > 0 {
			device = row.DeviceBytes
			all = append(all, fmt.Sprintf("%s with %s", longer(row.MeasuredS/r.Rows[0].StoreAllS), row.Plan.Name()))
		}
	}
	if device > 0 {
		fmt.Fprintf(w, "on the device of %s, of which store-all needs %.1f times as much, a step takes %s\n",
			units.Bytes(device), float64(r.StoreAllBytes)/float64(device), strings.Join(all, ", "))
	}
}

// longer says how much more time something takes.
func longer(times float64) string {
	if times < 1 {
		return fmt.Sprintf("%.1f%% less time", 100*(1-times))
	}
	return fmt.Sprintf("%.1f%% longer", 100*(times-1))
}

// nothingFitsError is returned for a grid of which no plan fits: the one that comes closest.
type nothingFitsError struct{ bench.Skip }

func nothingFits(r *bench.Report) error {
	least := func(s bench.Skip) uint64 { return uint64(s.SmallestBytes) - 1 } // of what memory does not help, the most
	return &nothingFitsError{slices.MinFunc(r.Skipped, func(a, b bench.Skip) int { return cmp.Compare(least(a), least(b)) })}
}

func (e *nothingFitsError) Error() string {
	return fmt.Sprintf("no strategy fits in any of the limits: the smallest found is %s, of %s, needed by %s", units.Bytes(e.SmallestBytes), e.Strategy, e.NeededBy)
}
