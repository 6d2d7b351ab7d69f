package offload

import (
	"math"
	"sort"
)

// fractional evaluates selections when memory is freed, and taken, while a transfer runs: the equations of the
// thesis, section 3.3.2, with errata 2 and 3 of the chapter. Schedules are ordered and no-wait: offloads in
// increasing order as early as possible, prefetches in decreasing order as late as possible.
//
// The equations hold for a duplex link as well. The last activation to leave is the first to come back, so that
// in this order the two directions are never busy at once.
type fractional struct {
	*costs
	// tailF and tailB hold the ops next to the loss, from the loss on; see junction.
	tailF, tailB []tail
	// Element aheadF[i] is the most that F_i..F_n need beside A_i + Δ_F⁺, less the bytes that the link carries until
	// they start. The same for backwards is aheadB. The most that all of them need when everything below has gone is
	// ahead.
	aheadF, aheadB, ahead []float64
	work                  []float64 // the bytes that the link carries during F_i..F_n and B_n..B_i
}

// state is the state that the ops so far leave to the rest, section 3.3.2; all in bytes.
type state struct {
	kept              float64 // A_i: saved sets below i-1 that stay on the device
	forward, backward float64 // Δ_F, Δ_B: bytes in the queue of the link; negative: how long it has had none
	idle              float64 // the idle time so far, ε·β
}

// tail is an op of the junction.
type tail struct {
	distance float64 // U_j·β, what the link carries between the junction and the op
	need     float64 // the largest of 𝓡 - U·β among this op and those nearer to the junction
}

func newFractional(k *costs) *fractional {
	f := &fractional{costs: k}
	f.tailF, f.tailB = f.tail(k.needF, k.uF), f.tail(k.needB, k.uB)
	f.aheadF, f.aheadB = f.look(k.needF, k.uF), f.look(k.needB, k.uB)
	f.ahead, f.work = make([]float64, k.n+2), make([]float64, k.n+2)
	f.ahead[k.n+1] = math.Inf(-1)
	for i := k.n; i >= 1; i-- {
		f.ahead[i] = k.saved[i-1] + max(k.need(i), f.ahead[i+1])
		f.work[i] = f.work[i+1] + (k.uF[i]+k.uB[i])*k.bandwidth
	}
	return f
}

func (f *fractional) tail(need, seconds []float64) []tail {
	var ops []tail
	distance, most, above := 0.0, math.Inf(-1), 0.0
	for j := f.n; j >= 1; j-- {
		above += f.saved[j] // 𝓡 counts what the ops before have added to, or freed from, M_F or M_B
		most = max(most, need[j]-above-distance)
		ops = append(ops, tail{distance, most})
		distance += seconds[j] * f.bandwidth
	}
	return ops
}

func (f *fractional) look(need, seconds []float64) []float64 {
	ahead := make([]float64, f.n+2)
	ahead[f.n+1] = math.Inf(-1)
	for i := f.n; i >= 1; i-- {
		ahead[i] = f.saved[i-1] + max(need[i], ahead[i+1]-seconds[i]*f.bandwidth)
	}
	return ahead
}

// step runs F_i and B_i with the given bytes of ā_{i-1} offloaded: all of them, none, or, in the fully fractional
// relaxation, a part. It reports false when the ops do not fit even when everything offloaded is away (3.8, 3.9).
func (f *fractional) step(s state, i int, away float64) (state, bool) {
	size := f.saved[i-1]
	room := f.memory - s.kept - size
	if f.need(i) > room {
		return s, false
	}
	idleF := max(f.needF[i]+max(s.forward, 0)-room, 0) // (3.6)
	idleB := max(f.needB[i]+max(s.backward, 0)-room, 0)
	next := s
	if away > 0 {
		next.forward = max(s.forward, 0) + away // (3.10); else (3.13)
	}
	next.kept += size - away // (3.12), (3.15)
	next.forward -= idleF + f.uF[i]*f.bandwidth
	next.backward -= idleB + f.uB[i]*f.bandwidth
	next.idle += idleF + idleB
	if away > 0 {
		next.backward = max(next.backward, 0) + away // (3.11); else (3.14)
	}
	return next, true
}

// junction returns ε_G·β, the idle time between F_n and B_n: (3.16), (3.17) and the two simple cases.
func (f *fractional) junction(s state) float64 {
	switch {
	case s.forward <= 0 && s.backward <= 0:
		return 0
	case s.forward > 0 && s.backward > 0:
		return s.forward + s.backward
	case s.forward > 0:
		return f.overlap(f.tailB, s.kept, s.forward, -s.backward)
	}
	return f.overlap(f.tailF, s.kept, s.backward, -s.forward)
}

// overlap returns the idle time when the rest of the transfers of one phase run beside the ops of the other, as long
// as that one leaves the link free.
func (f *fractional) overlap(ops []tail, kept, rest, free float64) float64 {
	idle := max(rest-free, 0)
	if k := sort.Search(len(ops), func(k int) bool { return ops[k].distance >= free }); k > 0 {
		idle = max(idle, ops[k-1].need-f.memory+kept+rest+f.saved[f.n])
	}
	return idle
}

// atLeast returns a bound of the idle time that layers i..n and the junction add to a state, whatever is offloaded.
// Forwards and backwards wait until enough has gone, each phase for itself. The link carries, besides its queues,
// twice the bytes that cannot stay.
func (f *fractional) atLeast(s state, i int) float64 {
	if i > f.n {
		return f.junction(s)
	}
	idleF := max(s.kept+max(s.forward, 0)+f.aheadF[i]-f.memory, 0)
	idleB := max(s.kept+max(s.backward, 0)+f.aheadB[i]-f.memory, 0)
	away := max(s.kept+f.ahead[i]-f.memory, 0)
	return max(idleF+idleB, s.forward+s.backward+2*away-f.work[i])
}

// evaluate returns the idle bytes of a selection, infinite when it does not fit.
func (f *fractional) evaluate(sel []bool) float64 {
	s, ok := state{}, true
	for i := 1; i <= f.n && ok; i++ {
		away := 0.0
		if sel[i-1] {
			away = f.saved[i-1]
		}
		s, ok = f.step(s, i, away)
	}
	if !ok {
		return math.Inf(1)
	}
	return s.idle + f.junction(s)
}
