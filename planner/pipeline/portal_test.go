package pipeline_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

// skipped returns three stages on three devices, with one microbatch, at 1 byte/s: F = 1, B = 1, a = δ = 3 bytes. Two of these 3 bytes pass
// the stage in the middle.
//
//	F0 0-1, CF0 1-2, F1 2-3, CF1 3-4, F2 4-5, B2 5-6, CB1 6-7, B1 7-8, CB0 8-9, B0 9-10
//	portal: CF 2-4, CB 7-9
func skipped(t *testing.T) pipelinetest.Case {
	t.Helper()
	c := &chain.Chain{Name: "skip", InputBytes: 1, Layers: []chain.Layer{layer(1, 1, 3, 5), layer(1, 1, 3, 5), layer(1, 1, 3, 5)}}
	p := pipeline.NewPlatform(3, pipeline.NoLimit, 1)
	plan := &pipeline.Plan{
		Chain: "skip", Versions: pipeline.Flush, Microbatches: 1,
		Stages: []pipeline.Stage{{First: 1, Last: 1, Devices: []int{0}}, {First: 2, Last: 2, Devices: []int{1}}, {First: 3, Last: 3, Devices: []int{2}}},
		Tasks: []pipeline.Task{
			{Kind: F, Stage: 0, Device: 0}, {Kind: CF, Stage: 0, Device: 0, Start: 1}, {Kind: F, Stage: 1, Device: 1, Start: 2}, {Kind: CF, Stage: 1, Device: 1, Start: 3},
			{Kind: F, Stage: 2, Device: 2, Start: 4}, {Kind: B, Stage: 2, Device: 2, Start: 5}, {Kind: CB, Stage: 1, Device: 2, Start: 6}, {Kind: B, Stage: 1, Device: 1, Start: 7},
			{Kind: CB, Stage: 0, Device: 1, Start: 8}, {Kind: B, Stage: 0, Device: 0, Start: 9},
		},
	}
	out, err := pipeline.WithPortals(c, p, plan, []pipeline.Portal{{From: 0, To: 2, Bytes: 2}}, pipeline.Late)
	if err != nil {
		t.Fatal(err)
	}
	return pipelinetest.Case{Chain: c, Platform: p, Plan: out}
}

func TestPortalsOfASmallPlan(t *testing.T) {
	t.Parallel()
	x := skipped(t)
	report, err := pipeline.Check(x.Chain, x.Platform, x.Plan)
	if err != nil {
		t.Fatal(err)
	}
	n := len(x.Plan.Tasks)
	want := []pipeline.Task{{Kind: CF, Stage: 0, To: 2, Device: 0, Start: 2}, {Kind: CB, Stage: 0, To: 2, Device: 2, Start: 7}}
	if got := x.Plan.Tasks[n-2:]; got[0].String() != "CF0-2(0)" || got[0].Start != want[0].Start || got[1].String() != "CB0-2(0)" || got[1].Start != want[1].Start || got[1].Device != 2 {
		t.Errorf("messages %+v, want %+v", got, want)
	}
	// Weights 2*5 each. Buffers: stage 0 sends 1 and 2 bytes, stage 1 has 1 on each side, stage 2 gets 1 and 2; twice each, for
	// δ. Live: inputs of 1, 3 - 2 and 3 bytes.
	if peaks := []int64{10 + 6 + 1, 10 + 4 + 1, 10 + 6 + 3}; !slices.Equal(report.PerDevicePeak, peaks) || report.Makespan != 10 {
		t.Errorf("peaks %v, makespan %v, want %v and 10", report.PerDevicePeak, report.Makespan, peaks)
	}
	soon, err := pipeline.WithPortals(x.Chain, x.Platform, &pipeline.Plan{
		Chain: "skip", Versions: pipeline.Flush, Microbatches: 1, Stages: x.Plan.Stages, Tasks: x.Plan.Tasks[:n-2],
	}, x.Plan.Portals, pipeline.Soon)
	if err != nil || soon.Tasks[n-1].Start != 6 || soon.Tasks[n-2].Start != 2 {
		t.Errorf("gradients that go back soon: %v, %v", soon.Tasks[n-2:], err)
	}
}

