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
	cmd := command("validate", "Compare predicted and measured time and memory over a grid", `Train a few steps along the plan of every strategy under every limit, and print predicted beside measured time and peak.

Losses are compared with store-all's after every step; weights, buffers, gradients and optimizer states after the last one, byte for byte.
The exit code is 1 when a row differs, or its peak from the predicted one.`, nil)
	setDetails(cmd, validateDetails)
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
	a.registerVerbose(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.prepare(cmd); err != nil {
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

// validateDetails is the end of the help text.
const validateDetails = `With --audit the outputs, gradients, BatchNorm statistics and random state of every op are compared too, and the first layer that differs
is named.

Several --devices compare pipelines: the period of a plan or the makespan of its step, the highest byte of every device and its idle
time, each beside the prediction. The weights after steps with a flush are compared with one device's. A share of --memory is one of the
largest need of a device under a plan without a limit. --plan measures one plan, ours or not, as train runs it.

Where the devices share processors, steps take longer than predicted. With --simulated every task takes exactly its planned time, and
periods can be compared. With --audit a step with a flush stops after every op. No other memory may have been
written than the minibatches in flight hold then. Their largest sum is the measured peak.`

func (a *app) runValidate(ctx context.Context, f *validateFlags) (err error) {
	g, err := a.grid(f)
	if err != nil {
		return err
	}
	place, err := f.out.open(ctx, a, "")
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
	if err := list.check(); err != nil {
		return nil, err
	}
	all, err := job.StoreAllBytes()
	if err != nil {
		return nil, err
	}
	var limits []bench.Limit
	for _, size := range list {
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
			err = text.WriteFolder(place.Sub("text"), name, r.Text, words)
		}
		if err == nil {
			err = g.WriteFolder(place.Dir, name, r, page)
		}
		if err != nil {
			return err
		}
	}
	if err := a.print(r, func(w io.Writer) {
		writeGrid(w, page, r, a.verbose)
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
	fmt.Fprintf(w, "\n%s on %s, %s:\n\n", r.Model, r.Data, r.Samples(r.Batch))
	_ = page.Brief().Terminal(w, 2) // as all that is printed, it is not worth failing for
	fmt.Fprintf(w, "\n%s\n", medianError(r))
}

// broken is the error of measurements of which some broke a promise about bits or bytes, nil when none did.
func broken(failures []string, of int, what string) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d %s broke a promise: %s", len(failures), of, what, strings.Join(failures, "; "))
}

// writeGrid prints a measured grid for people.
func writeGrid(w io.Writer, page *report.Page, r *bench.Report, verbose bool) {
	_ = page.Brief().Terminal(w, 2) // as all that is printed, it is not worth failing for
	fmt.Fprintf(w, "\n%s\n", medianError(r))
	fmt.Fprintf(w, "%.1f%% worst error\n", 100*r.WorstError)
	writeSmall(w, r)
	fmt.Fprintf(w, "%s is 100%%, of which %s weights, gradients and optimizer\n", units.Bytes(r.StoreAllBytes), units.Bytes(r.StaticBytes))
	if verbose {
		writeStatistics(w, r)
	}
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

// medianError returns the line with the error in the middle.
func medianError(r *bench.Report) string {
	return fmt.Sprintf("%.1f%% median error of the predicted time, of %s", 100*r.MedianError, units.Count(len(r.Rows), "plan"))
}

// writeStatistics prints the statistics of the errors, and the cause of each row's.
func writeStatistics(w io.Writer, r *bench.Report) {
	fmt.Fprintf(w, "%.1f%% to %.1f%% median error as steps vary\n", 100*r.MedianInterval[0], 100*r.MedianInterval[1])
	fmt.Fprintf(w, "%.1f%% median error by the costs measured before planning\n", 100*r.MedianPlannedError)
	fmt.Fprintf(w, "%.1f%% median error if copies and ops did not slow each other down\n", 100*r.MedianAsAloneError)
	fmt.Fprintf(w, "%.3f times the costs measured before planning are the costs measured beside the rows\n", r.Drift)
	fmt.Fprint(w, "\nthe gap between the predicted and the measured time of the step in the middle, by cause:\n")
	_ = r.Causes().Terminal(w, 1)
	fmt.Fprintln(w)
}

// writeSmall prints the price of each row on a smaller device, against store-all's time among the rows above.
func writeSmall(w io.Writer, r *bench.Report) {
	said := false
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.DeviceBytes == 0 || !(r.Rows[0].StoreAllS > 0) {
			continue
		}
		if !said {
			fmt.Fprintf(w, "the small device has %s; store-all needs %.1f times as much\n", units.Bytes(row.DeviceBytes), float64(r.StoreAllBytes)/float64(row.DeviceBytes))
		}
		said = true
		fmt.Fprintf(w, "a step there takes %s with %s\n", longer(row.MeasuredS/r.Rows[0].StoreAllS), row.Plan.Name())
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
