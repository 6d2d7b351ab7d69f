package planner

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// The rows of the table in docs/pipelines.md: what plans of a strategy may have.
var planFeatures = []struct {
	name string
	has  func(p *pipeline.Plan) bool
}{
	{"replicas", replicated},
	{"several stages of a device", severalStages},
	{"split backward", func(p *pipeline.Plan) bool { return slices.Contains(p.Split(), true) }},
	{"recomputation", (*pipeline.Plan).HasOps},
	{"offload", (*pipeline.Plan).Offloads},
	{"`--zero`", func(p *pipeline.Plan) bool { return p.Zero != pipeline.ZeroNothing && replicated(p) }},
}

func replicated(p *pipeline.Plan) bool {
	return slices.ContainsFunc(p.Stages, func(s pipeline.Stage) bool { return len(s.Devices) > 1 })
}

func severalStages(p *pipeline.Plan) bool {
	seen := map[int]bool{}
	for _, s := range p.Stages {
		for _, d := range s.Devices {
			if seen[d] {
				return true
			}
			seen[d] = true
		}
	}
	return false
}

// The table of docs/pipelines.md names for each feature the strategies of which some plan has it, and no other. Plans are of chains of equal and of unequal layers,
// over 2 and 4 devices. They have much memory and little, fast and slow links, and a link to the host or none.
func TestTableOfStrategies(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/pipelines.md")
	if err != nil {
		t.Fatal(err)
	}
	strategies := map[string][]string{}
	for _, s := range Pipelines() {
		if slices.Contains([]string{"ilp", "milp"}, s.Name) {
			continue // only where HiGHS is built in
		}
		for feature, has := range featuresOf(t, s) {
			if has {
				strategies[feature] = append(strategies[feature], "`"+s.Name+"`")
			}
		}
	}
	want := "| plans may have | strategies |\n|---|---|\n"
	for _, f := range planFeatures {
		want += fmt.Sprintf("| %s | %s |\n", f.name, strings.Join(strategies[f.name], ", "))
	}
	if !strings.Contains(string(doc), want) {
		t.Errorf("docs/pipelines.md lacks\n%s", want)
	}
}

// featuresOf returns the features of a strategy's plans.
func featuresOf(t *testing.T, s pipeline.Strategy) map[string]bool {
	t.Helper()
	has, plans := map[string]bool{}, 0
	for _, r := range requests() {
		plan, err := s.Solve(t.Context(), r)
		if err != nil {
			continue
		}
		if _, err := pipeline.Check(r.Chain, r.Platform, plan); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		plans++
		for _, f := range planFeatures {
			has[f.name] = has[f.name] || f.has(plan)
		}
	}
	if plans == 0 {
		t.Errorf("%s has no plan", s.Name)
	}
	return has
}

// requests returns the requests behind the table.
func requests() (all []pipeline.Request) {
	for _, skew := range []float64{0, 1} {
		c := &chain.Chain{Name: "layers", InputBytes: 4}
		for i := range 8 {
			half := 1 + skew*float64(i%3)
			c.Layers = append(c.Layers, chain.Layer{
				Name: fmt.Sprint("layer", i), ForwardS: half, BackwardS: 2 * half, BackwardInputS: &half, BackwardWeightS: &half,
				OutputBytes: 4, SavedBytes: 12, WeightBytes: 2 + int64(skew)*int64(i%4),
			})
		}
		for _, devices := range []int{2, 4} {
			for _, memory := range []int64{pipeline.NoLimit, 400, 150, 110, 90} {
				for _, link := range []float64{1, 1e3} {
					for _, host := range []float64{0, 100} {
						p := pipeline.NewPlatform(devices, memory, link)
						p.Host = host
						r := pipeline.Request{Chain: c, Platform: p}
						r.Accounting, r.Microbatches, r.TimeLimit = pipeline.Saved, 2*devices, time.Second
						if all = append(all, r); host == 0 {
							r.Zero = pipeline.ZeroShards
							all = append(all, r)
						}
					}
				}
			}
		}
	}
	return all
}
