package executor

import (
	"testing"

	"plimsoll/runtime/host"
)

// A step reads its own batch alone: what is put into the other one while it runs is the next step's, whatever the order of events,
// and an evaluation between two steps leaves it alone when it takes the batch that was used.
func TestTheNextBatchIsFilledBesideAStep(t *testing.T) {
	t.Parallel()
	const steps = 5
	for _, config := range []host.Config{{}, {Memory: testMemory, HostMemory: testMemory, Chaos: 7}} {
		r := newRig(t, plainModel(t), config, nil)
		want := train(t, r.executor(t, r.StoreAll(), Options{}), steps)
		r = newRig(t, plainModel(t), config, nil)
		e := r.executor(t, r.StoreAll(), Options{Timed: true})
		logits := make([]float32, 4*5)
		var got outcome
		fillBatch(t, e, 0)
		for i := range steps {
			must(t, e.Begin(uint64(i), 0.1))
			e.Swap()
			fillBatch(t, e, uint64(i)+1)
			res, err := e.End()
			must(t, err)
			got.losses = append(got.losses, res.Loss)
			if res.Busy <= 0 || res.Busy > res.Device || res.Upload > res.Device {
				t.Errorf("step %d is busy for %v s of %v s, %v s of which are the batch's", i, res.Busy, res.Device, res.Upload)
			}
			e.Swap()
			fillBatch(t, e, 1000)
			must(t, e.Predict(logits))
			e.Swap()
		}
		got.read(t, e)
		if d := firstDifference(want, got); d != "" {
			t.Errorf("%+v: %s differs", config, d)
		}
	}
}
