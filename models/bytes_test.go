package models_test

import (
	"fmt"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// The bytes of ResNet-50's first block at 224x224, batch 1, by hand. A map of 56x56 with 64 channels has 802,816
// bytes (call it m), with 256 channels 4m; statistics have 256 and 1024 bytes a tensor.
//
//   - a = 4m.
//   - ā is 16m + 5120. Its maps are the output 4m (mask of the last ReLU), conv1's, bn1's, conv2's, bn2's m each, conv3's 4m and the
//     projection's 4m. Its statistics are two for each of bn1, bn2 (256) and bn3, the projection's bn (1024). Not saved: the normalized
//     projection, because bn3 takes the mask from its own output.
//   - forward_all: the normalized projection lies where the output goes. Nothing else is temporary.
//   - forward that forgets: conv1 (m) lies where the output (4m) goes, as do conv2 and, in place, both norms. While conv3 writes 4m, bn2's
//     m lives. Then conv3's 4m and the projection's 4m live: one where the output goes, one in scratch.
//   - backward: bn3's gradients lie on its input (4m) and on δ (4m), and so on down: nothing needs scratch.
func TestBottleneckBytes(t *testing.T) {
	t.Parallel()
	const m = 56 * 56 * 64 * 4
	model := build(t, "resnet50", models.Config{Batch: 1, Image: 224, Classes: 1000})
	p := compiled(t, model)[1]
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"output", p.OutputBytes, 4 * m},
		{"saved", p.SavedBytes, 16*m + 5120},
		{"gradient", p.GradientBytes, 4 * m},
		{"forward_all overhead", p.Save.Scratch, 0},
		{"forward_checkpoint overhead", p.Forget.Scratch, 4 * m},
		{"backward overhead", p.Back.Scratch, 0},
		{"parameters", p.ParamBytes, 4*(64*64+64*64*9+2*64*256) + 8*256 + 8*1024},
		{"gradients", p.GradBytes, 4*(64*64+64*64*9+2*64*256) + 4*256 + 4*1024},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, c.got, c.want)
		}
	}
}

// The programs of the same block, call by call, each operand with its place.
func TestBottleneckProgramText(t *testing.T) {
	t.Parallel()
	model := build(t, "resnet50", models.Config{Batch: 1, Image: 224, Classes: 1000})
	p := compiled(t, model)[1]
	got := text("forward_all", p.Save) + text("forward_checkpoint", p.Forget) + text("backward", p.Back)
	golden(t, "bottleneck.txt", got)
}

// A gradient with several contributions, in this order: bn1 of a block that normalizes first adds to the sum's
// gradient, which is handed on, not copied.
func TestPreActivationProgramText(t *testing.T) {
	t.Parallel()
	model := build(t, "resnet164", models.Config{Batch: 1, Image: 32, Classes: 10})
	golden(t, "preactivation.txt", text("backward", compiled(t, model)[2].Back))
}

func text(name string, p models.Program) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: scratch %d\n", name, p.Scratch)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %s %s %v:", s.Name, s.Call.Op.Kind(), s.Call.Pass)
		operand(&b, "X", s.Refs.X...)
		operand(&b, "DY", s.Refs.DY)
		operand(&b, "Y", s.Refs.Y)
		for i, r := range s.Refs.DX {
			sign := "="
			if s.Call.Adds(i) {
				sign = "+"
			}
			operand(&b, "DX"+sign, r)
		}
		operand(&b, "Saved", s.Refs.Saved...)
		b.WriteString("\n")
	}
	return b.String()
}

func operand(b *strings.Builder, name string, refs ...models.Ref) {
	blocks := [...]string{"Input", "Output", "GradOutput", "GradInput", "Scratch", "Kept", "Params", "Grads", "Labels", "Scalars"}
	for _, r := range refs {
		if r.Bytes > 0 {
			fmt.Fprintf(b, " %s %s[%d:%d]", name, blocks[r.Block], r.Offset, r.Offset+r.Bytes)
		}
	}
}

// A gradient is asked for where it is used and nowhere else. Layer 1 has none for its input unless the model wants it, and ops before the
// first parameter have no backward at all.
func TestInputGradient(t *testing.T) {
	t.Parallel()
	for _, input := range []bool{false, true} {
		b := models.NewBuilder("pooled", kernels.F32(2, 4, 4, 3), 5)
		b.Layer("stem", "", func(g *models.Graph, x models.Value) models.Value {
			return g.Conv("conv", g.MaxPool("pool", x, 2, 2, 0), 4, 3, 1)
		})
		b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 5) })
		m, err := b.Model()
		must(t, err)
		m.InputGradient = input
		programs := compiled(t, m)
		checkLayer(t, m, programs, 1)
		var calls []string
		for _, s := range programs[0].Back.Steps {
			calls = append(calls, fmt.Sprint(s.Name, " ", s.Call.Pass))
		}
		want, saved := "conv backward_params", int64(128) // the convolution's input, 96 bytes
		if input {
			want += ", conv backward_input, pool backward"
			saved += 128 // the positions of the maxima
		}
		if got := strings.Join(calls, ", "); got != want {
			t.Errorf("input gradient %v: %s, want %s", input, got, want)
		}
		if got := programs[0].SavedBytes - programs[0].OutputBytes; got != saved {
			t.Errorf("input gradient %v: %d bytes saved beyond the output, want %d", input, got, saved)
		}
	}
}
