package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/await"
	"plimsoll/internal/units"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// fitCommand is plimsoll fit.
type fitCommand struct {
	*app
	job    jobFlags
	memory units.Size
	link   linkFlags
	how    measureFlags
	file   string // --profile
}

func newFitCommand(a *app) *cobra.Command {
	c := &fitCommand{app: a}
	cmd := command("fit", "Say from a model's graph what memory it needs, and what fits", `Say what memory a model's training step needs with each kind of plan, and how large a batch and a sample fit in a limit.

The model's graph says so alone: nothing is measured, and no step runs. Where the model was measured before, the price of the limit in
time is said too. --device says it for a device that is not here, estimated.`, nil)
	setDetails(cmd, `A plan that recomputes forgets activations and computes them again. A plan that offloads moves them to host memory and back.

The smallest limit is that of the arena, with weights, gradients and optimizer state, as --memory of train takes it. Plans that offload
have as much host memory there as they like. Plans that move weights and state, too, fetch the weights, gradients and optimizer state of
a layer when it needs them: auto of train takes them where no other plan fits. Their figures are those of the plan with the least memory,
which train runs if it finds no faster one; their time is not known before. The largest batch and sample keep within --host-memory. They are found to 2% where a model
has more than 40 layers. Images are tried in steps of 32 pixels, small ones of 4; lengths of text in steps of as many tokens.

With several --devices the limit is that of each device, and schedules of pipelines are asked. Stages are cut by the bytes that layers
touch, so another cut can need less.`)
	cmd.Example = `  plimsoll fit -m resnet50 --image 224 --batch 256 --memory 8GiB
  plimsoll fit -m densenet121 --image 224 --batch 64 --json
  plimsoll fit -m gpt2-xl --length 1024 --batch 8 --dtype bf16 --optimizer adamw --device rtx4090
  plimsoll fit -m resnet101 --image 224 --batch 256 --devices "cpu*4" --memory 4GiB`
	c.job.register(a, cmd)
	c.job.registerDevice(cmd)
	c.link.register(cmd)
	c.how.register(cmd)
	cmd.Flags().Var(&c.memory, "memory", "memory limit of the arena: 4GiB, 512MB, 123, or a share as 40% (default: what the device has)")
	cmd.Flags().IntVar(&c.job.microbatches, "microbatches", 0, microbatchesUsage)
	cmd.Flags().Lookup("devices").Usage = `device, or several for a pipeline: cpu, "cpu*4", cuda:0,cuda:1`
	cmd.Flags().StringVar(&c.file, "profile", "", "chain file of this model, for the price in time (default: one that is kept from a measurement)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("memory") && c.memory.IsZero() {
			return usage(errors.New("--memory is 0: give it, as in --memory 4GiB or --memory 40%"))
		}
		n, err := countDevices(c.job.devices)
		if err = firstOf(err, c.job.checkDevice(cmd)); err != nil {
			return err
		}
		if n > 1 {
			err = firstOf(refuse(cmd, "is for one device", "profile", "host-memory", "bandwidth", "duplex"), c.divide(n))
		} else {
			err = refuse(cmd, `is for pipelines: give several --devices, as in --devices "cpu*4"`, "microbatches")
		}
		if err != nil {
			return err
		}
		return c.run(cmd.Context(), n)
	}
	return cmd
}

// divide divides a step on several devices into microbatches.
func (c *fitCommand) divide(devices int) error {
	err := firstOf(checkMicrobatches(c.job.microbatches), noShare("--memory", c.memory))
	c.job.microbatches = cmp.Or(c.job.microbatches, 2*devices)
	return err
}

func (c *fitCommand) run(ctx context.Context, devices int) error {
	if err := c.link.check(); err != nil {
		return err
	}
	c.job.hostMemory = c.link.memory
	job, err := c.job.open()
	if err != nil {
		return err
	}
	q := train.FitRequest{Devices: devices, Limit: job.Device.Memory}
	if q.Kinds, err = fitKinds(devices, job.Work); err != nil {
		return err
	}
	if devices == 1 {
		q.Host = job.HostLimit(c.link.memory.Bytes)
		q.Options.HostMemory = job.Work.HostRoom(q.Host)
		if q.Chain, err = c.chain(job); err != nil {
			return err
		}
	}
	if !c.memory.IsZero() {
		all, err := job.StoreAllBytes()
		if err != nil {
			return err
		}
		q.Limit = c.memory.Of(all)
	}
	fit, err := await.Do(ctx, func() (*train.Fit, error) { return job.Fit(ctx, q) })
	if err != nil {
		return err
	}
	if q.Chain != nil && q.Chain.Estimated {
		fit.Estimated, fit.Device = true, q.Chain.Device
	}
	return c.print(fit, func(w io.Writer) { writeFit(w, fit, q.Chain != nil) })
}

// fitSchedules are the schedules that fit asks of several devices: those that most people mean, by what they keep in memory.
var fitSchedules = []string{"gpipe", "1f1b-flush", "gpipe-checkpoint", "1f1b-recompute", "joint-flush", "1f1b", "loadline", "joint"}

