package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
)

// measureFlags say how a chain is measured.
type measureFlags struct {
	warmup, repeats int
	given           func() bool // whether the user said how many repeats
	halves          bool
}

func (f *measureFlags) register(cmd *cobra.Command) {
	o := optionsOf(cmd)
	o.IntVar(&f.warmup, "profile.warmup", 1, "")
	o.IntVar(&f.repeats, "profile.steps", 5, "")
	f.given = func() bool { return spelling(cmd.Flags(), "profile.steps") != "" }
}

// mostProfileSteps is more than any median needs.
const mostProfileSteps = 100_000

func (f *measureFlags) measure(progress func(done, total int)) (train.Measure, error) {
	if max(f.warmup, f.repeats) > mostProfileSteps {
		return train.Measure{}, usage(fmt.Errorf("--option profile.warmup is %d and profile.steps %d: give at most %d", f.warmup, f.repeats, mostProfileSteps))
	}
	enough := time.Duration(0)
	if !f.given() {
		enough = 10 * time.Second
	}
	return train.Measure{Warmup: f.warmup, Repeats: f.repeats, Enough: enough, Halves: f.halves, Progress: progress}, nil
}

// profileCommand is plimsoll profile.
type profileCommand struct {
	*app
	job    jobFlags
	more   []int // batch sizes behind the first one
	how    measureFlags
	out    string
	layers bool
}

