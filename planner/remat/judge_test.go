package remat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// near reports equality up to the rounding of sums of float64.
func near(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y)) }

// named returns the registered strategy.
func named(t testing.TB, name string) strategy.Strategy {
	t.Helper()
	for _, s := range Strategies() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no strategy %s", name)
	return strategy.Strategy{}
}

// verdict is a sequence with what an independent checker must say of it.
type verdict struct {
	Chain    *chain.Chain      `json:"chain"`
	Ops      schedule.Sequence `json:"ops"`
	Memory   int64             `json:"memory"`
	makespan float64
	peak     int64
}

// judge solves problems and judges every answer: the sequence keeps the rules within the limit, or the error names
// the limit, a smallest limit above it and an op. It remembers the sequences for the oracle.
type judge struct {
	t        *testing.T
	verdicts []verdict
	refused  int
}

// makespan returns the simulated makespan of a strategy, NaN when it refuses the limit.
func (j *judge) makespan(name string, p strategy.Problem) float64 {
	j.t.Helper()
	seq, err := named(j.t, name).Solve(context.Background(), p)
	if refusal, ok := errors.AsType[*strategy.InfeasibleError](err); ok {
		if refusal.Strategy != name || refusal.Memory != p.Memory || refusal.Smallest <= p.Memory || refusal.LayerName != p.Chain.Layer(max(1, refusal.Op.Layer)).Name {
			j.t.Fatalf("%s %s at %d: refusal %+v", name, p.Chain.Name, p.Memory, refusal)
		}
		j.refused++
		return math.NaN()
	}
	if err != nil {
		j.t.Fatalf("%s %s at %d: %v", name, p.Chain.Name, p.Memory, err)
	}
	return j.accept(name, p, seq)
}

func (j *judge) accept(name string, p strategy.Problem, seq schedule.Sequence) float64 {
	j.t.Helper()
	if err := schedule.Verify(p.Chain, seq); err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory})
	if err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	j.verdicts = append(j.verdicts, verdict{p.Chain, seq, p.Memory, r.Makespan, r.Peak})
	return r.Makespan
}

// expect compares with a known optimum, nil where no sequence exists.
func (j *judge) expect(name string, p strategy.Problem, want *float64) {
	j.t.Helper()
	got := j.makespan(name, p)
	if want == nil && !math.IsNaN(got) || want != nil && !near(got, *want) {
		j.t.Errorf("%s %s at %d: makespan %v, want %v", name, p.Chain.Name, p.Memory, got, show(want))
	}
}

func show(x *float64) string {
	if x == nil {
		return "infeasible"
	}
	return fmt.Sprint(*x)
}

const oracleDriver = `
import json, sys
sys.path.insert(0, sys.argv[1])
import check
for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(check.check(case["chain"], case, case["memory"])))
`

// oracle lets the independent checker judge every sequence seen so far. It knows no separate cost of forwards that
// save nothing.
func (j *judge) oracle() { j.t.Run("oracle", j.runOracle) }

func (j *judge) runOracle(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, v := range j.verdicts {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "-B", "-c", oracleDriver, filepath.Dir(shared.Path(t, "oracle", "check.py")))
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	seen := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); seen++ {
		var got struct {
			Valid    bool    `json:"valid"`
			Error    string  `json:"error"`
			Makespan float64 `json:"makespan_s"`
			Peak     int64   `json:"peak_bytes"`
		}
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if want := j.verdicts[seen]; !got.Valid || got.Peak != want.peak || !near(got.Makespan, want.makespan) {
			t.Errorf("%s at %d: oracle says %+v, want peak %d and makespan %v, of %v",
				want.Chain.Name, want.Memory, got, want.peak, want.makespan, want.Ops)
		}
	}
	if seen != len(j.verdicts) || seen == 0 {
		t.Fatalf("the oracle judged %d of %d sequences", seen, len(j.verdicts))
	}
	t.Logf("%d sequences accepted by the oracle, %d limits refused", seen, j.refused)
}
