package measure

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/internal/cores"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// updateProfile profiles the test model with updates on the host.
func updateProfile(t *testing.T, r rig, opt ProfileOptions) *chain.Chain {
	t.Helper()
	opt.Warmup, opt.Repeats = 1, 2
	opt.OpenHost = func(dev runtime.Device) (kernels.Updater, error) { return library.OpenHost(dev, library.Options{}) }
	c, err := profiled(t, r, testMemory/2, opt)
	must(t, err)
	return c
}

// Every layer with weights has sizes and times of updates, layers of equal sizes the same ones; the loss has none. All of it survives a
// file.
func TestProfilesHaveUpdates(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	done, total := 0, 0
	c := updateProfile(t, r, ProfileOptions{Progress: func(d, all int) { done, total = d, all }})
	if done != total {
		t.Errorf("%d steps of %d", done, total)
	}
	if c.HostMemoryBandwidth <= 0 {
		t.Errorf("the host's memory moves %v B/s", c.HostMemoryBandwidth)
	}
	if b, k := c.HostUpdatesBeside, c.CopiesBesideHostUpdates; b == nil || k == nil || slices.Min(append(b[:], k[:]...)) < 1 {
		t.Errorf("updates on the host are slower by %v beside copies, copies beside them by %v", b, k)
	}
	if ops, updates := c.OpsBesideHostUpdates, c.HostUpdatesBesideOps; ops == nil || updates == nil || min(*ops, *updates) < 1 {
		t.Error("nobody knows what ops and updates on the host take from each other")
	}
	times := map[int64][2]float64{}
	for l := 1; l <= c.Len(); l++ {
		layer, state := c.Layer(l), int64(0)
		for _, q := range r.Model.Layers[l-1].Params() {
			if q.Trained {
				state += q.Desc.Storage()
			}
		}
		u := layer.Update
		if u.StateBytes != state || layer.WeightGradient() != r.Layers[l-1].GradBytes || u.WeightsOf != 0 {
			t.Errorf("%s: %+v, want %d bytes of state and %d of gradient", layer.Name, u, state, r.Layers[l-1].GradBytes)
		}
		if (u.DeviceS > 0) != (state > 0) || (u.NormS > 0) != (state > 0) || (u.HostS != nil) != (state > 0) || u.HostS != nil && *u.HostS <= 0 {
			t.Errorf("%s: %+v, of %d bytes of state", layer.Name, u, state)
		}
		if u.HostS == nil {
			continue
		}
		if known, ok := times[state]; ok && strings.HasPrefix(layer.Name, "block") && known != [2]float64{u.DeviceS, *u.HostS} {
			t.Errorf("%s takes %v, a layer of its sizes %v", layer.Name, u, known)
		}
		times[state] = [2]float64{u.DeviceS, *u.HostS}
	}
	if len(times) < 3 {
		t.Errorf("%d sizes of layers: a poor test", len(times))
	}
	var file bytes.Buffer
	must(t, c.Encode(&file))
	if again, err := chain.Decode(&file); err != nil || !reflect.DeepEqual(again.Layers, c.Layers) || again.HostMemoryBandwidth != c.HostMemoryBandwidth ||
		!reflect.DeepEqual(again.HostUpdatesBeside, c.HostUpdatesBeside) || !reflect.DeepEqual(again.CopiesBesideHostUpdates, c.CopiesBesideHostUpdates) {
		t.Errorf("read again: %v", err)
	}
}

