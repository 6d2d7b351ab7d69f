package measure

import (
	"cmp"
	"errors"
	"fmt"
	"sort"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/schedule"
)

// Exercise is a sequence that a profile trains along, of the whole model or of a window of it: layers that are measured on their own, with a
// made-up input. Where they end before the model's, a head makes a loss of their output (models.Model.Window). A window takes the memory of
// its own layers alone, weights and their gradients included. Where all weights stay, one of a single layer needs no more than a plan of the
// model does. The update of a window is plain SGD, so that it holds no state. Where twins share weights, each window has and updates its own.
type Exercise struct {
	*executor.Workload
	Seq    schedule.Sequence
	Extent int64 // bytes of the arena that it takes

	whole  *executor.Workload
	first  int  // layer of whole that the window begins with, from 0
	count  int  // layers of whole that it has
	halves bool // backwards run in halves
}

// Exercises returns the sequences that a profile within limit bytes of arena trains along. They are store-all and checkpoint-all of windows
// that are as long as fits, of a single one where the whole model fits. With halves store-all comes again, with backwards in halves. Between
// them they contain every op of every layer. lib is what the workload was compiled for. Error: *WindowError, of the layer that needs most.
func Exercises(w *executor.Workload, lib kernels.Library, limit int64, halves bool) (all []*Exercise, err error) {
	c := cutter{w, lib, limit, halves}
	var largest *WindowError
	for first := 0; first < len(w.Layers); {
		longest, err := c.longest(first)
		switch alone, large := errors.AsType[*WindowError](err); {
		case large:
			if largest == nil || alone.Needed > largest.Needed {
				largest = alone
			}
			first++
		case err != nil:
			return nil, err
		default:
			all = append(all, longest...)
			first += longest[0].count
		}
	}
	if largest != nil {
		return nil, largest
	}
	return all, nil
}

// InWindows reports whether a profile within limit bytes of arena measures the model in windows, as it has no room as a whole.
func InWindows(w *executor.Workload, limit int64, halves bool) (bool, error) {
	c := cutter{Workload: w, limit: limit, halves: halves}
	all, err := c.exercises(0, len(w.Layers))
	return extent(all) > limit, err
}

// halved returns the workload whose every backward runs its halves one behind the other.
func halved(w *executor.Workload) *executor.Workload {
	h := *w
	h.Layers = make([]*models.Programs, len(w.Layers))
	for i, p := range w.Layers {
		q := *p
		q.Back = p.Halves()
		h.Layers[i] = &q
	}
	return &h
}

// cutter cuts a model into windows.
type cutter struct {
	*executor.Workload
	lib    kernels.Library
	limit  int64
	halves bool
}

// longest returns the exercises of the longest window that begins with a layer: of the whole model, or what a binary search
// finds.
func (c *cutter) longest(first int) (best []*Exercise, err error) {
	try := func(count int) bool {
		found, failure := c.exercises(first, count)
		if err = cmp.Or(err, failure); err != nil || extent(found) > c.limit {
			return false
		}
		best = found
		return true
	}
	if first == 0 && try(len(c.Layers)) || err != nil {
		return best, err
	}
	// best becomes that of the largest count that fits: a search ends beside it.
	rest := c.Model.WindowEnd(first+1) - first
	if sort.Search(rest, func(i int) bool { return !try(i + 1) }) == 0 && err == nil {
		found, failure := c.exercises(first, 1)
		layer := fmt.Sprintf("layer %d (%s)", first+1, c.Model.Layers[first].Name)
		err = cmp.Or(failure, error(&WindowError{Limit: c.limit, Needed: extent(found), Name: layer}))
	}
	return best, err
}

func extent(all []*Exercise) (most int64) {
	for _, x := range all {
		most = max(most, x.Extent)
	}
	return most
}

// exercises returns the exercises of count layers from first on.
func (c *cutter) exercises(first, count int) (all []*Exercise, err error) {
	w := c.Workload
	if count < len(c.Layers) {
		if w, err = c.window(first, count); err != nil {
			return nil, err
		}
	}
	seqs := []schedule.Sequence{w.StoreAll()}
	if len(w.Layers) > 1 {
		seqs = append(seqs, checkpointAll(len(w.Layers)))
	}
	for _, seq := range seqs {
		x, err := c.exercise(w, first, count, seq)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	if c.halves {
		x, err := c.exercise(halved(w), first, count, w.StoreAll())
		if err != nil {
			return nil, err
		}
		x.halves = true
		all = append(all, x)
	}
	return all, nil
}

// checkpointAll returns the sequence of n layers that saves every activation and recomputes every layer.
func checkpointAll(n int) schedule.Sequence {
	var seq schedule.Sequence
	for l := 1; l < n; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardCheckpoint, Layer: l})
	}
	for l := n; l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l}, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

func (c *cutter) exercise(w *executor.Workload, first, count int, seq schedule.Sequence) (x *Exercise, err error) {
	x = &Exercise{Workload: w, Seq: seq, whole: c.Workload, first: first, count: count}
	x.Extent, err = w.Extent(seq)
	return x, err
}

// window returns the workload of count layers from first on. Its optimizer has no state, which plans may keep on the host.
func (c *cutter) window(first, count int) (*executor.Workload, error) {
	m, layers, err := c.Model.Window(c.lib, c.Layers, first+1, first+count)
	if err != nil {
		return nil, err
	}
	return executor.NewWorkload(m, c.lib, kernels.SGD{}, layers)
}
