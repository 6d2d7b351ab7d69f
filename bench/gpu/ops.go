package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// opRow is a kernel call of a training step, timed alone with cold caches, beside its floor. The floor is the time of
// its bytes or of its operations at the ceilings measured in the same run, whichever is longer.
type opRow struct {
	Model      string  `json:"model"`
	DType      string  `json:"dtype"`
	Op         string  `json:"op"`
	Pass       string  `json:"pass"`
	Shape      string  `json:"shape"` // of the input
	Count      int     `json:"count"` // in a step
	Bytes      int64   `json:"bytes"`
	Operations int64   `json:"operations"`
	Seconds    float64 `json:"seconds"`
	Floor      float64 `json:"floor_s"`
	Bound      string  `json:"bound"` // "memory" or "arithmetic"
}

// ceilings are the most that the device was seen to do, and by whom.
type ceilings struct {
	Bandwidth float64            `json:"bytes_per_s"`      // read and written, by a copy within the device
	Rate      map[string]float64 `json:"operations_per_s"` // by element type, in a large matrix product
	By        map[string]string  `json:"by"`
}

type opFigures struct {
	Ceilings ceilings `json:"ceilings"`
	Rows     []opRow  `json:"ops"`
	Choices  any      `json:"choices,omitempty"` // who computes convolutions and linear layers, and how long each candidate took
}

// opSizes say how large the ops part is.
type opSizes struct {
	model               string
	batch, image        int   // image: of text the tokens of a sample
	classes             int   // likewise the vocabulary
	flush, most, source int64 // bytes that displace what is cached, of the arena, of random numbers
}

func (p *part) opSizes() opSizes {
	if p.tiny {
		return opSizes{"tiny", 2, 12, classes, 1 << 16, 1 << 26, 1 << 16}
	}
	return opSizes{"resnet50", 64, 224, classes, 256 << 20, 6 << 30, 64 << 20}
}

// textSizes are the sizes of a language model.
func (p *part) textSizes() opSizes {
	if p.tiny {
		return opSizes{"gpt2-1-64", 2, 8, 50, 1 << 16, 1 << 26, 1 << 16}
	}
	return opSizes{"gpt2", 16, 1024, vocabulary, 256 << 20, 24 << 30, 64 << 20}
}

func (s opSizes) config(d kernels.DType) models.Config {
	return models.Config{Batch: s.batch, Image: s.image, Classes: s.classes, DType: d}
}

