package measure

import (
	"testing"

	"plimsoll/runtime"
)

// Gradients reads the gradients of the latest step, by the names of parameters.
func (t *OpTimer) Gradients(tb testing.TB) map[string][]byte {
	tb.Helper()
	all := map[string][]byte{}
	for l, layer := range t.Model.Layers {
		for _, q := range layer.Params() {
			if q.Trained {
				of := t.Static.Layers[l].Grads.Part(q.Grad.Offset, q.Desc.Bytes())
				all[q.Name] = make([]byte, of.Bytes)
				must(tb, t.device.(runtime.Inspector).Peek(of, all[q.Name]))
			}
		}
	}
	return all
}
