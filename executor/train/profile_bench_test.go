package train

import (
	"fmt"
	"testing"

	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
)

// BenchmarkProfileInWindows compares a profile along windows of layers, in the memory of the smallest plan, with a profile along the whole
// model. The two are taken in turns. The metrics are the ratios of the times of all forwards and of all backwards, medians over the rounds.
// The last column is the same ratio of two profiles along the whole model: the effect of the machine's noise alone. Run with -benchtime 9x.
func BenchmarkProfileInWindows(b *testing.B) {
	for _, c := range []smallCase{{model: "resnet50", image: 64, batch: 32}, {model: "resnet56", image: 32, batch: 64}, {model: "densenet121", image: 64, batch: 16}, {model: "unet", image: 64, batch: 16}} {
		b.Run(fmt.Sprintf("%s/%dx%d", c.model, c.batch, c.image), func(b *testing.B) {
			j, err := Open(Spec{Model: c.model, Config: models.Config{Batch: c.batch, Image: c.image}, Data: "digits", Seed: 5, Devices: "cpu", Update: kernels.SGD{}})
			if err != nil {
				b.Fatal(err)
			}
			kinds := planner.Kinds(j.Work.Chain())
			smallest, err := j.Smallest(b.Context(), kinds[len(kinds)-1])
			if err != nil {
				b.Fatal(err)
			}
			profile := func(limit int64) (forward, backward float64) {
				p, err := j.Profile(b.Context(), Measure{Warmup: 1, Repeats: 3, Limit: limit})
				if err != nil {
					b.Fatal(err)
				}
				return times(p)
			}
			var forwards, backwards, noise []float64
			for b.Loop() {
				wholeF, wholeB := profile(0)
				smallF, smallB := profile(smallest)
				againF, againB := profile(0)
				forwards, backwards = append(forwards, 2*smallF/(wholeF+againF)), append(backwards, 2*smallB/(wholeB+againB))
				noise = append(noise, (againF+againB)/(wholeF+wholeB))
			}
			b.ReportMetric(stats.Median(forwards), "forward-ratio")
			b.ReportMetric(stats.Median(backwards), "backward-ratio")
			b.ReportMetric(stats.Median(noise), "noise-ratio")
		})
	}
}

func times(c *chain.Chain) (forward, backward float64) {
	for i := range c.Layers {
		forward += c.Layers[i].ForwardS
		backward += c.Layers[i].BackwardS
	}
	return forward, backward
}
