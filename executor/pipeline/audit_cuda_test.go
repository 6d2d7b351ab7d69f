//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	"plimsoll/planner/pipeline"
	cuda "plimsoll/runtime/cuda/driver"
)

// An audited step of GPUs holds the planned peak.
func TestGPUsHoldThePlannedPeak(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	w, err := Compile(m, gpus(t, 1)[0].Library, optimizer)
	must(t, err)
	c := costs(w, 2, 1)
	plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 4})
	needs, err := Needs(w, c, plan, Options{})
	must(t, err)
	e, _ := guarded(t, gpus(t, 2), w, c, plan, 2, Options{Audit: true})
	must(t, e.Run(t.Context(), 8))
	if len(e.Audited()) != 2 {
		t.Errorf("%d devices are audited", len(e.Audited()))
	}
	for _, a := range e.Audited() {
		if a.PeakBytes != needs[a.Device].Peak || a.ExtentBytes > needs[a.Device].Extent {
			t.Errorf("audited %+v, planned %+v", a, needs[a.Device])
		}
	}
}
