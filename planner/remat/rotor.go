package remat

// rotor: the best memory-persistent sequence when memory is counted in S slots.
//
// Paper: A. Shilova, thesis, chapter 2, Theorem 6, Algorithms 3 and 4; S = 500 slots as in section 2.4.2. Each size is rounded up to slots
// of memory/S bytes, so that a sequence may be missed that would fit to the byte. It is missed at limits close to the smallest; elsewhere
// its loss costs up to a few per cent of time. Strategy rotor-exact misses none.
//
// Complexity: O(n^3·S) additions at most, O(n^2·S) memory. Three things keep the additions far below that and change no value that a best
// sequence is made of. First, rows are visited only where a split can still lower them (lower). Second, a cost counts as infeasible above
// the cost of a known sequence less the cost that must arise elsewhere (ceiling). Third, tiles stay in the cache (tile).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// DefaultSlots is S of the thesis; chains for which that makes too large a table get fewer, down to fewestSlots.
const DefaultSlots = 500

const fewestSlots = 50

func defaultSlots(n int) int { return max(fewestSlots, min(DefaultSlots, maxCells/(n*(n+1)/2)-1)) }

func solveRotor(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	if p.Slots < 0 || p.Slots > maxCells {
		return nil, fmt.Errorf("%w: %d slots: rotor takes 1 to %d", ErrOptions, p.Slots, maxCells)
	}
	k, err := newCosts(p.Chain)
	if err != nil {
		return nil, err
	}
	slots := cmp.Or(p.Slots, defaultSlots(k.n))
	table, err := k.slotted(ctx, p.Memory, slots)
	if err != nil {
		return nil, err
	}
	if seq := table.sequence(); seq != nil {
		return seq, nil
	}
	return nil, rotorInfeasible(ctx, k, p, slots)
}

// slotted returns the table for a limit; it may be one in which nothing fits.
func (k *costs) slotted(ctx context.Context, memory int64, slots int) (*slotted, error) {
	if memory < k.a[0] {
		return &slotted{costs: k}, nil
	}
	k = k.inSlots(memory, slots)
	if _, _, err := tableSize(k, slots); err != nil {
		return nil, err
	}
	// With layers in groups the table is small, and its sequence bounds what is worth looking at.
	const group = 4
	coarse, err := solveSlotted(ctx, k.grouped(group), slots, infinite)
	if err != nil {
		return nil, err
	}
	return solveSlotted(ctx, k, slots, coarse.excess())
}

func solveSlotted(ctx context.Context, k *costs, slots int, cut int64) (*slotted, error) {
	table, err := newSlotted(k, slots, cut)
	if err != nil {
		return nil, err
	}
	return table, table.solve(ctx)
}

// rotorInfeasible finds the smallest limit by bisection, between that of rotor-exact and the first larger one that is found to work. With
// a larger limit no size takes more slots, so a feasible limit's plan stays feasible. In long chains the bisection ends before the last
// byte.
//
// Errors: *pipeline.InfeasibleError; ErrOptions when no limit helps.
func rotorInfeasible(ctx context.Context, k *costs, p strategy.Problem, slots int) error {
	if fewest := k.leastSlots(ctx, 1<<62, slots); fewest > int64(slots) && ctx.Err() == nil {
		return fmt.Errorf("%w: %d slots are too few at any limit: the chain needs %d", ErrOptions, slots, fewest)
	}
	low := max(p.Memory, k.a[0]+k.least(ctx, false)-1)
	high, exact := firstThat(low, slots, mostFills/(k.n*k.n*k.n), func(memory int64) bool {
		return ctx.Err() != nil || k.leastSlots(ctx, memory, slots) <= int64(slots)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	table, err := k.refused().slotted(ctx, high, slots)
	if err != nil {
		return err
	}
	err = infeasible("rotor", p.Chain, p.Memory, high, table.sequence())
	if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		small.Found = !exact
	}
	return err
}

// mostFills bounds the work of a refusal, in entries of tables that least fills times the layers of an entry; fewestFills are always made.
const (
	mostFills   = 1 << 33
	fewestFills = 8
)

// firstThat returns the first number above low, which does not fit, that does, or one a little larger after so many calls. It looks in steps
// that double, from a part of low on, then bisects.
func firstThat(low int64, parts, calls int, fits func(int64) bool) (high int64, exact bool) {
	calls = max(calls, fewestFills)
	step := max(1, low/int64(parts))
	for high = low + step; !fits(high); high = low + step {
		low, step = high, 2*step
		calls--
	}
	for ; high-low > 1 && calls > 0; calls-- {
		if mid := low + (high-low)/2; fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high, high-low == 1
}

// leastSlots returns the least number of slots, of memory/slots bytes each, in which a sequence fits.
func (k *costs) leastSlots(ctx context.Context, memory int64, slots int) int64 {
	r := k.inSlots(memory, slots)
	return r.a[0] + r.least(ctx, false)
}

// least returns the least memory beside a_0 in which a persistent sequence fits, a plain one or any, by Theorem 6 without
// times. The result means nothing when the context has ended. O(n^3).
func (k *costs) least(ctx context.Context, plain bool) int64 {
	// By last and by first layer: what a split reads lies side by side.
	from, to := make([][]int64, k.n+1), make([][]int64, k.n+2)
	for l := 1; l <= k.n; l++ {
		from[l], to[l] = make([]int64, k.n+2), make([]int64, k.n+2)
	}
	for t := 1; t <= k.n && ctx.Err() == nil; t++ {
		for s := t; s >= 1; s-- {
			parts, rests := from[s], to[t]
			best := k.needAll(s, t)
			switch {
			case s < t && plain:
				best = math.MaxInt64
			case s < t:
				best = max(best, k.saved[s]+rests[s+1])
			}
			need := k.grad[t] + k.needFirst(s)
			for x := s; x < t && need < best; x++ {
				if x > s {
					need = max(need, k.grad[t]+k.needNext(x))
				}
				best = min(best, max(need, parts[x], k.a[x]+rests[x+1]))
			}
			parts[t], rests[s] = best, best
		}
	}
	return from[1][k.n]
}
