package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

// large returns all forwards and then all backwards of 16 stages on 8 devices, 128 microbatches, timed.
func large(b *testing.B) pipelinetest.Case {
	const stages, devices, microbatches = 16, 8, 128
	rnd := rand.New(rand.NewPCG(1, 1))
	k := pipelinetest.Case{Chain: pipelinetest.Chain(rnd, 10*stages, true), Platform: pipeline.NewPlatform(devices, pipeline.NoLimit, 12e9)}
	k.Plan = &pipeline.Plan{Versions: pipeline.Flush, Microbatches: microbatches}
	for s := range stages {
		k.Plan.Stages = append(k.Plan.Stages, pipeline.Stage{First: 10*s + 1, Last: 10*s + 10, Devices: []int{s % devices}})
		for m := range microbatches {
			for kind, rank := range map[pipeline.Kind]int{F: 2 * s, CF: 2*s + 1, CB: 4*stages - 2*s - 1, B: 4*stages - 2*s} {
				if !kind.Communication() || s+1 < stages {
					k.Plan.Tasks = append(k.Plan.Tasks, pipeline.Task{Kind: kind, Stage: s, Device: s % devices, Shift: m, Start: float64(rank*microbatches + m)})
				}
			}
		}
	}
	timed, err := pipeline.Timed(k.Chain, k.Platform, k.Plan)
	if err != nil {
		b.Fatal(err)
	}
	k.Plan = timed
	return k
}

func BenchmarkCheck(b *testing.B) {
	for _, k := range []pipelinetest.Case{staircase(), large(b)} {
		b.Run(fmt.Sprint(len(k.Plan.Tasks)), func(b *testing.B) {
			for b.Loop() {
				if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSimulate(b *testing.B) {
	for _, k := range []pipelinetest.Case{staircase(), large(b)} {
		b.Run(fmt.Sprint(len(k.Plan.Tasks)), func(b *testing.B) {
			for b.Loop() {
				if _, err := pipeline.Simulate(k.Chain, k.Platform, k.Plan, pipeline.Noise{Fraction: 0.1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Data parallelism of 110 layers: on links with room, and on some for which the period is stretched.
func BenchmarkSynchronize(b *testing.B) {
	for _, devices := range []int{8, 64} {
		for _, load := range []float64{0.3, 1.3} {
			k := dataParallel(devices, load)
			b.Run(fmt.Sprintf("%d devices, links used for %g periods", devices, load), func(b *testing.B) {
				for b.Loop() {
					if _, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
