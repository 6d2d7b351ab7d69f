//go:build cuda && linux && amd64

package pipeline

import (
	"testing"

	cuda "plimsoll/runtime/cuda/driver"
)

// GPUs clip as one GPU does, bit for bit.
func TestGPUsClipAsOne(t *testing.T) {
	if status := cuda.Load(); status.Err != nil {
		t.Skip(status.Err)
	}
	m := plainModel(t)
	w, err := Compile(m, gpus(t, 1)[0].Library, optimizer)
	must(t, err)
	expectClipping(t, m, w, []flushPlan{{"1f1b-flush", 2, false}, {"chimera", 4, false}}, gpus)
}
