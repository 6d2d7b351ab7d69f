package joint

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/partition"
	"plimsoll/planner/pipeline/periodic"
)

// rivals returns the solvers that joint is never slower than: strategies, and its special cases.
func rivals(p *pipeline.Platform) map[string]solver {
	all := map[string]solver{"loadline": loadline.Strategies()[0].Solve}
	for _, s := range partition.Strategies() {
		all[s.Name] = s.Solve
	}
	delete(all, "balance")
	for name, devices := range map[string]int{"one device": 1, "data parallelism": p.Devices} {
		all[name] = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			r.Stages = []pipeline.Stage{{First: 1, Last: r.Chain.Len(), Devices: group{count: devices}.devices()}}
			return periodic.Star(ctx, name, r)
		}
	}
	return all
}

// duel is how joint compares with one of them.
type duel struct {
	both, faster, alone int
	log                 float64
}

// compare plans a request, compares with all rivals, and judges the plan.
func compare(t *testing.T, r pipeline.Request, duels map[string]*duel) {
	t.Helper()
	mine, err := solve(t.Context(), r)
	if err != nil && !errors.Is(err, pipeline.ErrInfeasible) {
		t.Fatal(err)
	}
	if err == nil {
		report, err := pipeline.Check(r.Chain, r.Platform, mine)
		if err != nil {
			t.Fatal(err)
		}
		if bound := mine.Predicted.LowerBound; report.PerMinibatch < bound*(1-1e-9) || !(bound >= 0) {
			t.Errorf("%v s a minibatch, the bound is %v", report.PerMinibatch, bound)
		}
	}
	if small := (*pipeline.InfeasibleError)(nil); errors.As(err, &small) {
		enough := r
		enough.Platform = r.Platform.WithMemory(small.Smallest)
		if _, err := solve(t.Context(), enough); err != nil {
			t.Errorf("with the smallest memory, %d: %v", small.Smallest, err)
		}
	}
	for name, solve := range rivals(r.Platform) {
		if duels[name] == nil {
			duels[name] = &duel{}
		}
		plan, rival := solve(t.Context(), r)
		if errors.Is(rival, pipeline.ErrPlatform) {
			continue // no link joins the devices of data parallelism
		}
		d := duels[name]
		switch {
		case rival != nil && !errors.Is(rival, pipeline.ErrInfeasible):
			t.Fatal(rival)
		case rival == nil && err != nil:
			t.Errorf("%v, %s has a plan", err, name)
		case rival != nil && err == nil:
			d.alone++
		case err == nil:
			x, y := mine.SecondsPerMinibatch(), plan.SecondsPerMinibatch()
			if x > y*(1+1e-9) {
				t.Errorf("%v s a minibatch, %s has %v", x, name, y)
			}
			if d.both++; x < y*(1-1e-9) {
				d.faster++
			}
			d.log += math.Log(y / x)
		}
	}
}

func tell(t *testing.T, duels map[string]*duel) {
	t.Helper()
	for name, d := range duels {
		t.Logf("%-16s %4d both, faster in %d, %.3f times as fast on the mean; %d joint alone", name, d.both, d.faster, math.Exp(d.log/float64(max(d.both, 1))), d.alone)
	}
}

// TestNeverSlower: no plan of another strategy, or of a special case, is faster when synchronization is counted.
// Only this test finds a plan of joint on four to six unlike devices that is slower than a rival's.
func TestNeverSlower(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 4))
	duels := map[string]*duel{}
	for range 300 {
		compare(t, request(rng, 7, 6), duels)
	}
	tell(t, duels)
	for name, d := range duels {
		if d.both < 100 || d.faster < 20 || d.alone < 10 && name != "loadline" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestSamePlan: the same request gives the same bytes, whichever of the plans that are compared is ready first.
func TestSamePlan(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(16, 6))
	plans := 0
	for range 60 {
		r := request(rng, 7, 6)
		r.Microbatches = 2 * r.Platform.Devices
		for _, s := range Strategies() {
			if r.Versions != "" && s.Type == pipeline.Flushing {
				continue
			}
			plan, err := s.Solve(t.Context(), r)
			if err != nil {
				continue
			}
			again, err := s.Solve(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			var x, y bytes.Buffer
			if err := errors.Join(plan.Encode(&x), again.Encode(&y)); err != nil {
				t.Fatal(err)
			}
			if read, err := pipeline.Decode(&x); err != nil || read.Predicted.LowerBound != plan.Predicted.LowerBound || !bytes.Equal(encoded(t, read), y.Bytes()) {
				t.Errorf("%v: another plan, or not as its file says: %v", r.Chain, err)
			}
			plans++
		}
	}
	if plans < 50 {
		t.Errorf("only %d plans", plans)
	}
}

func encoded(t *testing.T, p *pipeline.Plan) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestProfilesNeverSlower: the same on PipeDream's chains, on devices that are alike and on nodes of four.
// Only this test finds a plan of joint that is slower than a rival's on a real chain, or on links of two speeds.
func TestProfilesNeverSlower(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/chains/*.json")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for name, counts := range map[string][]int{"one level": {2, 4}, "two levels": {8}} {
		duels := map[string]*duel{}
		for _, file := range files {
			c, err := chain.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, devices := range counts {
				for _, memory := range []int64{4, 6, 16} {
					p := pipeline.NewPlatform(devices, memory<<30, 12e9)
					if name == "two levels" {
						p.Levels = []pipeline.Level{{Devices: 4, Bandwidth: 24e9}, {Devices: devices / 4, Bandwidth: 3e9}}
					}
					compare(t, pipeline.Request{Chain: c, Platform: p, Options: pipeline.Options{Accounting: pipeline.Saved}}, duels)
				}
			}
		}
		t.Log(name)
		tell(t, duels)
		if d := duels["loadline"]; d.both < 10 || d.faster < 8 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
