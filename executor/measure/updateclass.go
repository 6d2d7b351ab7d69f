package measure

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/internal/cores"
	"plimsoll/kernels"
)

// updateClass is the layers whose updates take equal time: those with as large parameters under the same rules.
type updateClass struct {
	layers  []int // from 1
	updates []kernels.UpdateOperands
}

// updateClasses returns the classes of all layers with trained parameters of their own.
func updateClasses(w *executor.Workload) (all []*updateClass) {
	known := map[string]*updateClass{}
	for l := 1; l <= len(w.Layers); l++ {
		updates := w.UpdatesOf(l)
		if len(updates) == 0 {
			continue
		}
		key := fmt.Sprint(updates)
		if known[key] == nil {
			known[key] = &updateClass{updates: updates}
			all = append(all, known[key])
		}
		known[key].layers = append(known[key].layers, l)
	}
	return all
}

// largestClass returns the class whose updates have the most elements.
func largestClass(classes []*updateClass) *updateClass {
	return slices.MaxFunc(classes, func(a, b *updateClass) int { return cmp.Compare(elements(a.updates), elements(b.updates)) })
}

// updateRoomBytes returns the memory that measurements of updates take of the arena and of the host space, at most. It is what the updates of
// a step go through: between two updates of a layer all others have been in the caches. Measurements of the link give its least, and twice
// the largest cache its most.
func updateRoomBytes(opt kernels.Update, classes []*updateClass) (bytes int64) {
	for _, class := range classes {
		for _, o := range class.updates {
			bytes += int64(len(class.layers)) * updateBytes(opt, o)
		}
	}
	return max(mostWindow, min(bytes, 2*cores.LargestCache()))
}

// updateBytes returns what an update goes through: a parameter, its gradient, its states and its rounded copy.
func updateBytes(u kernels.Update, o kernels.UpdateOperands) int64 {
	return int64(2+kernels.StatesOf(u, o.Matrix))*kernels.Align(o.Elements*kernels.Float32.Size()) + kernels.Align(o.Rounded.Bytes)
}

// elements returns how many elements updates have together.
func elements(updates []kernels.UpdateOperands) (n int64) {
	for _, o := range updates {
		n += o.Elements
	}
	return n
}