// A twin has the weights of its layer, and no update.
func TestTwinsHaveTheirLayersWeights(t *testing.T) {
	t.Parallel()
	m, err := models.New("siamese", models.Config{Batch: 2, Image: 32, Classes: 2})
	must(t, err)
	lib, err := cpu.New(nil, cpu.Options{Threads: 1})
	must(t, err)
	w, err := executor.CompileUnsplit(m, lib, kernels.SGD{Momentum: 0.9})
	must(t, err)
	c, twins := w.Chain(), 0
	for i, l := range m.Layers {
		if l.Twin == 0 || c.Layer(l.Twin).WeightBytes == 0 {
			continue
		}
		if u := c.Layers[i].Update; u.WeightsOf != l.Twin || u.StateBytes != 0 || c.Owner(i+1) != l.Twin {
			t.Errorf("%s: %+v, want the weights of %d", l.Name, u, l.Twin)
		}
		twins++
	}
	for _, class := range updateClasses(w) {
		for _, l := range class.layers {
			if m.Layers[l-1].Twin > 0 {
				t.Errorf("layer %d is a twin, and is updated", l)
			}
		}
	}
	if must(t, c.Validate()); twins < 5 {
		t.Errorf("%d twins", twins)
	}
}

// Updates for which a space is too small are measured in part, to scale; the operands of all copies lie apart and within the space.
func TestUpdatesAreMeasuredInPart(t *testing.T) {
	t.Parallel()
	lib, err := cpu.New(nil, cpu.Options{Threads: 2})
	must(t, err)
	all := []kernels.UpdateOperands{{Elements: 1 << 20, Matrix: kernels.Matrix{Rows: 1 << 10, Columns: 1 << 10}}, {Elements: 100, Vector: true}, {Elements: 5000}}
	cut := 0
	for _, u := range []kernels.Update{kernels.SGD{}, kernels.AdamW{}, kernels.Muon{}} {
		for _, bytes := range []int64{1 << 26, 1 << 22, 1 << 20, 1 << 19} {
			space := runtime.Span{Space: runtime.Host, Bytes: bytes}
			r, err := newUpdateRoom(lib, u, space, all)
			must(t, err)
			elements := int64(0)
			for _, o := range r.updates {
				elements += o.Elements
				if m := o.Matrix; m.Is() && m.Rows*m.Columns != o.Elements {
					t.Errorf("%+v of %d elements", m, o.Elements)
				}
			}
			if got := r.share * float64(elements); got != 1<<20+5100 {
				t.Errorf("%s in %d bytes: %d elements are a share of %v", u.Kind(), bytes, elements, r.share)
			}
			if r.share > 1 {
				cut++
			}
			var keep placed
			launches, err := r.prepare(&keep, u)
			must(t, err)
			if end := keep.end(t, space); end > bytes || len(launches) == 0 || len(launches) > mostCopies {
				t.Errorf("%s in %d bytes: %d copies end at %d", u.Kind(), bytes, len(launches), end)
			}
		}
		if _, err := newUpdateRoom(lib, u, runtime.Span{Bytes: 256}, all); err == nil {
			t.Errorf("%s: 256 bytes have room", u.Kind())
		}
	}
	if cut < 5 {
		t.Errorf("%d spaces were too small: a poor test", cut)
	}
}

// placed keeps the operands of all updates.
type placed struct{ all []kernels.UpdateOperands }

func (*placed) UpdateWorkspace(kernels.Update, kernels.Matrix) (int64, error) { return 0, nil }

func (*placed) PrepareGuard(kernels.Guard, kernels.GuardOperands) (runtime.Launch, error) {
	return nil, errors.ErrUnsupported
}

func (p *placed) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	p.all = append(p.all, all...)
	return host.Func{Name: "update"}, kernels.CheckUpdates(u, all)
}

// end returns the end of the last operand; tensors must lie apart, in the space.
func (p *placed) end(t *testing.T, space runtime.Span) (end int64) {
	t.Helper()
	var seen []runtime.Span
	for _, o := range p.all {
		for _, s := range append([]runtime.Span{o.Param, o.Grad}, o.States...) {
			for _, other := range seen {
				if s.Overlaps(other) {
					t.Fatalf("%v and %v overlap", s, other)
				}
			}
			if s.Overlaps(o.Scalars) || s.Overlaps(o.Workspace) || s.Space != space.Space {
				t.Fatalf("%v, scalars at %v, workspace at %v", s, o.Scalars, o.Workspace)
			}
			seen, end = append(seen, s), max(end, s.End())
		}
	}
	return end
}

