package flush

import (
	"testing"

	"plimsoll/planner/pipeline"
)

// The order and the times of a large schedule: 32 devices, 256 microbatches, without the check of the plan.
func BenchmarkSchedule(b *testing.B) {
	for _, r := range []recipe{oneForwardOneBackward(), zbH2(), zbV()} {
		b.Run(r.name, func(b *testing.B) {
			chunks := max(r.chunks, 1)
			p, err := r.place(pipeline.Request{
				Chain: uniform(32*chunks, 1, 1.1, 0.9), Platform: pipeline.NewPlatform(32, pipeline.NoLimit, 10),
				Options: pipeline.Options{Microbatches: 256},
			})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				r.schedule(p)
			}
		})
	}
}
