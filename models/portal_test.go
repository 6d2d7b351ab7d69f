package models_test

import (
	"fmt"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// The skip of each level of a U-Net goes from the last layer on the way down to the first on the way up.
func TestSkipsOfAUNet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ convs, width int }{{1, 4}, {2, 16}, {3, 8}, {6, 2}} {
		for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
			m := build(t, fmt.Sprintf("unet-%d-%d", c.convs, c.width), models.Config{Batch: 2, Image: 32, Classes: 5, DType: d})
			number := map[string]int{}
			lasts := map[int]int{}
			for i, l := range m.Layers {
				number[l.Name] = i + 1
				var level, part int
				if n, _ := fmt.Sscanf(l.Name, "down%d.%d", &level, &part); n == 2 {
					lasts[level] = i + 1
				}
			}
			var want []models.Skip
			for level := 1; level <= 5; level++ {
				side := 32 >> (level - 1)
				want = append(want, models.Skip{
					From: lasts[level], To: number[fmt.Sprintf("up%d.1", level)],
					Bytes: kernels.Align(2 * int64(side*side*c.width<<(level-1)) * d.Size()),
				})
			}
			if got := m.Skips(); !slices.Equal(got, want) {
				t.Errorf("unet-%d-%d in %v: skips %v, want %v", c.convs, c.width, d, got, want)
			}
		}
	}
}

// Cells of an AmoebaNet hand on what they read themselves: nothing passes one untouched.
func TestModelsWithoutSkips(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"amoebanet-6-16", "resnet20", "densenet121", "inception_v3", "tiny", "siamese"} {
		m := build(t, name, models.Config{Batch: 2, Image: 96, Classes: 2})
		if skips := m.Skips(); len(skips) > 0 {
			t.Errorf("%s has skips %v", name, skips)
		}
		if m.Straight([]int{2, 4}) != m {
			t.Errorf("%s was rebuilt", name)
		}
	}
}

// Layers of a stage hold nothing that passes it, and one boundary has what its two stages have between them alone.
func TestStraightUNet(t *testing.T) {
	t.Parallel()
	m := build(t, "unet-1-4", models.Config{Batch: 2, Image: 32, Classes: 5})
	s := m.Straight([]int{3, 6, 9})
	var got string
	programs := compiled(t, s)
	for i, l := range s.Layers {
		got += fmt.Sprintf("%s %d %d\n", l.Name, programs[i].OutputBytes, programs[i].GradientBytes)
	}
	// Bytes of skips 1 to 5: 32768, 16384, 8192, 4096, 2048. Stage 0 makes 1, 2 and 3, which stages 3, 3 and 2 read.
	const want = `down1.1 40960 40960
down2.1 53248 53248
down3.1 59392 2048
down4.1 5120 5120
down5.1 6656 6656
bottom.1 6656 6656
up5.1 13312 13312
up4.1 10240 10240
up3.1 4096 4096
up2.1 40960 40960
up1.1 16384 16384
segment 64 64
loss 64 0
`
	if got != want {
		t.Errorf("outputs, and what goes to the next layer:\n%swant\n%s", got, want)
	}
	portals := []models.Portal{
		{From: 0, To: 2, Bytes: 8192, Offset: 2048, Exit: 1, Entry: 1},
		{From: 0, To: 3, Bytes: 32768 + 16384, Offset: 2048 + 8192, Exit: 2, Entry: 1},
	}
	if !slices.Equal(s.Portals, portals) {
		t.Errorf("portals %+v, want %+v", s.Portals, portals)
	}
	if !slices.EqualFunc(m.Params(), s.Params(), func(a, b models.Parameter) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Error("its parameters are others, or elsewhere")
	}
}
