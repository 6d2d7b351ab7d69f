package train

import (
	"math"
	"testing"

	"plimsoll/executor"
)

// The time in which a device did not compute is divided among reasons, and their shares add up.
func TestIdleSharesAddUp(t *testing.T) {
	t.Parallel()
	var i idleness
	for range 2 { // of 10 s each, of which 5 are computed
		i.add(&executor.Times{Busy: 5, Upload: 1, Sequence: 6, Update: 1}, 500e6)
	}
	got := *i.shares(20)
	want := Idle{Share: 0.5, Data: 0.05, Batch: 0.1, Copies: 0.2, Host: 0.15}
	for k, pair := range [][2]float64{{got.Share, want.Share}, {got.Data, want.Data}, {got.Batch, want.Batch}, {got.Copies, want.Copies}, {got.Host, want.Host}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("figure %d of %+v, want %+v", k, got, want)
		}
	}
}
