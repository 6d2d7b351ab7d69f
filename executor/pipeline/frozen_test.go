package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/host"
)

var (
	loraLlama = sample{"llama-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50, LoRA: models.LoRA{Rank: 2, Alpha: 4, Targets: "q_proj+v_proj+down_proj"}}}
	frozenGPT = sample{"gpt2-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50, Freeze: "transformer.wte,transformer.h.0,*ln_2,*c_fc.bias"}}
	frozenNet = sample{"resnet20", models.Config{Batch: 2, Image: 16, Classes: 5, Freeze: "conv1,bn1,layer1,*conv2.weight"}}
	adamW     = kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}
)

// Plans for partly frozen models train the weights of the reference, at exactly the predicted peak. This peak is below the peak of the
// model that trains as a whole.
func TestFrozenPlansTrainAsTheReference(t *testing.T) {
	t.Parallel()
	for _, z := range []sample{frozenGPT, loraLlama} {
		m, err := models.New(z.name, z.config)
		must(t, err)
		everyPlan(t, m)
		if z.config.Freeze == "" {
			continue
		}
		z.config.Freeze = ""
		whole, err := models.New(z.name, z.config)
		must(t, err)
		some, all := workload(t, m), workload(t, whole)
		least, err := some.PeakBytes(some.StoreAll())
		must(t, err)
		most, err := all.PeakBytes(all.StoreAll())
		must(t, err)
		if least >= most || some.StaticBytes() >= all.StaticBytes() {
			t.Errorf("%s: peak %d, static %d; all trains: %d and %d", z.name, least, some.StaticBytes(), most, all.StaticBytes())
		}
	}
}

// Plans that move weights train models of which parts are frozen as plans that keep everything on the device do.
func TestFrozenResidencyTrainsAsResident(t *testing.T) {
	t.Parallel()
	seen := residencyPlans(t, []cyclicCase{{loraLlama, adamW}, {frozenGPT, adamW}, {frozenNet, optimizer}}, []float64{0.85, 0.5})
	for _, what := range []string{"plan", "again", "H", "U", "Pw"} {
		if seen[what] < 1 {
			t.Errorf("%d of %q: %v", seen[what], what, seen)
		}
	}
}

// Every strategy for several devices trains models of which parts are frozen, whole stages among them.
func TestEveryStrategyTrainsFrozenModels(t *testing.T) {
	t.Parallel()
	on := bed{targets(t, 1, host.Config{})[0].Library, func(t testing.TB, n int) []executor.Target { return targets(t, n, host.Config{}) }}
	lora := loraLlama
	lora.name = "llama-3-16"
	on.train(t, []sample{frozenNet, lora}, []int{3})
}

// Whatever is frozen, at random, plans under limits train the weights of the reference, at exactly the predicted peak.
func TestRandomFrozenPlans(t *testing.T) {
	t.Parallel()
	ran := 0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 11))
		z := sample{"gpt2-4-32", models.Config{Batch: 2, Image: 20, Classes: 30}}
		all, err := models.New(z.name, z.config)
		must(t, err)
		var names []string
		for _, q := range all.Params() {
			if q.Trained && r.IntN(2) == 0 {
				names = append(names, q.Parts[0].Name)
			}
		}
		z.config.Freeze = strings.Join(names, ",")
		m, err := models.New(z.name, z.config)
		must(t, err)
		w := workload(t, m)
		want := accumulated(t, w, feedOf(m), 3, 1, 0, noStep)
		peak, err := w.PeakBytes(w.StoreAll())
		must(t, err)
		c := unequal(w.Chain())
		c.Bandwidth = float64(c.Saved(2)) / 2
		for _, name := range []string{"rotor", "pofo"} {
			i := slices.IndexFunc(planner.Sequences(), func(s pipeline.Strategy) bool { return s.Name == name })
			limit := w.StaticBytes() + (peak-w.StaticBytes())*int64(60+r.IntN(35))/100
			plan, err := executor.Plan(t.Context(), w, c, planner.Sequences()[i], limit, strategy.Options{})
			if errors.As(err, new(*executor.TooSmallError)) {
				continue
			}
			must(t, err)
			expectReference(t, fmt.Sprintf("%s, --freeze %s", name, z.config.Freeze), w, c, plan, limit, want, host.Config{Chaos: seed})
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("only %d plans ran", ran)
	}
}
