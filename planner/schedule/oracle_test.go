package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
)

// oracleDriver judges one case a line with oracle/check.py, which implements the same semantics independently.
const oracleDriver = `
import json, sys
sys.path.insert(0, sys.argv[1])
import check
for line in sys.stdin:
    case = json.loads(line)
    trace = []
    out = check.check(case["chain"], case, case.get("memory"), case.get("bandwidth"), trace)
    out["trace"] = [[row[0], row[3]] for row in trace]
    print(json.dumps(out))
`

type oracleCase struct {
	Chain     *chain.Chain `json:"chain"`
	Ops       Sequence     `json:"ops"`
	Memory    *int64       `json:"memory,omitempty"`
	Bandwidth *float64     `json:"bandwidth,omitempty"`
}

type oracleVerdict struct {
	Valid    bool         `json:"valid"`
	Error    string       `json:"error"`
	Makespan float64      `json:"makespan_s"`
	Peak     *int64       `json:"peak_bytes"` // also set when the limit is exceeded
	Idle     float64      `json:"idle_s"`
	Trace    [][2]float64 `json:"trace"` // position, start
}

func (c oracleCase) limits() Limits {
	l := Limits{Memory: NoLimit}
	if c.Memory != nil {
		l.Memory = *c.Memory
	}
	if c.Bandwidth != nil {
		l.Link.Bandwidth = *c.Bandwidth
	}
	return l
}

func makeOracleCase(rng *rand.Rand) oracleCase {
	c := randomChain(rng)
	seq := randomSequence(rng, c, rng.IntN(3) > 0)
	limits := randomLimits(rng, c, seq)
	k := oracleCase{Chain: c, Ops: seq}
	if limits.Memory != NoLimit {
		k.Memory = &limits.Memory
	}
	if limits.Link.Bandwidth > 0 {
		k.Bandwidth = &limits.Link.Bandwidth
	}
	return k
}

// judge runs all cases through one python3.
func judge(t *testing.T, cases []oracleCase) []oracleVerdict {
	t.Helper()
	return shared.Judge[oracleCase, oracleVerdict](t, "check.py", oracleDriver, cases)
}

var opNumber = regexp.MustCompile(`\bop (\d+)[ :]`)

// class reduces an error to what both programs must agree on: its kind and, where the oracle tells it, the op.
func (v oracleVerdict) class() string {
	op := "end"
	if m := opNumber.FindStringSubmatch(v.Error); m != nil {
		op = m[1]
	}
	switch {
	case v.Valid:
		return "valid"
	case v.Peak != nil && op == "end":
		return "memory"
	case v.Peak != nil:
		return "deadlock " + op
	case regexp.MustCompile("--bandwidth").MatchString(v.Error):
		return "no link"
	}
	return "rule " + op
}

func classOf(err error, seq Sequence) string {
	var rule *RuleError
	var memory *MemoryError
	switch {
	case err == nil:
		return "valid"
	case errors.Is(err, ErrNoLink):
		return "no link"
	case errors.As(err, &rule) && rule.Index == len(seq):
		return "rule end"
	case errors.As(err, &rule):
		return "rule " + strconv.Itoa(rule.Index)
	case errors.As(err, &memory) && (memory.Index < 0 || !hasTransfers(seq)):
		return "memory"
	case errors.As(err, &memory):
		return "deadlock " + strconv.Itoa(memory.Index)
	}
	return "unknown: " + err.Error()
}

func hasTransfers(seq Sequence) bool {
	for _, op := range seq {
		if op.Kind.Transfer() {
			return true
		}
	}
	return false
}

// near: the two programs add the same numbers in the same order, but print them.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// agree compares a simulation with the oracle's verdict; it returns the class of the case.
func agree(k oracleCase, v oracleVerdict) (class string, err error) {
	r, err := Simulate(k.Chain, k.Ops, k.limits())
	class = classOf(err, k.Ops)
	switch {
	case class != v.class():
		return class, fmt.Errorf("simulated %q (%v), the oracle says %q (%s)", class, err, v.class(), v.Error)
	case class != "valid":
		return class, nil
	case !near(r.Makespan, v.Makespan) || !near(r.Idle, v.Idle) || r.Peak != *v.Peak:
		return class, fmt.Errorf("makespan, idle, peak %g %g %d, the oracle says %g %g %d",
			r.Makespan, r.Idle, r.Peak, v.Makespan, v.Idle, *v.Peak)
	case len(v.Trace) != len(k.Ops):
		return class, fmt.Errorf("the oracle started %d ops of %d", len(v.Trace), len(k.Ops))
	}
	for _, row := range v.Trace {
		if p := int(row[0]); !near(r.Start[p], row[1]) {
			return class, fmt.Errorf("op %d starts at %g, the oracle says %g", p, r.Start[p], row[1])
		}
	}
	return class, nil
}

// TestOracleAgrees feeds Simulate and oracle/check.py with the same random sequences, valid and broken, with and
// without transfers and limits. They must agree on the verdict, on the op that breaks a rule or never starts, on
// makespan, idle time and peak, and on the start of every op.
func TestOracleAgrees(t *testing.T) {
	t.Parallel()
	total := 8000
	if testing.Short() {
		total = 1500
	}
	rng := rand.New(rand.NewPCG(1, 2))
	cases := make([]oracleCase, total)
	for i := range cases {
		cases[i] = makeOracleCase(rng)
	}
	verdicts := judge(t, cases)
	if len(verdicts) != total {
		t.Fatalf("%d verdicts for %d cases", len(verdicts), total)
	}
	count := map[string]int{}
	for i, k := range cases {
		class, err := agree(k, verdicts[i])
		if err != nil {
			doc, _ := json.Marshal(k)
			t.Fatalf("case %d: %v\n%s\n%s", i, err, k.Ops, doc)
		}
		kind := regexp.MustCompile(` .*`).ReplaceAllString(class, "")
		if hasTransfers(k.Ops) {
			kind += " with transfers"
			if r, err := Simulate(k.Chain, k.Ops, k.limits()); err == nil && k.Memory != nil && waited(t, k, r) {
				count["waited for memory"]++
			}
		}
		count[kind]++
	}
	t.Log(count)
	for kind, least := range map[string]int{
		"valid": total / 8, "valid with transfers": total / 5, "rule": total / 25, "rule with transfers": total / 10,
		"memory": total / 25, "deadlock with transfers": total / 25, "no with transfers": total / 50, "waited for memory": total / 80,
	} {
		if count[kind] < least {
			t.Errorf("%d cases %q, want at least %d", count[kind], kind, least)
		}
	}
}

// waited reports whether the limit made the sequence longer or moved an op.
func waited(t *testing.T, k oracleCase, limited *Result) bool {
	free, err := Simulate(k.Chain, k.Ops, Limits{Memory: NoLimit, Link: k.limits().Link})
	if err != nil {
		t.Fatal(err)
	}
	for p := range k.Ops {
		if free.Start[p] != limited.Start[p] {
			return true
		}
	}
	return false
}
