package pipelinetest

import (
	_ "embed" // the judge of messages between replicas
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Case is a plan to be judged.
type Case struct {
	Chain    *chain.Chain       `json:"chain"`
	Platform *pipeline.Platform `json:"platform"`
	Plan     *pipeline.Plan     `json:"plan"`
}

// Verdict is the independent checker's report on a plan.
type Verdict struct {
	Valid      bool      `json:"valid"`
	Unusable   bool      `json:"unusable"`
	Error      string    `json:"error"`
	Period     float64   `json:"period_s"`
	Makespan   float64   `json:"makespan_s"`
	Peaks      []float64 `json:"per_device_peak_bytes"` // nil when the plan is too broken to have figures
	Weights    []float64 `json:"per_device_weight_bytes"`
	Buffers    []int64   `json:"per_device_buffer_bytes"`
	Busy       []float64 `json:"per_device_busy_s"`
	NCA        []int     `json:"nca_per_stage"`
	Bubble     float64   `json:"bubble_fraction"`
	Normalized float64   `json:"normalized_period_s"`
	Warnings   []string  `json:"warnings"`
}

// driver judges messages between replicas beside the independent checker, which judges the rest.
//
//go:embed replicas.py
var driver string

// Judge lets the independent checker judge plans. The test is skipped where the checker or python3 is missing.
func Judge(t *testing.T, cases []Case) []Verdict {
	t.Helper()
	return shared.Judge[Case, Verdict](t, "check_pipeline.py", driver, cases)
}

// Agree lets both judges judge plans: same verdict, same figures. It returns how many are valid. The comparison is a
// subtest, skipped where the independent checker is missing.
func Agree(t *testing.T, cases []Case) (valid int) {
	t.Helper()
	errs := make([]error, len(cases))
	reports := make([]*pipeline.Report, len(cases))
	for i, c := range cases {
		if reports[i], errs[i] = pipeline.Check(c.Chain, c.Platform, c.Plan); errs[i] == nil {
			valid++
		}
	}
	t.Run("oracle", func(t *testing.T) {
		told := slices.Clone(cases)
		for i := range told {
			told[i].tell(reports[i])
		}
		for i, v := range Judge(t, told) {
			if reason := Differ(reports[i], errs[i], v); reason != "" {
				text, err := json.Marshal(cases[i])
				t.Errorf("plan %d: %s\nours: %+v, %v\noracle: %+v\n%s, %v", i, reason, reports[i], errs[i], v, text, err)
			}
		}
		t.Logf("%d plans judged alike, %d of them valid", len(cases), valid)
	})
	return valid
}

// tell adds the copies of weights of a plan with vertical_sync, which the independent checker does not know by itself. They are a
// version for each minibatch in flight in the first stage, and the gradient. Without a report any number will do.
func (c *Case) tell(r *pipeline.Report) {
	if c.Plan.Versions != pipeline.VerticalSync || len(c.Plan.WeightCopies) > 0 {
		return
	}
	plan := *c.Plan
	plan.WeightCopies = []float64{1}
	if r != nil {
		plan.WeightCopies[0] += float64(r.NCA[0])
	}
	c.Plan = &plan
}

// Accept demands that both judges accept all plans, with the same figures.
func Accept(t *testing.T, cases []Case) {
	t.Helper()
	for i, c := range cases {
		if _, err := pipeline.Check(c.Chain, c.Platform, c.Plan); err != nil {
			t.Errorf("plan %d (%s of %s): %v", i, c.Plan.Strategy, c.Plan.Chain, err)
		}
	}
	Agree(t, cases)
}

// Differ says what the two judges see differently; empty when nothing.
func Differ(r *pipeline.Report, err error, v Verdict) string {
	switch {
	case (err == nil) != v.Valid:
		return "the verdicts differ"
	case v.Unusable:
		return unusable(err)
	case (r == nil) != (v.Peaks == nil):
		return "only one judge has figures"
	case r == nil:
		return ""
	}
	for what, equal := range map[string]bool{
		"peaks":             slices.EqualFunc(r.PerDevicePeak, v.Peaks, roundedUp),
		"weights":           slices.EqualFunc(r.PerDeviceWeights, v.Weights, roundedUp),
		"buffers":           slices.Equal(r.PerDeviceBuffers, v.Buffers),
		"busy times":        slices.EqualFunc(r.PerDeviceBusy, v.Busy, near),
		"NCA":               slices.Equal(r.NCA, v.NCA),
		"bubbles":           near(r.Bubble, v.Bubble),
		"period":            near(r.Period, v.Period),
		"makespan":          near(r.Makespan, v.Makespan),
		"warnings":          len(r.Warnings) == len(v.Warnings) || !slices.EqualFunc(r.PerDevicePeak, v.Peaks, exactly),
		"normalized period": v.Normalized == 0 || near(r.PerMinibatch, v.Normalized),
	} {
		if !equal {
			return "different " + what
		}
	}
	return ""
}

// unusable: what one judge cannot judge, the other one refuses.
func unusable(err error) string {
	if !errors.Is(err, pipeline.ErrPlan) && !errors.Is(err, pipeline.ErrPlatform) && !errors.Is(err, pipeline.ErrInvalid) {
		return "no judgement, for another reason"
	}
	return ""
}

func roundedUp(ours int64, theirs float64) bool { return float64(ours) == math.Ceil(theirs) }

// exactly is false for fractions of bytes, which plans cannot predict.
func exactly(ours int64, theirs float64) bool { return float64(ours) == theirs }

func near(x, y float64) bool { return math.Abs(x-y) <= 1e-12*max(1, math.Abs(x), math.Abs(y)) }
