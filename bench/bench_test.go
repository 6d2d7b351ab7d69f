package bench

import (
	"bytes"
	"errors"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/executor/measure"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/schedule"
	"plimsoll/runtime/devices"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func job(t testing.TB, seed uint64) *train.Job {
	t.Helper()
	j, err := train.Open(train.Spec{
		Model: "tiny", Config: models.Config{Batch: 32, Image: 32}, Data: "digits", Seed: seed, Devices: "cpu",
		Update: kernels.SGD{Momentum: 0.9},
	})
	must(t, err)
	return j
}

func grid(t testing.TB, shares ...float64) *Grid {
	t.Helper()
	g := &Grid{Job: job(t, 1), Strategies: planner.Sequences(), Steps: 2, Rate: train.Rate{Peak: 0.05}}
	var err error
	g.Chain, err = g.Job.Profile(t.Context(), train.Measure{Repeats: 2})
	must(t, err)
	all, err := g.Job.StoreAllExtent()
	must(t, err)
	for _, s := range shares {
		g.Limits = append(g.Limits, Limit{"limit", int64(s * float64(all))})
	}
	return g
}

// Only this test finds a curve, a trace, a receipt or a page that disagrees with its row about the measured step.
func TestGrid(t *testing.T) {
	t.Parallel()
	g := grid(t, 1, 0.85, 0.1)
	g.Steps = 3 // of which two count: their median is none of them
	g.Audit = true
	done := 0
	g.Progress = func(d, total int) {
		if d <= done || d > total {
			t.Errorf("progress %d of %d after %d", d, total, done)
		}
		done = d
	}
	r, err := g.Run(t.Context())
	must(t, err)
	if len(r.Rows) < 6 || len(r.Rows)+len(r.Skipped) != 3*len(g.Strategies) {
		t.Fatalf("%d rows, %d skipped", len(r.Rows), len(r.Skipped))
	}
	if f := r.Failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
	for _, row := range r.Rows {
		if !row.Identical || row.PredictedS <= 0 || row.PlannedS <= 0 || row.AsAloneS <= 0 || row.MeasuredS <= 0 || row.StoreAllS <= 0 {
			t.Errorf("%+v", row)
		}
		if i := row.Interval; len(row.times) != g.Steps-1 || i[0] > i[1] || row.Error < i[0]-1 || math.IsNaN(i[1]) {
			t.Errorf("%s: error %v, interval %v of %v", row.Strategy, row.Error, i, row.times)
		}
	}
	if i := r.MedianInterval; !(r.Drift > 0) || i[0] > i[1] || i[0] < 0 || !g.Latest.Contends() {
		t.Errorf("drift %v, median error %v from %v", r.Drift, r.MedianError, i)
	}
	if done != len(r.Rows)*(g.Steps+1) {
		t.Errorf("progress ended at %d", done)
	}
	checkCurves(t, g, r)
	checkTable(t, g, r)
}

// Both memory curves of a row reach exactly its peak, and the trace is valid. The step that was measured takes one time
// everywhere: in the figures, in the receipt, on the page and in the trace.
func checkCurves(t *testing.T, g *Grid, r *Report) {
	for i := range r.Rows {
		line := g.step(&r.Rows[i])
		predicted, measured, err := line.Curves()
		must(t, err)
		for _, c := range [][]report.Point{predicted, measured} {
			top := 0.0
			for _, p := range c {
				top = max(top, p.Y)
			}
			if int64(top) != r.Rows[i].MeasuredPeakBytes {
				t.Errorf("%s: a curve up to %v, the peak is %d", r.Rows[i].Strategy, top, r.Rows[i].MeasuredPeakBytes)
			}
		}
		tr, err := line.Trace("cpu")
		must(t, err)
		must(t, tr.Validate())
		n, end := 0, 0.0
		for _, track := range tr.Processes[1].Tracks {
			n += len(track.Slices)
			end = max(end, track.Slices[len(track.Slices)-1].End)
		}
		shown, err := g.row(r, &r.Rows[i])
		must(t, err)
		row := &r.Rows[i]
		want := schedule.Duration(row.MeasuredS)
		for what, s := range map[string]float64{
			"page": shown.MeasuredSeconds, "curve": measured[len(measured)-1].X, "trace": end, "receipt": row.Receipt.Measured.Seconds(),
			"error": row.PredictedS / (1 - row.Error), "gap": row.PredictedS + row.Receipt.Gap().Seconds(),
		} {
			if (schedule.Duration(s) - want).Abs() > 2 {
				t.Errorf("%s: measured %v, %s has %v", row.Strategy, want, what, schedule.Duration(s))
			}
		}
		if n != len(r.Rows[i].Plan.Sequence())+1 {
			t.Errorf("%d slices for %d ops and the update", n, len(r.Rows[i].Plan.Sequence()))
		}
	}
}

func checkTable(t *testing.T, g *Grid, r *Report) {
	page, err := g.Page(r)
	must(t, err)
	var text strings.Builder
	must(t, page.Table().Text(&text))
	if n := strings.Count(text.String(), "\n"); n != 2+len(r.Rows)+len(r.Skipped) {
		t.Errorf("%d lines:\n%s", n, text.String())
	}
}

// Where the device cannot hold all arenas at once the rows run in groups, and nothing else changes.
// Only this test finds rows that are lost, or compared with another reference, when a device holds few arenas at once.
func TestRowsRunInGroups(t *testing.T) {
	t.Parallel()
	g := grid(t, 1, 0.9)
	all, err := g.exercises(math.MaxInt64)
	must(t, err)
	g.Job.Device.Memory = all[0].Extent*2 + all[1].Extent + g.Limits[0].Bytes
	r, err := g.Run(t.Context())
	must(t, err)
	if f := r.Failures(); len(f) > 0 || len(r.Rows) < 4 || r.Reference != storeAll {
		t.Errorf("%d rows, compared with %s, failures: %v", len(r.Rows), r.Reference, f)
	}
	for _, row := range r.Rows {
		if row.MeasuredS <= 0 {
			t.Errorf("%s was not measured", row.Strategy)
		}
	}
}

// On a device that has no room for store-all, rows are compared with store-all on a larger one.
// Only this test finds rows of a small device that are not compared with store-all on a larger device.
func TestADeviceSmallerThanStoreAll(t *testing.T) {
	t.Parallel()
	g := grid(t, 0.8)
	small := g.Limits[0].Bytes
	spec := g.Job.Spec
	spec.Open.Memory = small
	var err error
	g.Job, err = train.Open(spec)
	must(t, err)
	if g.Job.Device.Memory != small {
		t.Fatalf("the device has %d bytes, not %d", g.Job.Device.Memory, small)
	}
	g.Chain, err = g.Job.Profile(t.Context(), train.Measure{Repeats: 1})
	must(t, err)
	g.Audit = true
	r, err := g.Run(t.Context())
	must(t, err)
	if f := r.Failures(); len(f) > 0 || len(r.Rows) < 3 || r.Reference != "store-all on a larger device" || r.DeviceBytes != small {
		t.Errorf("%d rows, compared with %s on %d bytes, failures: %v", len(r.Rows), r.Reference, r.DeviceBytes, f)
	}
	for _, row := range r.Rows {
		if !(row.MeasuredS > 0 && row.PredictedS > 0 && row.StoreAllS > 0) {
			t.Errorf("%s: measured %v s, predicted %v s, store-all %v s", row.Strategy, row.MeasuredS, row.PredictedS, row.StoreAllS)
		}
	}
}

// Where no device has room for store-all, the first row is the reference: others differ from it when they do.
func TestTheFirstRowIsTheReference(t *testing.T) {
	t.Parallel()
	g := grid(t, 0.8)
	r, err := g.plan(t.Context())
	must(t, err)
	rows := r.Rows[:2]
	b := &bits{}
	for i := range rows {
		one := &rounds{grid: g, samples: measure.NewSamples(g.Job.Work), bits: b}
		x, err := g.start(g.Job, g.planOf(&rows[i]), &rows[i])
		must(t, err)
		one.rows = []*timed{x}
		must(t, errors.Join(one.run(t.Context(), func(int) {}), one.close()))
		if len(b.losses) != g.Steps || len(b.tensors) == 0 {
			t.Fatalf("%d losses and %d tensors are remembered", len(b.losses), len(b.tensors))
		}
		if b.of = rows[0].Strategy; !rows[i].Identical {
			t.Errorf("%s: %s", rows[i].Strategy, rows[i].Difference)
		}
	}
}

func start(t *testing.T, j *train.Job, opt pipe.Options) *train.Runner {
	t.Helper()
	all, err := j.StoreAll()
	must(t, err)
	r, err := j.Start(all, opt)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// One changed bit in any tensor is found and named.
func TestDifferFindsOneBit(t *testing.T) {
	t.Parallel()
	j := job(t, 1)
	a, b := start(t, j, pipe.Options{}), start(t, j, pipe.Options{})
	for _, r := range []*train.Runner{a, b} {
		_, err := r.Train(0.1)
		must(t, err)
	}
	left := &bits{}
	must(t, left.remember(true, a))
	if d, err := left.compare(0, true, b); d != "" || err != nil {
		t.Fatalf("equal runs differ: %q, %v", d, err)
	}
	roles := map[string]int{}
	for _, x := range b.Tensors() {
		v := make([]float32, x.Desc.Elements())
		must(t, b.Read(x, v))
		last := train.Bytes(v)[len(v)*4-1:]
		last[0] ^= 1
		must(t, b.Write(x, v))
		d, err := left.compare(0, true, b)
		if err != nil || !strings.Contains(d, "step 0, layer") || !strings.HasSuffix(d, x.Role+" "+x.Name) {
			t.Errorf("a bit of %s %s: %q, %v", x.Role, x.Name, d, err)
		}
		last[0] ^= 1
		must(t, b.Write(x, v))
		roles[x.Role]++
	}
	for _, role := range []string{"weight", "gradient", "buffer", "state0"} {
		if roles[role] == 0 {
			t.Errorf("no %s was tried", role)
		}
	}
}

// A row whose losses are right and whose weights are not is seen in the last step.
func TestRowsAreComparedInFullAtTheEnd(t *testing.T) {
	t.Parallel()
	g := grid(t, 1)
	g.Strategies = g.Strategies[:1]
	rep, err := g.plan(t.Context())
	must(t, err)
	r := &rounds{grid: g, samples: measure.NewSamples(g.Job.Work), bits: &bits{of: storeAll}}
	must(t, r.open(rep.Rows[:1]))
	defer func() { must(t, r.close()) }()
	var spoiled string
	must(t, r.run(t.Context(), func(int) {
		if row := r.rows[0]; spoiled == "" { // behind the first step; the loss of the second one does not see the state
			all := row.Tensors()
			x := all[slices.IndexFunc(all, func(x executor.Tensor) bool { return x.Role == "state0" })]
			must(t, row.Write(x, make([]float32, x.Desc.Elements())))
			spoiled = x.Name
		}
	}))
	if d := rep.Rows[0].Difference; !strings.Contains(d, "step 1") || !strings.Contains(d, spoiled) {
		t.Errorf("%s was spoiled: %q", spoiled, d)
	}
}

// Side by side, a plan with recomputation leaves what store-all leaves, at every op.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	g := grid(t, 0.85)
	s, err := planner.Lookup("rotor-exact")
	must(t, err)
	p, err := executor.Plan(t.Context(), g.Job.Work, g.Chain, s, g.Limits[0].Bytes, g.Options)
	must(t, err)
	if len(p.Sequence()) == 2*len(g.Job.Work.Layers) {
		t.Fatalf("the plan recomputes nothing: %v", p.Sequence())
	}
	if first, err := g.sideBySide(t.Context(), g.Job.SequenceOf(g.Chain, p, g.Limits[0].Bytes), 2); first != "" || err != nil {
		t.Errorf("%q, %v", first, err)
	}
}

// The first thing that differs is named with its layer and op: another seed begins with the random state; without it,
// with the output of the first layer.
func TestComparisonNamesTheFirstDifference(t *testing.T) {
	t.Parallel()
	for skip, want := range map[string]string{
		"":             "layer 1 (stem), op 0 Fall1: random state",
		"random state": "layer 1 (stem), op 0 Fall1: output",
	} {
		c := &comparison{seed: maphash.MakeSeed(), known: map[place]uint64{}}
		seen := 0
		watch := func(f func(pipe.Observation)) func(pipe.Observation) {
			return func(o pipe.Observation) {
				if seen++; o.What != skip {
					f(o)
				}
			}
		}
		for seed, f := range map[uint64]func(pipe.Observation){1: c.remember} {
			_, err := start(t, job(t, seed), pipe.Options{Observe: watch(f)}).Train(0.1)
			must(t, err)
		}
		_, err := start(t, job(t, 2), pipe.Options{Observe: watch(c.compare)}).Train(0.1)
		must(t, err)
		if c.first != want {
			t.Errorf("first difference %q, want %q", c.first, want)
		}
		if seen < 2*4*6 {
			t.Errorf("only %d observations", seen)
		}
	}
}

// Each kind of thing that an op leaves is seen, for every layer that has it.
func TestObservationsCoverEveryLayer(t *testing.T) {
	t.Parallel()
	seen := map[string]map[int]bool{}
	j := job(t, 1)
	_, err := start(t, j, pipe.Options{Observe: func(o pipe.Observation) {
		kind, _, _ := strings.Cut(o.What, " ")
		if strings.HasPrefix(o.What, "gradient of the input") {
			kind = "input gradient"
		}
		if seen[kind] == nil {
			seen[kind] = map[int]bool{}
		}
		seen[kind][o.Op.Layer] = true
		if len(o.Bytes) == 0 || bytes.Count(o.Bytes, []byte{0xFF}) == len(o.Bytes) {
			t.Errorf("%v: %s is empty", o.Op, o.What)
		}
	}}).Train(0.1)
	must(t, err)
	for kind, layers := range map[string]int{"output": 6, "input gradient": 5, "gradient": 5, "statistic": 4, "random": 6} {
		if len(seen[kind]) != layers {
			t.Errorf("%s of layers %v, want %d", kind, seen[kind], layers)
		}
	}
}

func TestFailuresNameTheRow(t *testing.T) {
	t.Parallel()
	good := Row{Strategy: "rotor", Limit: "50%", LimitBytes: 100, PredictedPeakBytes: 90, MeasuredPeakBytes: 90, ExtentBytes: 100, Identical: true}
	r := &Report{Rows: []Row{good, good, good, good}}
	r.Rows[1].Identical, r.Rows[1].Difference = false, "weight conv1"
	r.Rows[2].MeasuredPeakBytes = 89
	r.Rows[3].ExtentBytes = 101
	f := r.Failures()
	for i, want := range []string{"weight conv1", "measured peak 89 B, predicted 90 B", "used 101 B of a limit of 100 B"} {
		if len(f) != 3 || !strings.Contains(f[i], "rotor at 50%") || !strings.Contains(f[i], want) {
			t.Fatalf("failures %q, want %q", f, want)
		}
	}
}

// A fault of a device that is too small for store-all ends the run with the device's error.
func TestErrorsOfRowsAreNamed(t *testing.T) {
	t.Parallel()
	g := grid(t, 1)
	g.Job.Open.Memory = g.Limits[0].Bytes / 2
	_, err := g.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "at limit: ") || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("%v", err)
	}
}

