package executor

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// StagedField is the plan's extra field with the bytes of the arena in which the next batch waits; absent where none does.
const StagedField = "staged_bytes"

// staging is memory of the arena to which a batch is copied while the step before it runs. Images lie there as bytes, a quarter of
// their size; the step that they are for begins with looking them up in the palette.
type staging struct {
	palette []float32 // channels,256; nil where nothing is staged
	table   runtime.Span
	images  []runtime.Span // of each branch
	labels  runtime.Span
	bytes   int64 // of all of it
}

// open takes the memory of a batch of so many branches.
func (s *staging) open(input kernels.Desc, branches int, labels int64, arena func(int64) runtime.Span) {
	if s.palette == nil {
		return
	}
	take := func(bytes int64) runtime.Span {
		s.bytes += kernels.Align(bytes)
		return arena(bytes)
	}
	s.table = take(s.lookup(input).TableBytes())
	for range branches {
		s.images = append(s.images, take(input.Elements()))
	}
	s.labels = take(labels)
}

func (s *staging) lookup(input kernels.Desc) kernels.Lookup {
	return kernels.Lookup{Elements: input.Elements(), Channels: input.Shape[len(input.Shape)-1]}
}

// Stage returns the workload with images that are bytes, which Pixels takes in the place of Images, and with memory in the arena
// for the next batch: Executor.Stage copies it there beside a step. The palette has the value of each byte in each channel of the
// model's input: channels,256. Every value is what the palette says, to the bit.
func (w *Workload) Stage(palette []float32) *Workload {
	if channels := w.Model.Input.Shape[len(w.Model.Input.Shape)-1]; len(palette) != 256*channels || w.Model.Input.DType != kernels.Float32 {
		panic(fmt.Sprintf("BUG: a palette of %d values for an input of %v", len(palette), w.Model.Input))
	}
	out := *w
	out.static = w.placeStatic(w.Offloading(), palette)
	return &out
}

// Palette returns the value of each byte in each channel of a workload's staged images: channels,256; nil where nothing is staged.
func Palette(w *Workload) []float32 { return w.static.staged.palette }

// StagedBytes returns the memory that Stage has added to StaticBytes; 0 where there is none.
func (w *Workload) StagedBytes() int64 { return w.static.staged.bytes }

// hostImages returns the bytes of one branch's images in host memory.
func (w *Workload) hostImages() int64 {
	if w.StagedBytes() > 0 {
		return w.Model.Input.Elements()
	}
	return w.Model.Input.Bytes()
}

// prepareTake prepares what a sequence begins with where batches are staged: the images become numbers, the labels go where the
// loss reads them, and the memory is free for the next batch.
func (w *Workload) prepareTake(b *bound, lib kernels.Library) error {
	st := &w.static.staged
	if st.palette == nil {
		return nil
	}
	var s script
	s.wait(streamCompute, eventStaged)
	for k, images := range st.images {
		l := st.lookup(w.Model.Input)
		o := kernels.LookupOperands{X: images, Table: st.table, Y: b.span(k).Part(0, w.Model.Input.Bytes())}
		launch, err := lib.PrepareLookup(l, o)
		if err != nil {
			return err
		}
		s.launch(streamCompute, launch, useOf("normalization", o.Uses(l)))
	}
	s.copy(streamCompute, "labels", w.static.labels, st.labels)
	s.record(streamCompute, eventTaken)
	b.take = s.list
	return nil
}

// writeStages writes the copies of each of the two batches to the memory where it waits for its step.
func (e *Executor) writeStages() {
	st := &e.static.staged
	if st.palette == nil {
		return
	}
	var s script
	s.wait(streamBatch, eventTaken)
	for k, images := range st.images {
		s.copy(streamBatch, "upload", images, e.host.images.Part(int64(k)*images.Bytes, images.Bytes))
	}
	s.copy(streamBatch, "upload", st.labels, e.host.labels)
	s.record(streamBatch, eventStaged)
	e.stages[0], e.stages[1] = s.list, e.other(s.list)
}

// other returns the commands that bring the second batch in place of the first.
func (e *Executor) other(first []command) []command {
	second := slices.Clone(first)
	for i := range second {
		c := &second[i]
		if c.src.Space != runtime.Host || c.src.Offset >= e.host.images.Offset+e.host.other {
			continue
		}
		c.src.Offset += e.host.other
		c.Accesses = moved(c.dst, c.src)
	}
	return second
}

// Stage begins to copy the batch whose turn it is to the device, where nobody changes it until the step or prediction that it is
// for: beside the step that runs, behind Begin, Swap and what fills the batch. Begin and Predict do it where nobody has. A workload
// without memory for the next batch copies it when its step begins.
func (e *Executor) Stage() error {
	if e.StagedBytes() == 0 || e.staged == e.turn {
		return nil
	}
	e.staged = e.turn
	return e.put(e.stages[e.turn])
}

// take lets a bound sequence begin with the batch whose turn it is.
func (e *Executor) take(b *bound) error {
	if err := e.Stage(); err != nil {
		return err
	}
	e.staged = none
	return e.put(b.take)
}