// fitKinds returns the kinds of plans that fit asks: of several devices a schedule each.
func fitKinds(devices int, w *executor.Workload) (kinds []strategy.Kind, err error) {
	if devices == 1 {
		if kinds = planner.Kinds(w.Chain()); !w.Model.Wiring().Joins() {
			kinds = append(kinds, planner.MovingState())
		}
		return kinds, nil
	}
	all, err := lookupAll(fitSchedules, planner.LookupPipeline)
	for _, s := range all {
		kinds = append(kinds, strategy.Kind{Name: s.Name, Strategies: []pipeline.Strategy{s}})
	}
	return kinds, err
}

// chain returns the chain that the flags name, or one that is kept; nil when there is none.
func (c *fitCommand) chain(job *train.Job) (known *chain.Chain, err error) {
	if job.Described != nil {
		known, err = job.Profile(context.Background(), train.Measure{})
	} else if c.file != "" {
		known, err = job.ReadChain(c.file)
		err = usage(err)
	} else if measure, failure := c.how.measure(nil); failure != nil {
		return nil, failure
	} else if folder, failure := profilesFolder(); failure == nil { // a user without a home keeps none
		known, _ = train.ChainCache{Folder: folder}.Kept(job, measure) // where there is none, or a damaged one, the graph says the rest
	}
	if known == nil || err != nil {
		return nil, err
	}
	return c.link.chain(known)
}

func writeFit(out io.Writer, f *train.Fit, measured bool) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	on, each, kinds := "", "", "plans that"
	if f.Devices > 1 {
		on, each, kinds = fmt.Sprintf(" on %d devices", f.Devices), " on each device", "schedule\tmicrobatches"
	}
	fmt.Fprintf(w, "model\t%s%s, %d layers with the loss, %d parameters\n", f.Model, on, f.Layers, f.Parameters)
	if f.Estimated {
		fmt.Fprintf(w, "device\t%s, from its description: times are estimated\n", f.Device)
	}
	fmt.Fprintf(w, "step\t%s\n", f.Samples(f.Batch))
	writeVocabulary(w, f)
	if f.StoreAllBytes > 0 {
		fmt.Fprintf(w, "memory\t%s without recomputation, of which %s weights, gradients and optimizer\n", units.Bytes(f.StoreAllBytes), units.Bytes(f.StaticBytes))
	}
	fmt.Fprintf(w, "limit\t%s%s\n", units.Bytes(f.LimitBytes), each)
	fmt.Fprintf(w, "\n%s\tsmallest limit\tfits\tlargest batch", kinds)
	switch {
	case f.LengthStep > 0:
		fmt.Fprint(w, "\tlargest length")
	case f.ImageStep > 0:
		fmt.Fprint(w, "\tlargest image")
	}
	if measured {
		fmt.Fprint(w, "\t"+estimated("time of a step", f.Estimated))
	}
	fmt.Fprintln(w)
	for _, k := range f.Kinds {
		writeKind(w, f, k, measured)
	}
	_ = w.Flush() // of a buffer
	for _, k := range f.Kinds {
		if k.HostBytes == 0 {
			continue
		}
		limit := ""
		if k.HostBytes > f.HostLimitBytes {
			limit = ofLimit(f.HostLimitBytes)
		}
		fmt.Fprintf(out, "\nat its smallest limit, %q takes %s of host memory%s\n", k.Kind, units.Bytes(k.HostBytes), limit)
	}
	if len(f.Helps) > 0 {
		fmt.Fprintf(out, "\nnothing fits; what would help: %s\n", strings.Join(f.Helps, ", "))
	}
}

// writeKind writes the row of a kind.
func writeKind(w io.Writer, f *train.Fit, k train.KindFit, measured bool) {
	fmt.Fprint(w, k.Kind)
	if k.Microbatches > 0 {
		fmt.Fprintf(w, "\t%d", k.Microbatches)
	}
	if k.SmallestBytes == 0 {
		fmt.Fprintf(w, "\tno plan on %d devices\n", f.Devices)
		return
	}
	fmt.Fprintf(w, "\t%s\t%s\t%s", units.Bytes(k.SmallestBytes), yesNo(k.Fits), orNone(k.LargestBatch))
	if most := cmp.Or(k.LargestImage, k.LargestLength); most != nil {
		fmt.Fprintf(w, "\t%s", orNone(*most))
	}
	if measured {
		fmt.Fprintf(w, "\t%s", slowdown(k))
	}
	fmt.Fprintln(w)
}

// writeVocabulary says which vocabulary a language model has, and which it was published with.
func writeVocabulary(w io.Writer, f *train.Fit) {
	if f.Vocabulary == 0 {
		return
	}
	fmt.Fprintf(w, "vocabulary\t%d tokens, as the data or --classes say", f.Vocabulary)
	for _, known := range models.All() {
		if known.Name == f.Model && known.Classes != f.Vocabulary {
			fmt.Fprintf(w, "; %s was published with --classes %d", f.Model, known.Classes)
		}
	}
	fmt.Fprintln(w)
}

// ofLimit says what the limit of host memory is; "" where none is known.
func ofLimit(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return "; the limit is " + units.Bytes(bytes)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// orNone writes a size of which 0 means that none fits.
func orNone(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func slowdown(k train.KindFit) string {
	switch {
	case k.Slowdown > 0:
		return fmt.Sprintf("%+.1f%%", 100*(k.Slowdown-1))
	case k.HostBytes > 0 && k.Fits:
		return "not known"
	}
	return "does not fit"
}