// Factors are medians of rounds by way, and never below 1: a machine that is slower in one round is so in both of its times.
func TestHostContentionIsWritten(t *testing.T) {
	t.Parallel()
	b := &hostBesides{
		updates: [len(besideWays)][]float64{{2, 4, 9}, {3, 6, 9}, {1, 1, 20}, {8, 16, 9}},
		alone:   [2][]float64{{12}, {10}}, beside: [2][]float64{{8}, {20}},
	}
	c := &chain.Chain{}
	b.write(c)
	if *c.HostUpdatesBeside != (chain.Beside{1.5, 1, 4}) || *c.CopiesBesideHostUpdates != (chain.CopiesBeside{1.5, 1}) {
		t.Errorf("updates %v, copies %v", *c.HostUpdatesBeside, *c.CopiesBesideHostUpdates)
	}
}

// Factors of steps and updates are medians of rounds, and never below 1.
func TestOpContentionIsWritten(t *testing.T) {
	t.Parallel()
	b := &opBesides{steps: [2][]float64{{2, 20, 9}, {3, 30, 9}}, updates: [2][]float64{{5}, {4}}}
	c := &chain.Chain{}
	if b.write(c); *c.OpsBesideHostUpdates != 1.5 || *c.HostUpdatesBesideOps != 1 {
		t.Errorf("ops %v, updates %v", *c.OpsBesideHostUpdates, *c.HostUpdatesBesideOps)
	}
}

// Copies beside updates on the host have windows of their own.
func TestCopiesBesideUpdatesLieApart(t *testing.T) {
	t.Parallel()
	const bytes = 1 << 20
	r := newRig(t, testModel(t), host.Config{}, nil)
	must(t, r.dev.Reserve(bytes, bytes))
	m := &updateMeter{target: r.on, arena: bytes, host: bytes}
	for bandwidth, most := range map[float64]int64{1e12: bytes / 4, 1e7: 1e4, 1: firstProbe} {
		copies, err := m.copiesBeside(bandwidth)
		must(t, err)
		spans := []runtime.Span{{Space: runtime.Host, Bytes: bytes / 2}} // where updates are
		for _, d := range copies {
			if d.bytes > most || d.bytes <= 0 || d.bytes > min(d.dst.Bytes, d.src.Bytes) {
				t.Errorf("copies of %d bytes at %v B/s", d.bytes, bandwidth)
			}
			for _, s := range []runtime.Span{d.dst, d.src} {
				if slices.ContainsFunc(spans, s.Overlaps) || s.End() > bytes || s.Offset < 0 {
					t.Errorf("%v is not apart from %v", s, spans)
				}
				spans = append(spans, s)
			}
		}
		if len(copies) != 2 || copies[chain.ToHost].dst.Space != runtime.Host || copies[chain.ToDevice].dst.Space != runtime.Arena {
			t.Errorf("%d copies", len(copies))
		}
	}
}

// Measurements of updates go through as much as a step's updates do, beyond the largest cache, and through no less than those of the link.
func TestRoomOfUpdates(t *testing.T) {
	t.Parallel()
	class := func(elements int64) []*updateClass {
		return []*updateClass{{layers: []int{1, 2}, updates: []kernels.UpdateOperands{{Elements: elements}}}}
	}
	most := max(mostWindow, 2*cores.LargestCache())
	for elements, want := range map[int64]int64{1: mostWindow, 1 << 22: max(mostWindow, min(2*4*4<<22, most)), 1 << 32: most} {
		if got := updateRoomBytes(kernels.AdamW{}, class(elements)); got != want {
			t.Errorf("two layers of %d elements: %d, want %d", elements, got, want)
		}
	}
}
