package cores_test

import (
	"runtime"
	"testing"

	"plimsoll/internal/cores"
)

func TestLentProcessorsAreNoCores(t *testing.T) {
	// Serial: it counts allocations.
	before, count := runtime.GOMAXPROCS(0), cores.Count()
	cores.Lend(3)
	cores.Lend(2)
	if got := runtime.GOMAXPROCS(0); got != before+5 {
		t.Errorf("%d processors with 5 lent, %d before", got, before)
	}
	if got := cores.Count(); got != count {
		t.Errorf("%d cores with processors lent, %d before", got, count)
	}
	cores.Lend(-5)
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors when all are back, %d before", got, before)
	}
	testing.AllocsPerRun(1, func() { cores.Lend(2) }) // puts back what GOMAXPROCS was, also for what was lent meanwhile; two calls
	if got := cores.Count(); got != count {
		t.Errorf("%d cores when somebody else has set GOMAXPROCS, %d before", got, count)
	}
	cores.Lend(-4)
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors when all are back, %d before", got, before)
	}
}