func TestPlansWithPortalsThatCannotRun(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(p *pipeline.Plan){
		"CF of the portal from stage 0 to stage 2 is missing":          func(p *pipeline.Plan) { p.Tasks = slices.Delete(p.Tasks, 10, 11) },
		"CF0-2(0): a second one":                                       func(p *pipeline.Plan) { p.Tasks = append(p.Tasks, p.Tasks[10]) },
		"starts at 0.5 s for microbatch 0: it waits for task 0, F0(0)": func(p *pipeline.Plan) { p.Tasks[10].Start = 0.5 },
		"it waits for task 10, CF0-2(0), which ends at 4.5 s":          func(p *pipeline.Plan) { p.Tasks[10].Start = 2.5 },
		"it waits for task 11, CB0-2(0), which ends at 9.5 s":          func(p *pipeline.Plan) { p.Tasks[11].Start = 7.5 },
		"no portal from stage 1 to stage 2":                            func(p *pipeline.Plan) { p.Tasks[10].Stage = 1 },
		"it must pass a stage":                                         func(p *pipeline.Plan) { p.Portals[0].From = 1 },
		"to stage 3 of 3":                                              func(p *pipeline.Plan) { p.Portals[0].To = 3 },
		"a second one from stage 0 to stage 2":                         func(p *pipeline.Plan) { p.Portals = append(p.Portals, p.Portals[0]) },
		"carries 0 bytes":                                              func(p *pipeline.Plan) { p.Portals[0].Bytes = 0 },
		"whose message has 3":                                          func(p *pipeline.Plan) { p.Portals[0].Bytes = 4 },
	} {
		x := skipped(t)
		x.Plan.Portals = slices.Clone(x.Plan.Portals)
		spoil(x.Plan)
		if _, err := pipeline.Check(x.Chain, x.Platform, x.Plan); !errors.Is(err, pipeline.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	x := skipped(t)
	x.Plan.Platform = nil
	x.Platform.Pairs = map[[2]int]float64{{0, 2}: 0}
	if _, err := pipeline.Check(x.Chain, x.Platform, x.Plan); err == nil || !strings.Contains(err.Error(), "stages 0 and 2 are on devices 0 and 2, which no link joins") {
		t.Errorf("a portal without a link: %v", err)
	}
}

// Portals of random plans: what WithPortals returns keeps all rules, as the checker says and as the times of some periods
// say, laid out one beside the other.
func TestRandomPlansWithPortals(t *testing.T) {
	t.Parallel()
	placed, late, stretched, synchronized := 0, 0, 0, 0
	for seed := range uint64(1500) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		c := pipelinetest.Chain(rnd, 3+rnd.IntN(5), rnd.IntN(2) == 0)
		for i := range c.Layers {
			c.Layers[i].OutputBytes, c.Layers[i].GradientBytes, c.Layers[i].SavedBytes = 40, 40, 50
		}
		p := pipelinetest.Platform(rnd, 1+rnd.IntN(4))
		plan := pipelinetest.Plan(rnd, c, p)
		if seed%2 == 0 {
			var err error
			if plan, err = pipeline.Synchronize(c, p, plan); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		var portals []pipeline.Portal
		for i := range len(plan.Stages) {
			for j := i + 2; j < len(plan.Stages); j++ {
				if rnd.IntN(2) == 0 && len(portals) < 5 {
					portals = append(portals, pipeline.Portal{From: i, To: j, Bytes: 1 + rnd.Int64N(8)})
				}
			}
		}
		if len(portals) == 0 {
			continue
		}
		out, err := pipeline.WithPortals(c, p, plan, portals, pipeline.Return(rnd.IntN(2)))
		if errors.Is(err, pipeline.ErrNoRoom) {
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		placed++
		if plan.Synchronization != nil {
			synchronized++
		}
		if _, err := pipeline.Check(c, p, out); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if dumb := collision(c, p, out); dumb != "" {
			t.Fatalf("seed %d: %s", seed, dumb)
		}
		if out.Period < plan.Period || out.Period > 2.02*plan.Period && plan.Synchronization == nil {
			t.Fatalf("seed %d: period %g, was %g", seed, out.Period, plan.Period)
		}
		if out.Period > plan.Period {
			stretched++
		}
		if plan.Synchronization != nil && out.Synchronization == nil {
			t.Fatalf("seed %d: the replicas are no longer added up", seed)
		}
		if out.IsFlush() && !slices.EqualFunc(plan.Tasks, out.Tasks[:len(plan.Tasks)], func(a, b pipeline.Task) bool { return a.Start == b.Start }) {
			late++
		}
		checkFile(t, c, p, out)
	}
	if placed < 300 || late == 0 || stretched == 0 || synchronized < 50 {
		t.Errorf("%d plans have portals, %d of them other times, %d a longer period, %d replicas", placed, late, stretched, synchronized)
	}
}

// checkFile writes and reads a plan, and judges it again.
func checkFile(t *testing.T, c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) {
	t.Helper()
	var file bytes.Buffer
	if err := plan.Encode(&file); err != nil {
		t.Fatal(err)
	}
	back, err := pipeline.Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plan.Portals, back.Portals) {
		t.Errorf("portals %v come back as %v", plan.Portals, back.Portals)
	}
	if _, err := pipeline.Check(c, p, back); err != nil {
		t.Errorf("read again: %v", err)
	}
}

// collision returns two messages that are on a link at one time, or one that is not between the tasks that it joins.
func collision(c *chain.Chain, p *pipeline.Platform, plan *pipeline.Plan) string {
	device, start, end := map[[3]int]int{}, map[[3]int]float64{}, map[[3]int]float64{}
	absolute := func(t pipeline.Task) (int, float64) {
		if plan.IsFlush() {
			return t.Shift, t.Start
		}
		r := ((t.Shift % plan.Repeats()) + plan.Repeats()) % plan.Repeats()
		return r, t.Start + float64((r-t.Shift)/plan.Repeats())*plan.Period
	}
	for _, t := range plan.Tasks {
		if t.Kind == F || t.Kind == B {
			r, at := absolute(t)
			key := [3]int{int(t.Kind), t.Stage, r}
			device[key], start[key], end[key] = t.Device, at, at+seconds(c, plan, t)
		}
	}
	links := map[[2]int][]use{}
	onLink := func(name string, from, to int, at, length float64) {
		link := [2]int{from, to}
		if !p.Duplex {
			link = [2]int{min(from, to), max(from, to)}
		}
		for k := range 2 { // two periods, the first moved to begin at 0
			begin := at
			if !plan.IsFlush() {
				begin = math.Mod(math.Mod(at, plan.Period)+plan.Period, plan.Period) + float64(k)*plan.Period
			}
			if length > 0 && (k == 0 || !plan.IsFlush()) {
				links[link] = append(links[link], use{name, begin, begin + length})
			}
		}
	}
	for _, m := range plan.Synchronization {
		bytes := int64(0)
		for l := m.First; l <= m.Last; l++ {
			bytes += c.Layer(l).WeightBytes
		}
		onLink(m.String(), m.From, m.To, m.Start, p.Seconds(bytes, m.From, m.To))
	}
	for _, t := range plan.Tasks {
		if !t.Kind.Communication() {
			continue
		}
		r, at := absolute(t)
		far, bytes := carried(plan, t)
		x, y := [3]int{int(F), t.Stage, r}, [3]int{int(F), far, r}
		if t.Kind == CB {
			x, y = [3]int{int(B), far, r}, [3]int{int(B), t.Stage, r}
		}
		length := p.Seconds(bytes, device[x], device[y])
		if at < end[x]-eps || at+length > start[y]+eps {
			return t.String() + " is not between its tasks"
		}
		onLink(t.String(), device[x], device[y], at, length)
	}
	for _, all := range links {
		if text := together(all); text != "" {
			return text
		}
	}
	return ""
}

const eps = 1e-6 // seconds, for rounding

// use is when a message is on a link.
type use struct {
	name     string
	from, to float64
}

// together names two messages that are on a link at one time.
func together(all []use) string {
	for i, a := range all {
		for _, b := range all[:i] {
			if a.from < b.to-eps && b.from < a.to-eps {
				return a.name + " and " + b.name + " are on a link at one time"
			}
		}
	}
	return ""
}

// seconds returns how long a forward or a backward takes.
func seconds(c *chain.Chain, plan *pipeline.Plan, t pipeline.Task) (length float64) {
	for l := plan.Stages[t.Stage].First; l <= plan.Stages[t.Stage].Last; l++ {
		switch {
		case t.Kind == F:
			length += c.Layer(l).ForwardS
		case plan.Split()[t.Stage]:
			length += *c.Layer(l).BackwardInputS
		default:
			length += c.Layer(l).BackwardS
		}
	}
	return length
}

// carried returns the other stage of a message and its bytes: 40 between neighbours, less what goes through portals.
func carried(plan *pipeline.Plan, t pipeline.Task) (far int, bytes int64) {
	if t.To == 0 {
		far, bytes = t.Stage+1, 40
		for _, q := range plan.Portals {
			if q.From <= t.Stage && t.Stage < q.To {
				bytes -= q.Bytes
			}
		}
		return far, bytes
	}
	for _, q := range plan.Portals {
		if q.From == t.Stage && q.To == t.To {
			bytes = q.Bytes
		}
	}
	return t.To, bytes
}

// If a portal passes a stage with ops, the stage neither holds the portal's bytes nor sends them to the host. The stage where the portal
// ends keeps them on the device while its input is away.
//
// Three stages of one layer have F = B = 1 s, a = ā = δ = 3 bytes and weights of 0 bytes. Two of these 3 bytes go by a portal from the
// first stage to the last. In a period of 30 s one minibatch goes through all stages; the last two stages offload their input at 1 byte/s.
func TestPortalsOfStagesWithOps(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "skip", InputBytes: 1, Layers: []chain.Layer{layer(1, 1, 3, 0), layer(1, 1, 3, 0), layer(1, 1, 3, 0)}}
	p := pipeline.NewPlatform(3, pipeline.NoLimit, 1)
	p.Host, p.NoBuffers = 1, true
	plan := &pipeline.Plan{Chain: "skip", Versions: pipeline.Stash, Period: 30, Copies: pipeline.Copies{Accounting: pipeline.Saved}}
	for s := range 3 {
		l := s + 1
		st := pipeline.Stage{First: l, Last: l, Devices: []int{s}}
		if s > 0 {
			st.Ops = schedule.Sequence{
				{Kind: schedule.Offload, Layer: l}, {Kind: schedule.ForwardAll, Layer: l},
				{Kind: schedule.Prefetch, Layer: l}, {Kind: schedule.Backward, Layer: l},
			}
		}
		plan.Stages = append(plan.Stages, st)
	}
	plan.Tasks = []pipeline.Task{
		{Kind: F, Stage: 0}, {Kind: CF, Stage: 0, Start: 1}, {Kind: F, Stage: 1, Device: 1, Start: 4}, {Kind: CF, Stage: 1, Device: 1, Start: 5},
		{Kind: F, Stage: 2, Device: 2, Start: 8}, {Kind: B, Stage: 2, Device: 2, Start: 16}, {Kind: CB, Stage: 1, Device: 2, Start: 17},
		{Kind: B, Stage: 1, Device: 1, Start: 20}, {Kind: CB, Stage: 0, Device: 1, Start: 21}, {Kind: B, Stage: 0, Start: 24},
	}
	moves := func(plan *pipeline.Plan) (seconds []float64) {
		swaps, err := pipeline.Swaps(c, p, plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, all := range swaps {
			for _, x := range all {
				seconds = append(seconds, x.Seconds)
			}
		}
		return seconds
	}
	carried, err := pipeline.Check(c, p, plan)
	if err != nil {
		t.Fatal(err)
	}
	straight, err := pipeline.WithPortals(c, p, plan, []pipeline.Portal{{From: 0, To: 2, Bytes: 2}}, pipeline.Late)
	if err != nil {
		t.Fatal(err)
	}
	// The backward of stage 1 has its input, ā, and δ of both: 3 bytes each are 1 byte each. The backward of stage 2 has 1 byte of input
	// and 2 beside it, as before, and δ of its input is 1 byte. The skips' δ is in a buffer.
	if a, b := carried.PerDevicePeak, straight.PerDevicePeak; b[1] != a[1]-2*4 || b[2] != a[2]-2 {
		t.Errorf("peaks %v carried, %v straight", a, b)
	}
	if a, b := moves(plan), moves(straight); !slices.Equal(a, []float64{3, 3}) || !slices.Equal(b, []float64{1, 1}) {
		t.Errorf("transfers take %v s carried, %v s straight", a, b)
	}
}
