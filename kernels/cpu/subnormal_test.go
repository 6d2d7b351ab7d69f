package cpu

import (
	"math"
	goruntime "runtime"
	"slices"
	"testing"

	"plimsoll/kernels"
)

// subnormal is the largest float32 that is one.
const subnormal = 0x007fffff

// Every worker of a launch takes subnormal operands for zeros and returns zeros for subnormal results; the thread that ran it computes
// with them again.
func TestWorkersFlushSubnormals(t *testing.T) {
	t.Parallel()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	tiny, least := math.Float32frombits(subnormal), math.Float32frombits(0x00800000) // and the least that is none
	c := kernels.Call{Op: kernels.Multiply{}, In: []kernels.Desc{kernels.F32(64, 16384), kernels.F32(64, 16384)}}
	n := 64 * 16384
	for _, in := range []struct {
		name string
		a, b float32
		want float32
	}{{"operands", tiny, 1 << 30, 0}, {"results", least, 0.5, 0}, {"normal ones", least, 2, 2 * least}} {
		for _, path := range testedPaths() {
			for _, threads := range []int{1, 2} {
				got := run(t, newLibrary(t, path, threads), c, data{opX: slices.Repeat([]float32{in.a}, n), opX1: slices.Repeat([]float32{in.b}, n)})
				if i := slices.IndexFunc(got[opY], func(y float32) bool { return y != in.want }); i >= 0 {
					t.Errorf("%s, %v, %d threads: element %d is %g, want %g", in.name, path, threads, i, got[opY][i], in.want)
				}
				if x := tiny * float32(threads) / float32(threads); x != tiny {
					t.Fatalf("%s, %v, %d threads: the caller computes %g for %g", in.name, path, threads, x, tiny)
				}
			}
		}
	}
}

// BenchmarkSubnormals: a convolution whose products are subnormal beside one whose are not.
func BenchmarkSubnormals(b *testing.B) {
	c := kernels.Call{Op: kernels.Conv2D{Out: 64, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, In: []kernels.Desc{kernels.F32(4, 28, 28, 64)}}
	for name, x := range map[string]float32{"normal": 0.7, "subnormal": 1e-21} {
		b.Run(name, func(b *testing.B) {
			l := newLibrary(b, fastest(), 1)
			r := newRig(b, l, c, nil)
			for _, u := range r.uses {
				spread(r.bytes(u), math.Float32bits(x))
			}
			w := r.prepare(b, l)
			for b.Loop() {
				_ = w.Run()
			}
		})
	}
}