func measureOps(ctx context.Context, p *part) error {
	matrix := 8192
	if p.tiny {
		matrix = 32
	}
	f := &opFigures{}
	s := p.opSizes()
	err := p.with(s, func(r *rig) error { return r.ceilings(s, matrix, &f.Ceilings) })
	if err != nil {
		return err
	}
	p.peerCeilings(ctx, matrix, &f.Ceilings)
	p.printf("Ceilings: memory %s by a copy", units.Rate(f.Ceilings.Bandwidth, "B"))
	for _, d := range floats {
		p.printf("; %v %s (%s)", d, units.Rate(f.Ceilings.Rate[d.String()], "FLOP"), f.Ceilings.By[d.String()])
	}
	p.printf(".\n")
	for _, d := range floats {
		for _, s := range []opSizes{p.textSizes(), s} {
			err := p.with(s, func(r *rig) error { return r.timeOps(ctx, p, s, d, f) })
			if errors.Is(err, kernels.ErrType) {
				p.printf("\nThe kernels do not compute %s in %v.\n", s.model, d)
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return p.save(f)
}

// floats are the types, with what is asked most first: time may run out.
var floats = []kernels.DType{kernels.BFloat16, kernels.TF32, kernels.Float32}

// with opens a rig with the arena of the ops part for do.
func (p *part) with(s opSizes, do func(*rig) error) error {
	r, err := p.rig(s.most, s.source)
	if err != nil {
		return err
	}
	if err = r.fill(s.most); err == nil {
		err = do(r)
	}
	return errors.Join(err, r.close())
}

// ceilings measures a copy and matrix products.
func (r *rig) ceilings(s opSizes, matrix int, c *ceilings) error {
	dst, src := runtime.Span{Bytes: s.flush}, runtime.Span{Offset: s.flush, Bytes: s.flush}
	took, err := r.time(nil, func() error { return r.stream.Copy(dst, src) })
	if err != nil {
		return err
	}
	*c = ceilings{Bandwidth: 2 * float64(s.flush) / took, Rate: map[string]float64{}, By: map[string]string{}}
	for _, d := range floats {
		x := kernels.Desc{Shape: kernels.Shape{matrix, matrix}, DType: d.Stored()}
		op, err := r.place(kernels.Call{Op: kernels.Linear{Out: matrix, TF32: d == kernels.TF32}, In: []kernels.Desc{x}}, runtime.Span{Bytes: s.most})
		if errors.Is(err, kernels.ErrType) {
			continue
		}
		if err != nil {
			return err
		}
		took, err := r.time(nil, op.issue)
		if err != nil {
			return err
		}
		n := float64(matrix)
		c.Rate[d.String()], c.By[d.String()] = 2*n*n*n/took, "our own product"
	}
	return nil
}

// peerCeilings takes PyTorch's matrix products where they are faster.
func (p *part) peerCeilings(ctx context.Context, n int, c *ceilings) {
	for _, d := range floats {
		err := p.peerRows(ctx, []string{fmt.Sprintf("matmul:%d:1:%s:eager", n, short(d))}, func(row peerRow) error {
			if rate := row.Operations / row.StepS; rate > c.Rate[d.String()] {
				c.Rate[d.String()], c.By[d.String()] = rate, row.System
			}
			return nil
		})
		if err != nil {
			p.printf("No ceiling from PyTorch: %v.\n\n", err)
			return
		}
	}
}

// call is a kernel call and how often a step makes it.
type call struct {
	kernels.Call
	name  string
	count int
}

// calls returns the different calls of a step that recomputes nothing, in order.
func calls(w *executor.Workload) []*call {
	var all []*call
	known := map[string]*call{}
	for _, l := range w.Layers {
		for _, program := range []*models.Program{&l.Save, &l.Back} {
			for _, step := range program.Steps {
				c := step.Call
				c.Salt = 0
				key := fmt.Sprintf("%+v", c)
				if known[key] == nil {
					known[key] = &call{Call: c, name: step.Name}
					all = append(all, known[key])
				}
				known[key].count++
			}
		}
	}
	return all
}

// timeOps adds a row for every call of the model in a type.
func (r *rig) timeOps(ctx context.Context, p *part, s opSizes, d kernels.DType, f *opFigures) error {
	w, err := workload(r.Library, s.model, s.config(d))
	if err != nil {
		return err
	}
	rows := []opRow{}
	for _, c := range calls(w) {
		if err := ctx.Err(); err != nil {
			return err
		}
		row, err := r.timeOp(c, s, d, &f.Ceilings)
		if err != nil {
			return fmt.Errorf("%s %v of %v: %w", c.Op.Kind(), c.Pass, c.In, err)
		}
		row.Model = s.model
		rows = append(rows, row)
	}
	f.Rows = append(f.Rows, rows...)
	if c, chooses := r.Library.(kernels.Chooser); chooses {
		f.Choices = c.Chosen()
	}
	p.printOps(s, d, rows)
	return p.save(f)
}

func (r *rig) timeOp(c *call, s opSizes, d kernels.DType, top *ceilings) (row opRow, err error) {
	row = opRow{DType: d.String(), Op: c.Op.Kind(), Pass: c.Pass.String(), Shape: shape(c), Count: c.count}
	if row.Bytes, row.Operations, err = c.Cost(); err != nil {
		return row, err
	}
	row.floor(top.Bandwidth, top.Rate[d.String()])
	row.Seconds, err = r.timeCall(c, s)
	return row, err
}

// floor sets the floor of a row by a bandwidth and a rate of operations; rate 0: none is known.
func (o *opRow) floor(bandwidth, rate float64) {
	o.Floor, o.Bound = float64(o.Bytes)/bandwidth, "memory"
	if rate > 0 && float64(o.Operations)/rate > o.Floor {
		o.Floor, o.Bound = float64(o.Operations)/rate, "arithmetic"
	}
}

// timeCall times a call alone, with cold caches.
func (r *rig) timeCall(c *call, s opSizes) (float64, error) {
	need, err := placeBytes(r.Library, c.Call)
	if err != nil {
		return 0, err
	}
	flush := [2]runtime.Span{{Offset: s.most - 2*s.flush, Bytes: s.flush}, {Offset: s.most - s.flush, Bytes: s.flush}}
	if need > flush[0].Offset {
		return 0, fmt.Errorf("it takes %s", units.Bytes(need))
	}
	op, err := r.place(c.Call, runtime.Span{Bytes: need})
	if err != nil {
		return 0, err
	}
	issue, err := r.captured(op)
	if err != nil {
		return 0, err
	}
	return r.time(func() error { return r.stream.Copy(flush[0], flush[1]) }, issue)
}

// captured is an op as one launch, where the device can capture: a step runs as a graph, too, which does not wait for the host between an
// op's launches. The op runs once before, as libraries load code that may not be captured.
func (r *rig) captured(op *placed) (issue func() error, err error) {
	device, able := r.Device.(runtime.Grapher)
	if !able {
		return op.issue, nil
	}
	if err := cmp.Or(op.issue(), r.stream.Synchronize()); err != nil {
		return nil, err
	}
	launch, err := device.Capture(r.stream, op.issue)
	return func() error { return r.stream.Launch(launch) }, err
}

// shape describes a call's input and, of products, its attributes.
func shape(c *call) string {
	text := fmt.Sprint(c.In[0].Shape)
	switch op := c.Op.(type) {
	case kernels.Conv2D:
		o := op.Defaults()
		text += fmt.Sprintf(" to %d, %dx%d/%d", o.Out, o.KernelH, o.KernelW, o.StrideH)
	case kernels.Linear:
		text += fmt.Sprintf(" to %d", op.Out)
	}
	return text
}

// mostRows is how many calls the markdown lists: those that take longest. The JSON has all.
const mostRows = 25

func (p *part) printOps(s opSizes, d kernels.DType, rows []opRow) {
	var took, floor float64
	for _, row := range rows {
		took, floor = took+float64(row.Count)*row.Seconds, floor+float64(row.Count)*row.Floor
	}
	p.printf("\n%s, %v: all calls of a step one after the other %s, their floors %s (%.0f %%); %d different calls, those that take longest:\n\n",
		describeRun(s.model, s.image, s.batch), d, units.Seconds(took), units.Seconds(floor), 100*floor/took, len(rows))
	p.printf("| op | pass | input | in a step | time | floor | bound by | floor / time |\n|---|---|---|---|---|---|---|---|\n")
	longest := slices.Clone(rows)
	slices.SortStableFunc(longest, func(a, b opRow) int { return cmp.Compare(float64(b.Count)*b.Seconds, float64(a.Count)*a.Seconds) })
	for _, row := range longest[:min(mostRows, len(longest))] {
		p.printf("| %s | %s | %s | %d | %s | %s | %s | %.0f %% |\n", row.Op, row.Pass, row.Shape, row.Count,
			units.Seconds(row.Seconds), units.Seconds(row.Floor), row.Bound, 100*row.Floor/row.Seconds)
	}
	p.sumUp("%v ops of %s at %.0f %% of their floors", d, s.model, 100*floor/took)
}
