package pipeline

import (
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

var (
	loraLlama = sample{"llama-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50, LoRA: models.LoRA{Rank: 2, Alpha: 4, Targets: "q_proj+v_proj+down_proj"}}}
	frozenGPT = sample{"gpt2-3-16-tied", models.Config{Batch: 2, Image: 12, Classes: 50, Freeze: "transformer.wte,transformer.h.0,*ln_2,*c_fc.bias"}}
	frozenNet = sample{"resnet20", models.Config{Batch: 2, Image: 16, Classes: 5, Freeze: "conv1,bn1,layer1,*conv2.weight"}}
	adamW     = kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}
)

// Plans for models of which parts are frozen train the weights of the reference, at exactly the predicted peak, which is less than that of the
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
