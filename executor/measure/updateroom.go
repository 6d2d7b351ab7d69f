package measure

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/internal/cores"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/runtime"
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

// updateBytes returns the bytes that an update reads or writes: a parameter, its gradient, its states and its rounded
// copy.
func updateBytes(u kernels.Update, o kernels.UpdateOperands) int64 {
	return int64(1+kernels.StatesOf(u, o.Matrix))*kernels.Align(o.Elements*kernels.Float32.Size()) + kernels.Align(o.Elements*o.GradType.Size()) + kernels.Align(o.Rounded.Bytes)
}

// elements returns how many elements updates have together.
func elements(updates []kernels.UpdateOperands) (n int64) {
	for _, o := range updates {
		n += o.Elements
	}
	return n
}

// mostCopies bounds the copies of a class's weights, gradient and state that its updates go through, one after the other.
const mostCopies = 32

// updateRoom places updates in a space: scalars, workspace, then copies of the operands.
type updateRoom struct {
	space     runtime.Span
	updates   []kernels.UpdateOperands // as much of each as there is room for
	share     float64                  // by which whole updates have more elements
	workspace int64
	partials  int64 // bytes of the partial sums of a norm, which lie in the workspace
	bytes     int64 // of a copy
}

// newUpdateRoom halves updates until a copy fits. Error: of a space without room for one element of each.
func newUpdateRoom(by kernels.Updater, u kernels.Update, space runtime.Span, updates []kernels.UpdateOperands) (*updateRoom, error) {
	for parts := int64(1); ; parts *= 2 {
		r, err := partOf(by, u, updates, parts)
		if r.space = space; err != nil || r.firstCopy()+r.bytes <= space.Bytes {
			return r, err
		}
		if parts > kernels.MaxElements {
			return nil, fmt.Errorf("an update of one element of each parameter takes %s, and the %v has %s", units.Precise(r.firstCopy()+r.bytes), space.Space, units.Precise(space.Bytes))
		}
	}
}

// partOf cuts every update to one of so many parts, of one element at least.
func partOf(by kernels.Updater, u kernels.Update, updates []kernels.UpdateOperands, parts int64) (r *updateRoom, err error) {
	r = &updateRoom{}
	for _, o := range updates {
		o.Elements = max(o.Elements/parts, 1)
		if o.Matrix.Is() {
			o.Matrix.Rows = max(o.Matrix.Rows/parts, 1)
			o.Elements = o.Matrix.Rows * o.Matrix.Columns
		}
		if o.Rounded.Bytes > 0 {
			o.Rounded.Bytes = o.Elements * kernels.BFloat16.Size()
		}
		need, err := by.UpdateWorkspace(u, o.Matrix)
		if err != nil {
			return r, err
		}
		r.workspace = max(r.workspace, kernels.Align(need))
		r.bytes += updateBytes(u, o)
		r.updates, r.partials = append(r.updates, o), r.partials+8*kernels.GuardPartials(o.Elements)
	}
	r.workspace = max(r.workspace, kernels.Align(r.partials))
	r.share = float64(elements(updates)) / float64(elements(r.updates))
	return r, nil
}

func (r *updateRoom) firstCopy() int64 { return kernels.ScalarsBytes + r.workspace }

// copies binds the updates to each copy of their operands.
func (r *updateRoom) copies(u kernels.Update) (all [][]kernels.UpdateOperands, workspace runtime.Span) {
	at := int64(0)
	take := func(bytes int64) runtime.Span {
		s := r.space.Part(at, bytes)
		at += kernels.Align(bytes)
		return s
	}
	scalars, workspace := take(kernels.ScalarsBytes), take(r.workspace)
	for copies := min((r.space.Bytes-r.firstCopy())/r.bytes, mostCopies); copies > 0; copies-- {
		var list []kernels.UpdateOperands
		for _, o := range r.updates {
			bytes := o.Elements * kernels.Float32.Size()
			o.Scalars, o.Workspace, o.Param, o.Grad = scalars, workspace, take(bytes), take(o.Elements*o.GradType.Size())
			for range kernels.StatesOf(u, o.Matrix) {
				o.States = append(o.States, take(bytes))
			}
			if o.Rounded.Bytes > 0 {
				o.Rounded = take(o.Rounded.Bytes)
			}
			list = append(list, o)
		}
		all = append(all, list)
	}
	return all, workspace
}

// prepare prepares the update of each copy.
func (r *updateRoom) prepare(by kernels.Updater, u kernels.Update) (launches []runtime.Launch, err error) {
	all, _ := r.copies(u)
	for _, list := range all {
		l, err := by.PrepareUpdate(u, list...)
		if err != nil {
			return nil, err
		}
		launches = append(launches, l)
	}
	return launches, nil
}

// prepareNorm prepares the partial sums of the gradients of each copy.
func (r *updateRoom) prepareNorm(by kernels.Updater, u kernels.Update) (launches []runtime.Launch, err error) {
	all, workspace := r.copies(u)
	for _, list := range all {
		o := kernels.GuardOperands{Partials: workspace.Part(0, r.partials)}
		for _, x := range list {
			o.Grads, o.Types = append(o.Grads, x.Grad), append(o.Types, x.GradType)
		}
		l, err := by.PrepareGuard(kernels.Guard{}, o)
		if err != nil {
			return nil, err
		}
		launches = append(launches, l)
	}
	return launches, nil
}

// prepareCast prepares the rounding of a gradient, from where the parameter of its copy is.
func (r *updateRoom) prepareCast(by kernels.Library, u kernels.Update) (launches []runtime.Launch, err error) {
	all, _ := r.copies(u)
	for _, list := range all {
		o := list[0]
		c := kernels.Call{Op: kernels.Cast{To: kernels.BFloat16}, In: []kernels.Desc{kernels.F32(int(o.Elements))}}
		l, err := by.Prepare(c, kernels.Operands{X: []runtime.Span{o.Param}, Y: o.Grad, Scalars: o.Scalars})
		if err != nil {
			return nil, err
		}
		launches = append(launches, l)
	}
	return launches, nil
}
