package cycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
)

// oracleDriver judges one case a line with oracle/check_state.py, which implements the same sections of the design independently.
const oracleDriver = `
import json, sys
sys.path.insert(0, sys.argv[1])
import check_state
for line in sys.stdin:
    case = json.loads(line)
    trace = []
    try:
        out = check_state.check(case["chain"], case["seq"], case.get("memory"), case.get("host_memory"), case.get("up"), case.get("down"),
            case["duplex"], case["clip"], max_steps=100, trace=trace)
    except UnboundLocalError: # it stops where the first step takes no time at all
        out = dict(valid=False, error="none")
    if out["valid"]:
        out["trace"] = [[row[0], row[1], str(row[3] / check_state.Fraction(out["unit"])), row[5]] for row in trace]
        out["busy"] = {k: str(v) for k, v in out["busy"].items()}
        out["period"] = str(out["period"])
        del out["start"], out["unit"]
    print(json.dumps(out))
`

// trial is a sequence under limits, as the oracle reads it.
type trial struct {
	Chain  *chain.Chain `json:"chain"`
	Seq    string       `json:"seq"`
	Memory *int64       `json:"memory,omitempty"`
	Host   *int64       `json:"host_memory,omitempty"`
	Up     float64      `json:"up,omitempty"`
	Down   float64      `json:"down,omitempty"`
	Duplex bool         `json:"duplex"`
	Clip   bool         `json:"clip"`
}

// verdict holds the oracle's answer to a trial.
type verdict struct {
	Valid   bool              `json:"valid"`
	Error   string            `json:"error"`
	Period  string            `json:"period"`
	Peak    int64             `json:"peak_bytes"`
	Host    int64             `json:"host_peak_bytes"`
	InOrder int64             `json:"in_order_peak_bytes"`
	Start   int64             `json:"start_bytes"`
	WarmUp  int               `json:"steps_before"`
	Repeats int               `json:"steps_in_cycle"`
	Busy    map[string]string `json:"busy"`
	Trace   [][4]any          `json:"trace"` // step, text, start, bytes in use
}

func (k trial) link() Link { return Link{ToDevice: k.Up, ToHost: k.Down, Duplex: k.Duplex} }

func (k trial) limits() Limits {
	l := Limits{Memory: NoLimit, Host: NoLimit, UpdatesLast: k.Clip}
	if k.Memory != nil {
		l.Memory = *k.Memory
	}
	if k.Host != nil {
		l.Host = *k.Host
	}
	return l
}

// judgeAll runs all trials through one python3.
func judgeAll(t *testing.T, trials []trial) []verdict {
	t.Helper()
	return shared.Judge[trial, verdict](t, "check_state.py", oracleDriver, trials)
}

var (
	opNumber   = regexp.MustCompile(`^op (\d+) `)
	badUpdates = regexp.MustCompile(`never updated|updated twice`)
)

// class reduces an error of the oracle to what both programs must agree on: its kind, and the op where it names one.
func (v verdict) class() string {
	op := "end"
	if m := opNumber.FindStringSubmatch(v.Error); m != nil {
		op = m[1]
	}
	switch {
	case v.Valid:
		return "valid"
	case strings.HasPrefix(v.Error, "memory limit: deadlock"):
		return "deadlock"
	case strings.HasPrefix(v.Error, "memory limit"):
		return "resident"
	case strings.HasPrefix(v.Error, "host memory"):
		return "host memory"
	case strings.HasPrefix(v.Error, "no steady state"):
		return "no steady state"
	case strings.Contains(v.Error, "bandwidth"):
		return "no link " + op
	case badUpdates.MatchString(v.Error):
		return "rule updates" // of several layers it names the first layer, and we the first op
	}
	return "rule " + op
}

// classOf is the same of our errors.
func classOf(err error, seq Sequence) string {
	var rule *RuleError
	var memory *MemoryError
	var host *HostMemoryError
	var link *LinkError
	switch {
	case err == nil:
		return "valid"
	case errors.As(err, &rule) && badUpdates.MatchString(rule.Reason):
		return "rule updates"
	case errors.As(err, &rule) && rule.Index == len(seq):
		return "rule end"
	case errors.As(err, &rule):
		return "rule " + strconv.Itoa(rule.Index)
	case errors.As(err, &memory) && memory.Index < 0:
		return "resident"
	case errors.As(err, &memory):
		return "deadlock"
	case errors.As(err, &host):
		return "host memory"
	case errors.As(err, &link):
		return "no link " + strconv.Itoa(link.Index)
	case errors.Is(err, ErrNoSteadyState):
		return "no steady state"
	}
	return "unknown: " + err.Error()
}

