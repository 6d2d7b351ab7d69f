package executor

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
)

// StagedField is the plan's extra field with the bytes of the arena in which the next batch waits; absent where none does.
const StagedField = "staged_bytes"

// Stage returns the workload with images that are bytes, and with memory in the arena in which the next batch waits beside a step. The
// palette has the value of each byte in each channel of the model's input: channels,256. Every value is what the palette says, to the bit.
func (w *Workload) Stage(palette []float32) *Workload {
	if channels := w.Model.Input.Shape[len(w.Model.Input.Shape)-1]; len(palette) != 256*channels || w.Model.Input.DType != kernels.Float32 {
		panic(fmt.Sprintf("BUG: a palette of %d values for an input of %v", len(palette), w.Model.Input))
	}
	out := *w
	out.Static = placeStatic(w.Model, w.Layers, w.Optimizer, w.UpdateWorkspaces, palette)
	return &out
}

// Palette returns the value of each byte in each channel of a workload's staged images: channels,256; nil where nothing is staged.
func Palette(w *Workload) []float32 { return w.Static.palette }

// StagedBytes returns the memory that Stage has added to StaticBytes; 0 where there is none.
func (w *Workload) StagedBytes() int64 { return w.Static.staged }

// evaluationExtent returns the arena that a forward in evaluation mode takes, of every layer but the loss, one activation at a time.
func (w *Workload) evaluationExtent() (int64, error) {
	layers := len(w.Layers) - 1
	programs, seq := make([]*models.Programs, layers), make(schedule.Sequence, layers)
	for i := range programs {
		p := *w.Layers[i]
		p.Forget = p.Eval
		programs[i], seq[i] = &p, schedule.Op{Kind: schedule.ForwardDiscard, Layer: i + 1}
	}
	t, err := record(w.Model.Wiring(), programs, w.InputBytes(), seq, inOrder(layers))
	if err != nil {
		return 0, err
	}
	return newPacked(t, w.StaticBytes()).Extent, nil
}
