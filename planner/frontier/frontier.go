// Package frontier follows how the best makespan falls as memory grows. It knows no strategy: it asks a function.
package frontier

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Point is a sequence that nothing else on the curve beats: with less memory all are slower.
type Point struct {
	Memory   int64   // bytes, the sequence's peak
	Makespan float64 // seconds
	By       string  // the strategy that found it
	Bound    float64 // seconds: nothing is faster, as the strategy has proved; 0: it proved nothing
	Sequence schedule.Sequence
}

// Solve plans for a limit. Errors: *pipeline.InfeasibleError when it is too small.
type Solve func(ctx context.Context, memory int64) (Point, error)

// span is a part of the memory axis, between two limits that were asked for. The makespans of its ends bound those
// inside.
type span struct {
	low, high   int64
	slow, quick float64 // makespans at the ends
}

// area is the possible gain of asking inside.
func (s span) area() float64 {
	if s.high-s.low < 2 {
		return 0
	}
	return float64(s.high-s.low) * (s.slow - s.quick)
}

// Sample asks for at most the given number of limits up to high, and returns a monotone curve: memory rising, makespans
// falling. The first limits are high and the smallest that works, which the refusal of least names. Each next limit
// halves the interval in which the curve can still change most: the largest product of memory and makespan differences.
// The same answers give the same curve.
//
// Errors: those of solve, *pipeline.InfeasibleError when even high is too small.
func Sample(ctx context.Context, solve Solve, least, high int64, limits int) ([]Point, error) {
	s := sampler{Solve: solve}
	top, err := s.ask(ctx, high)
	if err != nil {
		return nil, err
	}
	first, err := s.first(ctx, least, high)
	if err != nil {
		return nil, err
	}
	s.spans = []span{{first.Memory, top.Memory, first.Makespan, top.Makespan}}
	for n := 2; n < limits; n++ {
		widest := slices.MaxFunc(s.spans, func(a, b span) int { return cmp.Compare(a.area(), b.area()) })
		if widest.area() <= 0 {
			break
		}
		if err := s.split(ctx, widest); err != nil {
			return nil, err
		}
	}
	return Monotone(s.points), nil
}

type sampler struct {
	Solve
	points []Point
	spans  []span
}

func (s *sampler) ask(ctx context.Context, memory int64) (Point, error) {
	p, err := s.Solve(ctx, memory)
	if err == nil {
		s.points = append(s.points, p)
	}
	return p, err
}

// first asks for the smallest limit that works. A strategy may know a smaller one than it finds a sequence for; then the
// curve begins where it does.
func (s *sampler) first(ctx context.Context, least, high int64) (Point, error) {
	p, err := s.ask(ctx, least)
	for range 3 {
		small, ok := errors.AsType[*pipeline.InfeasibleError](err)
		if !ok || small.Smallest > high {
			break
		}
		p, err = s.ask(ctx, small.Smallest)
	}
	if _, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		return s.points[0], nil
	}
	return p, err
}

// split asks in the middle of a span.
func (s *sampler) split(ctx context.Context, at span) error {
	i := slices.Index(s.spans, at)
	middle := at.low + (at.high-at.low)/2
	p, err := s.ask(ctx, middle)
	if _, refused := errors.AsType[*pipeline.InfeasibleError](err); refused {
		p, err = Point{Memory: middle, Makespan: at.slow}, nil
	}
	if err != nil {
		return err
	}
	time := min(max(p.Makespan, at.quick), at.slow)
	s.spans = slices.Replace(s.spans, i, i+1,
		span{at.low, min(p.Memory, middle), at.slow, time}, span{middle, at.high, time, at.quick})
	return nil
}

// Monotone leaves out every point that another one beats with as little memory, and sorts the rest by memory.
func Monotone(points []Point) (curve []Point) {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Makespan, b.Makespan))
	})
	for _, p := range points {
		if n := len(curve); n == 0 || p.Makespan < curve[n-1].Makespan {
			curve = append(curve, p)
		}
	}
	return curve
}

// At returns the point that serves a limit; false when the limit is below the first.
func At(curve []Point, memory int64) (Point, bool) {
	i, exact := slices.BinarySearchFunc(curve, memory, func(p Point, m int64) int { return cmp.Compare(p.Memory, m) })
	if !exact {
		i--
	}
	if i < 0 {
		return Point{}, false
	}
	return curve[i], true
}

// Slope returns how many seconds each further byte saves on the way to the next point; 0 at the last one.
func Slope(curve []Point, i int) float64 {
	if i+1 >= len(curve) {
		return 0
	}
	return (curve[i].Makespan - curve[i+1].Makespan) / float64(curve[i+1].Memory-curve[i].Memory)
}

// Gain returns which part of its makespan a limit loses when so many bytes are added: 0.05 is five per cent. It is 0
// below the first point.
func Gain(curve []Point, memory, more int64) float64 {
	now, ok := At(curve, memory)
	if !ok || now.Makespan == 0 {
		return 0
	}
	then, _ := At(curve, memory+more)
	return 1 - then.Makespan/now.Makespan
}
