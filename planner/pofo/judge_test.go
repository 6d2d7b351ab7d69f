package pofo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// near reports equality up to the rounding of sums of float64.
func near(x, y float64) bool { return x == y || math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y)) }

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func readChain(t testing.TB, name string) *chain.Chain {
	t.Helper()
	c, err := chain.Read(shared.Path(t, "profiles", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func problem(c *chain.Chain, memory int64, bandwidth float64) strategy.Problem {
	return strategy.Problem{Chain: c, Memory: memory, Link: schedule.Link{Bandwidth: bandwidth}}
}

// verdict is a sequence with what an independent checker must say of it.
type verdict struct {
	Chain     *chain.Chain      `json:"chain"`
	Ops       schedule.Sequence `json:"ops"`
	Memory    int64             `json:"memory"`
	Bandwidth float64           `json:"bandwidth"`
	makespan  float64
	peak      int64
}

// judge solves problems and judges every answer: the sequence keeps the rules within the limit, or the error names the
// limit, a smallest limit above it and an op. It remembers the sequences for the oracle.
type judge struct {
	t        *testing.T
	verdicts []verdict
	refused  int
}

// makespan returns the simulated makespan of a strategy, infinite when it refuses the limit.
func (j *judge) makespan(s strategy.Strategy, p strategy.Problem) float64 {
	j.t.Helper()
	seq, err := s.Solve(context.Background(), p)
	if refusal, ok := errors.AsType[*strategy.InfeasibleError](err); ok {
		if refusal.Strategy != s.Name || refusal.Memory != p.Memory || refusal.Smallest <= p.Memory || refusal.LayerName != p.Chain.Layer(max(1, refusal.Op.Layer)).Name {
			j.t.Fatalf("%s %s at %d: refusal %+v", s.Name, p.Chain.Name, p.Memory, refusal)
		}
		j.refused++
		return math.Inf(1)
	}
	if err != nil {
		j.t.Fatalf("%s %s at %d, %+v: %v", s.Name, p.Chain.Name, p.Memory, p.Link, err)
	}
	return j.accept(s.Name, p, seq)
}

func (j *judge) accept(name string, p strategy.Problem, seq schedule.Sequence) float64 {
	j.t.Helper()
	if err := schedule.Verify(p.Chain, seq); err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	r, err := schedule.Simulate(p.Chain, seq, schedule.Limits{Memory: p.Memory, Link: p.Link})
	if err != nil {
		j.t.Fatalf("%s %s at %d: %v in %v", name, p.Chain.Name, p.Memory, err, seq)
	}
	if !p.Link.Duplex { // the oracle knows one link
		j.verdicts = append(j.verdicts, verdict{p.Chain, seq, p.Memory, p.Link.Bandwidth, r.Makespan, r.Peak})
	}
	return r.Makespan
}

const oracleDriver = `
import json, sys
sys.path.insert(0, sys.argv[1])
import check
for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(check.check(case["chain"], case, case["memory"], case["bandwidth"])))
`

// oracle lets the independent checker judge every sequence seen so far.
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
			t.Errorf("%s at %d, %g: oracle says %+v, want peak %d and makespan %v, of %v",
				want.Chain.Name, want.Memory, want.Bandwidth, got, want.peak, want.makespan, want.Ops)
		}
	}
	if seen != len(j.verdicts) || seen == 0 {
		t.Fatalf("the oracle judged %d of %d sequences", seen, len(j.verdicts))
	}
	t.Logf("%d sequences accepted by the oracle, %d limits refused", seen, j.refused)
}