func TestCopyBandwidth(t *testing.T) {
	t.Parallel()
	target, err := job(t, 1).Target()
	must(t, err)
	toDevice, toHost, err := CopyBandwidth(target.Device)
	must(t, errors.Join(err, target.Device.Close()))
	if toDevice < 1e7 || toHost < 1e7 {
		t.Errorf("%v and %v bytes per second", toDevice, toHost)
	}
}

// A copy that waited for a thread, whichever it is, does not end the growth of copies. The time of small ones is mostly latency.
func TestCopiesThatWait(t *testing.T) {
	t.Parallel()
	const latency, perByte = time.Millisecond, 1 * time.Nanosecond
	for waits := range 20 {
		n := 0
		speed, err := copySpeed(func(bytes int64) (time.Duration, error) {
			took := latency + time.Duration(bytes)*perByte
			if n == waits {
				took += 100 * time.Millisecond
			}
			n++
			return took, nil
		})
		if err != nil || speed < 0.9e9 || speed > 1e9 {
			t.Errorf("copy %d waits: %v bytes per second, %v", waits, speed, err)
		}
	}
}

func TestForwardsAreCounted(t *testing.T) {
	t.Parallel()
	g := grid(t, 1)
	r, err := g.plan(t.Context())
	must(t, err)
	for _, row := range r.Rows {
		n := 0
		for _, op := range row.Plan.Sequence() {
			if op.Kind == schedule.Backward {
				n++
			}
		}
		if row.Forwards+n != row.Ops || row.Forwards < len(g.Job.Work.Layers) {
			t.Errorf("%s: %d forwards of %d ops", row.Strategy, row.Forwards, row.Ops)
		}
	}
}

