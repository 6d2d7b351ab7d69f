package flush

import (
	"fmt"

	"plimsoll/planner/pipeline"
)

// dualPipeV: DualPipe folded into a V: two stages on each device, in eight phases. Where the original runs a forward and a
// backward overlapped on one device, this one runs them one after the other.
//
// For F = B = W of one stage: makespan 2m(F+B+W) + (P-1)F; 2P+1 activations, each of one stage, on every device.
func dualPipeV() recipe {
	return recipe{
		name: "dualpipe-v", summary: "DualPipe folded into a V: forwards and backwards of the two stages of a device in turn",
		paper: "DualPipe (DeepSeek-AI 2025); DualPipeV (Sea AI Lab 2025)", section: "DualPipeV",
		chunks: 2, split: true, shape: vee,
		accepts: func(devices, micros int) error {
			if micros < 2*devices {
				return fmt.Errorf("%d microbatches on %d devices: it needs at least two for each device: give %d or more", micros, devices, 2*devices)
			}
			return nil
		},
		order: func(n counts) order {
			return each(n.devices, func(r int) []op { return eightPhases(n, r) })
		},
	}
}

// eightPhases returns the work of rank r.
func eightPhases(n counts, r int) []op {
	p, h := n.devices, &hand{upper: r, lower: 2*n.devices - 1 - r}
	h.times(2*(p-r-1), h.f0)
	h.times(r+1, h.f0, h.f1)
	h.times(p-r-1, h.b1, h.weight, h.f1)
	h.times(n.micros-2*p+r+1, h.f0, h.b1, h.weight, h.f1, h.b0, h.weight)
	h.times(p-r-1, h.b1, h.weight, h.f1, h.b0, h.weight)
	for i := range 2 * (r + 1) { // the second half of this phase leaves its weight halves for the two last ones
		[]func(){h.b1, h.b0}[i%2]()
		if i < r+1 {
			h.weight()
		}
	}
	h.times(p-r-1, h.weight, h.b0)
	h.times(r+1, h.weight)
	return h.out
}

// hand deals the work of a rank's two stages, microbatches in order.
type hand struct {
	upper, lower int
	next         [2][2]int // microbatch of F and B of the upper and the lower stage
	out, waiting []op      // waiting: weight halves
}

func (h *hand) times(n int, steps ...func()) {
	for range n {
		for _, step := range steps {
			step()
		}
	}
}

func (h *hand) f0() { h.deal(pipeline.F, 0, h.upper) }
func (h *hand) f1() { h.deal(pipeline.F, 1, h.lower) }
func (h *hand) b0() { h.deal(pipeline.B, 0, h.upper) }
func (h *hand) b1() { h.deal(pipeline.B, 1, h.lower) }

func (h *hand) deal(kind pipeline.Kind, which, stage int) {
	next := &h.next[kind-pipeline.F][which]
	h.out = append(h.out, op{kind, stage, *next})
	if kind == pipeline.B {
		h.waiting = append(h.waiting, op{pipeline.W, stage, *next})
	}
	*next++
}

// weight is the longest waiting weight half.
func (h *hand) weight() { h.out, h.waiting = append(h.out, h.waiting[0]), h.waiting[1:] }
