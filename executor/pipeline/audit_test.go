package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plimsoll/executor/internal/canary"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// An audited step holds the planned peak of every device, writes up to the last byte of it, and changes no bit of the run.
// Only this test finds a planned peak of looped-bfs, interleaved or dualpipe-v that an audited step misses by a byte.
func TestAuditedStepsHoldThePlannedPeak(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	devices := 0
	for i, x := range flushing {
		c := costs(w, x.devices, 1)
		plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 8})
		needs, err := Needs(w, c, plan, Options{})
		must(t, err)
		var want []pipelinetest.Tensor
		for _, audit := range []bool{false, true} {
			e, out := guarded(t, targets(t, x.devices, host.Config{Chaos: uint64(i + 1)}), w, c, plan, 2, Options{Audit: audit})
			must(t, e.Run(t.Context(), 2*plan.Repeats()))
			out.Tensors = tensors(t, e)
			if audit == (len(e.Audited()) == 0) {
				t.Errorf("%s: audited %v: %v", x.name, audit, e.Audited())
			}
			if want == nil {
				want = out.Tensors
			} else if d := pipelinetest.FirstDifference(want, out.Tensors); d != "" {
				t.Errorf("%s: %s", x.name, d)
			}
			for _, a := range e.Audited() {
				need := needs[a.Device]
				if a.PeakBytes != need.Peak || a.ExtentBytes > need.Extent || a.ExtentBytes <= need.Extent-2*kernels.Alignment {
					t.Errorf("%s on %d devices: audited %+v, planned %+v", x.name, x.devices, a, need)
				}
				devices++
			}
		}
	}
	if devices < 25 {
		t.Errorf("%d devices", devices)
	}
}

// stray is a library one of whose kernels also writes a byte of the arena.
type stray struct {
	kernels.Library
	memory *host.Device
	at     int64
	chosen func(kernels.Call) bool
}

func (l *stray) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	inner, err := l.Library.Prepare(c, o)
	if err != nil || !l.chosen(c) {
		return inner, err
	}
	b, err := l.memory.Bytes(runtime.Span{Offset: l.at, Bytes: 1})
	return host.Func{Name: inner.Kernel(), Do: func() error {
		b[0] = 1
		return inner.(host.Launch).Run()
	}}, err
}

// A kernel that writes where its minibatch holds nothing is found, at the task behind which that shows.
func TestAuditsFindStrayWrites(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 4})
	needs, err := Needs(w, c, plan, Options{})
	must(t, err)
	const beyond = 1 << 12
	for name, at := range map[string]int64{"behind all": needs[1].Extent + beyond/2, "where the last microbatch will be": needs[1].Peak - needs[1].Working - needs[1].InFlight} {
		on := targets(t, 2, host.Config{})
		on[1].Library = &stray{on[1].Library, on[1].Device.(*host.Device), at, func(c kernels.Call) bool {
			return c.Op.Kind() == (kernels.SoftmaxCrossEntropy{}).Kind() && c.Pass == kernels.Forward
		}}
		_, err := New(w, on, c, plan, Options{Feed: still{}, Rate: rate, Audit: true, Limits: []int64{0, needs[1].Extent + beyond}})
		var found *canary.WrittenError
		var task *TaskError
		if !errors.As(err, &found) || !errors.As(err, &task) || found.Byte != at || task.Device != 1 || !strings.Contains(err.Error(), fmt.Sprintf("byte %d", at)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// New refuses to audit a plan without steps, and a device with memory that nobody can inspect.
func TestAuditsThatCannotBe(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 2, 1)
	for _, x := range []struct {
		name   string
		want   error
		device func(runtime.Device) runtime.Device
	}{
		{"1f1b*", order.ErrPlan, func(d runtime.Device) runtime.Device { return d }},
		{"1f1b-flush", ErrNotInspectable, func(d runtime.Device) runtime.Device { return struct{ runtime.Device }{d} }},
	} {
		plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 4})
		on := targets(t, 2, host.Config{})
		for d := range on {
			on[d].Device = x.device(on[d].Device)
		}
		if _, err := New(w, on, c, plan, Options{Feed: still{}, Rate: rate, Audit: true}); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
}