// The causes of every row's gap add up to it, to the nanosecond, on a device; with transfers and without.
// Only this test finds causes that do not add up to the gap for spans that a device has measured.
func TestReceiptsAddUpOnADevice(t *testing.T) {
	t.Parallel()
	g := grid(t, 0.9, 0.8)
	r, err := g.Run(t.Context())
	must(t, err)
	transfers := 0
	for i := range r.Rows {
		row := &r.Rows[i]
		var sum time.Duration
		for _, d := range row.Receipt.By {
			sum += d
		}
		if p := row.Receipt; sum != p.Gap() || p.Measured != schedule.Duration(row.MeasuredS) || (p.Predicted-schedule.Duration(row.PredictedS)).Abs() > 2 {
			t.Errorf("%s: %v of causes, a gap of %v; measured %v, predicted %v", row.Strategy, sum, p.Gap(), row.MeasuredS, row.PredictedS)
		}
		if slices.ContainsFunc(row.Plan.Sequence(), func(op schedule.Op) bool { return op.Kind.Transfer() }) {
			transfers++
		}
	}
	if len(r.Rows) < 10 || transfers < 2 {
		t.Errorf("%d rows, %d with transfers", len(r.Rows), transfers)
	}
	if got := len(r.Receipts().Rows); got != len(r.Rows) {
		t.Errorf("a table of %d rows", got)
	}
}