func newProfileCommand(a *app) *cobra.Command {
	c := &profileCommand{app: a}
	job := &c.job
	cmd := command("profile", "Measure a model on a device, as a chain file", `Measure a model on a device: a few training steps, of which every op's median time counts. Byte counts come from the
model's graph and are exact. The chain file is what plan takes.

With --device nothing is measured: times are estimated from the model's graph and a description of the device, and called estimated.`, nil)
	cmd.Example = `  plimsoll profile -m resnet50 --image 224 --batch 8 -o c.json
  plimsoll profile -m resnet20 --batch 8,16,32 -o c.json
  plimsoll profile -m gpt2-xl --length 1024 --batch 8 --dtype bf16 --optimizer adamw --device h100 -o c.json`
	job.register(a, cmd)
	batch := cmd.Flags().Lookup("batch")
	batch.Value.(*batchFlag).more, batch.Usage = &c.more, "samples of a step: images or texts; several numbers, as in 8,16,32, make one chain file"
	job.registerDevice(cmd)
	c.how.register(cmd)
	cmd.Flags().StringVarP(&c.out, "output", "o", "", "write the chain file here")
	cmd.Flags().BoolVar(&c.how.halves, "halves", false, "measure the two halves of every backward as well, for schedules that split it")
	cmd.Flags().BoolVar(&c.layers, "layers", false, "print a table of the layers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := job.checkDevice(cmd); err != nil {
			return err
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// profileFigures is the JSON of profile: seconds and bytes.
type profileFigures struct {
	Model         string              `json:"model"`
	Device        string              `json:"device"`
	Estimated     bool                `json:"estimated,omitempty"` // from a description of the device: nothing was measured
	Layers        int                 `json:"layers"`
	Parameters    int64               `json:"parameters"`
	ForwardS      float64             `json:"forward_s"`
	BackwardS     float64             `json:"backward_s"`
	UpdateS       float64             `json:"update_s"`
	OpsBeside     *chain.Beside       `json:"ops_beside,omitempty"`
	CopiesBeside  *chain.CopiesBeside `json:"copies_beside,omitempty"`
	StaticBytes   int64               `json:"static_bytes"`
	StoreAllBytes int64               `json:"store_all_peak_bytes"` // static memory included
	// Batch is the samples of a step where several numbers were measured, and Others has the other ones.
	Batch  int               `json:"batch,omitempty"`
	Others []*profileFigures `json:"other_batches,omitempty"`

	chain *chain.Chain
}

func (c *profileCommand) run(ctx context.Context) error {
	measure, err := c.how.measure(c.progress("profile"))
	if err != nil {
		return err
	}
	if err := writable("--output", c.out); err != nil {
		return err
	}
	c.job.until = ctx
	figures, err := profileAt(ctx, c.job, measure)
	if err != nil {
		return err
	}
	for _, images := range c.more {
		job := c.job
		job.config.Batch = images
		other, err := profileAt(ctx, job, measure)
		if err != nil {
			return err
		}
		figures.Batch, other.Batch = c.job.config.Batch, images
		figures.Others = append(figures.Others, other)
		figures.chain.Others = append(figures.chain.Others, other.chain)
	}
	if c.out != "" {
		if err := figures.chain.Write(c.out); err != nil {
			return err
		}
	}
	return c.print(figures, func(w io.Writer) {
		for _, x := range append([]*profileFigures{figures}, figures.Others...) {
			if c.layers {
				writeLayers(w, x.chain)
			}
			x.write(w)
		}
	})
}

// profileAt opens a job and measures it.
func profileAt(ctx context.Context, flags jobFlags, measure train.Measure) (*profileFigures, error) {
	job, err := flags.open()
	if err != nil {
		return nil, err
	}
	c, err := job.Profile(ctx, measure)
	if err != nil {
		return nil, err
	}
	return profileOf(job, c)
}

func profileOf(job *train.Job, c *chain.Chain) (*profileFigures, error) {
	all, err := job.StoreAllBytes()
	f := &profileFigures{
		Model: job.Model, Device: c.Device, Estimated: c.Estimated, Layers: c.Len(), Parameters: job.Work.Model.ParamCount(),
		UpdateS: executor.UpdateSeconds(c), StaticBytes: job.Work.StaticBytes(), StoreAllBytes: all,
		chain: c, OpsBeside: c.Beside(), CopiesBeside: c.CopiesBeside,
	}
	for i := range c.Layers {
		f.ForwardS += c.Layers[i].ForwardS
		f.BackwardS += c.Layers[i].BackwardS
	}
	return f, err
}

func (f *profileFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "model\t%s, %d layers with the loss, %d parameters\n", f.Model, f.Layers, f.Parameters)
	fmt.Fprintf(w, "device\t%s%s\n", f.Device, map[bool]string{true: ", from its description: nothing was measured"}[f.Estimated])
	if f.Batch > 0 {
		fmt.Fprintf(w, "batch\t%d\n", f.Batch)
	}
	fmt.Fprintf(w, "%s\t%s: forward %s, backward %s, update %s\n", estimated("step", f.Estimated), units.Seconds(f.ForwardS+f.BackwardS+f.UpdateS),
		units.Seconds(f.ForwardS), units.Seconds(f.BackwardS), units.Seconds(f.UpdateS))
	if o, k := f.OpsBeside, f.CopiesBeside; o != nil && k != nil {
		fmt.Fprintf(w, "beside\tcopies to the host ops take %.2f times as long, to the device %.2f, both ways %.2f; copies beside ops %.2f and %.2f\n", o[0], o[1], o[2], k[0], k[1])
	}
	fmt.Fprintf(w, "memory\t%s without recomputation, of which %s weights, gradients and optimizer\n",
		units.Bytes(f.StoreAllBytes), units.Bytes(f.StaticBytes))
	_ = w.Flush() // of a buffer
}

// estimated returns the name of a figure, which says so where it is an estimate.
func estimated(name string, is bool) string {
	if is {
		return name + ", estimated"
	}
	return name
}

func writeLayers(out io.Writer, c *chain.Chain) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tlayer\tforward\tbackward\toutput\tsaved\toverheads\t\tweights\t")
	for i := range c.Layers {
		l := &c.Layers[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", i+1, l.Name, units.Seconds(l.ForwardS), units.Seconds(l.BackwardS),
			units.Bytes(l.OutputBytes), units.Bytes(l.SavedBytes), units.Bytes(l.ForwardOverheadBytes),
			units.Bytes(l.BackwardOverheadBytes), units.Bytes(l.WeightBytes))
	}
	_ = w.Flush() // of a buffer
}
