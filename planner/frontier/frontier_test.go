package frontier

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// steps is a solver whose best makespans are known: a curve.
func steps(curve []Point) Solve {
	return func(_ context.Context, memory int64) (Point, error) {
		p, ok := At(curve, memory)
		if !ok {
			return Point{}, &pipeline.InfeasibleError{Memory: memory, Smallest: curve[0].Memory}
		}
		return p, nil
	}
}

func randomCurve(rnd *rand.Rand) (curve []Point) {
	memory, time := 1+rnd.Int64N(50), 100+100*rnd.Float64()
	for range 1 + rnd.IntN(12) {
		curve = append(curve, Point{Memory: memory, Makespan: time, Sequence: schedule.Sequence{{Layer: len(curve)}}})
		memory += 1 + rnd.Int64N(200)
		time -= 0.1 + 8*rnd.Float64()
	}
	return curve
}

// With enough limits the whole curve comes back; with few, points of it, the first and the last among them.
func TestSample(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		want := randomCurve(rnd)
		high := want[len(want)-1].Memory + rnd.Int64N(10)
		got, err := Sample(t.Context(), steps(want), 0, high, 500)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
		asked := 0
		count := func(ctx context.Context, m int64) (Point, error) {
			asked++
			return steps(want)(ctx, m)
		}
		few, err := Sample(t.Context(), count, want[0].Memory, high, 4)
		if err != nil || asked > 4 || !reflect.DeepEqual(few[0], want[0]) || !reflect.DeepEqual(few[len(few)-1], want[len(want)-1]) {
			t.Fatalf("%d asked: got %v, %v, of %v", asked, few, err, want)
		}
		for _, p := range few {
			if !slices.ContainsFunc(want, func(w Point) bool { return reflect.DeepEqual(p, w) }) {
				t.Fatalf("%v is not on %v", p, want)
			}
		}
	}
}

// A heuristic may be slower with more memory, or refuse more than it should: the curve never rises.
func TestSampleOfAnUnsteadyStrategy(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		solve := func(_ context.Context, m int64) (Point, error) {
			if m < 50 || m < 1000 && rnd.IntN(4) == 0 {
				return Point{}, &pipeline.InfeasibleError{Memory: m, Smallest: min(m+1+rnd.Int64N(100), 1000)}
			}
			return Point{Memory: m - rnd.Int64N(20), Makespan: 1 + rnd.Float64()}, nil
		}
		curve, err := Sample(t.Context(), solve, 0, 1000, 30)
		if err != nil || len(curve) == 0 {
			t.Fatal(curve, err)
		}
		for i := range curve[1:] {
			if a, b := curve[i], curve[i+1]; b.Memory <= a.Memory || b.Makespan >= a.Makespan {
				t.Fatalf("%v before %v", a, b)
			}
		}
	}
}

func TestSampleErrors(t *testing.T) {
	t.Parallel()
	_, err := Sample(t.Context(), steps([]Point{{Memory: 100, Makespan: 1}}), 0, 50, 5)
	if _, ok := errors.AsType[*pipeline.InfeasibleError](err); !ok {
		t.Errorf("a top that is too small: %v", err)
	}
	broken := errors.New("broken")
	for failAt := 1; failAt <= 4; failAt++ {
		asked := 0
		_, err := Sample(t.Context(), func(ctx context.Context, m int64) (Point, error) {
			if asked++; asked == failAt {
				return Point{}, broken
			}
			return Point{Memory: m, Makespan: 1000 - float64(m)}, nil
		}, 10, 500, 9)
		if !errors.Is(err, broken) {
			t.Errorf("failed at %d: %v", failAt, err)
		}
	}
}

func TestWhatMoreMemoryBuys(t *testing.T) {
	t.Parallel()
	curve := []Point{{Memory: 100, Makespan: 10}, {Memory: 150, Makespan: 8}, {Memory: 250, Makespan: 7}}
	for i, want := range []float64{0.04, 0.01, 0} {
		if got := Slope(curve, i); got != want {
			t.Errorf("slope %d is %v, want %v", i, got, want)
		}
	}
	for _, k := range []struct {
		memory, more int64
		want         float64
	}{{99, 1000, 0}, {100, 49, 0}, {100, 50, 0.2}, {149, 1, 0.2}, {150, 100, 0.125}, {100, 1000, 0.3}, {250, 1, 0}} {
		if got := Gain(curve, k.memory, k.more); got < k.want-1e-12 || got > k.want+1e-12 {
			t.Errorf("gain of %d more than %d is %v, want %v", k.more, k.memory, got, k.want)
		}
	}
}