// Copies between devices are as fast as their link was made, or take no time.
func TestPeerBandwidth(t *testing.T) {
	t.Parallel()
	for _, stated := range []float64{0, 3e6, 5e11} {
		opened, err := devices.Open("null*2", devices.Options{PeerBandwidth: stated})
		must(t, err)
		for _, d := range opened {
			must(t, d.Reserve(CopyBytes, 0))
		}
		got, err := PeerBandwidth(opened[0], opened[1])
		must(t, err)
		if stated == 0 && !math.IsInf(got, 1) || stated > 0 && math.Abs(got-stated) > 1e-3*stated {
			t.Errorf("%g bytes per second, the link has %g", got, stated)
		}
	}
}

// A throttled link never seems faster than it is, however late its streams wake up.
func TestCopiesAreNeverFasterThanTheirLink(t *testing.T) {
	t.Parallel()
	const stated = 1e8
	for seed := range uint64(5) {
		opened, err := devices.Open("cpu*2", devices.Options{Bandwidth: stated, PeerBandwidth: stated, Memory: 2 * CopyBytes, HostMemory: 2 * CopyBytes, Chaos: 1 + seed})
		must(t, err)
		must(t, opened[1].Reserve(CopyBytes, 0))
		toDevice, toHost, err := CopyBandwidth(opened[0])
		must(t, err)
		toPeer, err := PeerBandwidth(opened[0], opened[1])
		must(t, errors.Join(err, opened[0].Close(), opened[1].Close()))
		for _, got := range []float64{toDevice, toHost, toPeer} {
			if got > stated {
				t.Errorf("%g bytes per second, the link has %g", got, stated)
			}
		}
	}
}