// agree compares a simulation with the oracle's verdict; it returns the class of the trial.
func agree(k trial, v verdict) (class string, err error) {
	seq, err := Parse(k.Seq)
	if err != nil {
		return "", err
	}
	s, err := NewSimulator(k.Chain, k.link())
	if err != nil {
		return "", err
	}
	r, err := s.Run(seq, k.limits())
	if class = classOf(err, seq); class != v.class() {
		return class, fmt.Errorf("we say %q (%v), the oracle says %q (%s)", class, err, v.class(), v.Error)
	}
	if err != nil {
		return class, sameDeadlock(err, v)
	}
	period, _ := new(big.Rat).SetString(v.Period)
	switch {
	case s.player.period(s.costs.clock).Cmp(period) != 0:
		return class, fmt.Errorf("period %g, the oracle says %s", r.Period, v.Period)
	case r.Peak != v.Peak || r.HostPeak != v.Host || r.InOrderPeak != v.InOrder || r.Resident != v.Start:
		return class, fmt.Errorf("peak, host's, in order, resident %d %d %d %d, the oracle says %d %d %d %d",
			r.Peak, r.HostPeak, r.InOrderPeak, r.Resident, v.Peak, v.Host, v.InOrder, v.Start)
	case r.WarmUp != v.WarmUp || r.Repeats != v.Repeats:
		return class, fmt.Errorf("%d steps after %d, the oracle says %d after %d", r.Repeats, r.WarmUp, v.Repeats, v.WarmUp)
	}
	if err := sameBusy(s, seq, v); err != nil {
		return class, err
	}
	return class, sameStarts(s, seq, v)
}

// sameDeadlock compares the op that both programs name first, and its bytes.
func sameDeadlock(err error, v verdict) error {
	var memory *MemoryError
	if !errors.As(err, &memory) || memory.Index < 0 {
		return nil
	}
	want := fmt.Sprintf("memory limit: deadlock in step %d: %v needs %d bytes, %d are in use of %d", memory.Step, memory.Op, memory.Needed-memory.InUse,
		memory.InUse, memory.Limit)
	if rest, ok := strings.CutPrefix(v.Error, want); !ok || rest != "" && rest[0] != ';' {
		return fmt.Errorf("we say %v, the oracle says %s", err, v.Error)
	}
	return nil
}

// sameBusy compares the busy time of every stream.
func sameBusy(s *Simulator, seq Sequence, v verdict) error {
	names := [streams]string{"compute", "up", "down", "host"}
	if !s.link.Duplex {
		names[ToDevice], names[ToHost] = "link", "link"
	}
	sum := map[string]*big.Rat{}
	for i, task := range s.ledger.tasks {
		if stream, runs := StreamOf(seq[i].Kind); runs {
			if sum[names[stream]] == nil {
				sum[names[stream]] = new(big.Rat)
			}
			sum[names[stream]].Add(sum[names[stream]], s.costs.clock.exact(task.ticks, 1))
		}
	}
	for name, text := range v.Busy {
		want, _ := new(big.Rat).SetString(text)
		if got := sum[name]; got == nil && want.Sign() != 0 || got != nil && got.Cmp(want) != 0 {
			return fmt.Errorf("%s is busy for %v, the oracle says %s", name, got, text)
		}
	}
	return nil
}

// sameStarts compares every start of every step that was played.
func sameStarts(s *Simulator, seq Sequence, v verdict) error {
	if len(s.player.starts) != len(v.Trace) {
		return fmt.Errorf("%d starts, the oracle has %d", len(s.player.starts), len(v.Trace))
	}
	for i, got := range s.player.starts {
		row := v.Trace[i]
		at, _ := new(big.Rat).SetString(row[2].(string))
		if got.step != int(row[0].(float64)) || seq[got.position].String() != row[1] || s.costs.clock.exact(got.at, 1).Cmp(at) != 0 ||
			got.used != int64(row[3].(float64)) {
			return fmt.Errorf("start %d: %v of step %d at %v with %d bytes, the oracle says %v", i, seq[got.position], got.step,
				s.costs.clock.exact(got.at, 1), got.used, row)
		}
	}
	return nil
}

// TestOracleAgrees feeds Simulate and oracle/check_state.py with the same random plans, valid and broken, with and without microbatches,
// recomputation, transfers of activations, limits and clipping. They must agree on the verdict and on the op that breaks a rule or never
// starts. They must also agree on the exact period, all peaks, the busy time of each stream, and every start. PLIMSOLL_CYCLES is the number
// of plans.
func TestOracleAgrees(t *testing.T) {
	t.Parallel()
	total := 5000
	if testing.Short() {
		total = 1000
	}
	if n, err := strconv.Atoi(os.Getenv("PLIMSOLL_CYCLES")); err == nil {
		total = n
	}
	count := map[string]int{}
	const batch = 1000
	for first := 0; first < total; first += batch {
		rng := rand.New(rand.NewPCG(30, uint64(first)))
		trials := make([]trial, min(batch, total-first))
		for i := range trials {
			trials[i] = randomTrial(rng)
		}
		for i, v := range judgeAll(t, trials) {
			if v.Error == "none" {
				count["no verdict"]++
				continue
			}
			class, err := agree(trials[i], v)
			if err != nil {
				doc, _ := json.Marshal(trials[i])
				t.Fatalf("case %d: %v\n%s", first+i, err, doc)
			}
			trials[i].count(count, class, v)
		}
	}
	t.Log(count)
	if count["no verdict"]*1000 > total {
		t.Errorf("%d of %d cases have no verdict", count["no verdict"], total)
	}
	for kind, share := range leastShares {
		if count[kind]*share < total {
			t.Errorf("%d of %d cases %q, want at least one in %d", count[kind], total, kind, share)
		}
	}
}

// play parses and runs the sequence of a trial. The result is nil where the simulator refuses it.
func (k *trial) play(t *testing.T) (seq Sequence, s *Simulator, r *Result) {
	t.Helper()
	seq, err := Parse(k.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = NewSimulator(k.Chain, k.link()); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Run(seq, k.limits()); err != nil {
		return seq, s, nil
	}
	return seq, s, r
}
