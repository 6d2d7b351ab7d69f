package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"path/filepath"
	"slices"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/models"
)

// flattening are models in which a Linear reads an image: the name of its weight, and the extents of the image.
var flattening = []struct {
	model, weight           string
	height, width, channels int
}{
	{"mlp", "hidden1.fc.weight", 6, 6, 3},
	{"siamese", "fc1.weight", 2, 2, 128},
}

// flattened returns one of these models in memory, trained by an optimizer with one state.
func flattened(t testing.TB, name string, seed uint64) *memory {
	t.Helper()
	image, classes := 6, 5
	if name == "siamese" {
		image, classes = 16, 2
	}
	built, err := models.New(name, models.Config{Batch: 2, Image: image, Classes: classes})
	must(t, err)
	m := &memory{}
	for _, p := range built.Params() {
		roles := []string{"weight", "gradient", "state0"}
		if !p.Trained {
			roles = []string{"buffer"}
		}
		for _, role := range roles {
			m.add(p.Name, role, p.Desc.Shape...)
			m.tensors[len(m.tensors)-1].Parts = p.Parts
		}
	}
	m.fill(seed)
	return m
}

// Files have the columns of such a weight, and of its optimizer's state, in the order in which PyTorch flattens an image, C,H,W; memory
// has H,W,C.
func TestLinearBehindAnImageIsPyTorchs(t *testing.T) {
	t.Parallel()
	for _, c := range flattening {
		m := flattened(t, c.model, 1)
		path := save(t, encode(t, m, someMeta(3)))
		f, err := safetensors.Open(path)
		must(t, err)
		for role, prefix := range map[string]string{"weight": "", "state0": "optimizer.state0."} {
			memory := m.values[role+" of "+c.weight]
			file := make([]float32, len(memory))
			must(t, f.Float32(prefix+c.weight, file))
			columns, at := c.height*c.width*c.channels, 0
			for row := range len(memory) / columns {
				for k := range c.channels {
					for y := range c.height {
						for x := range c.width {
							if want := memory[row*columns+(y*c.width+x)*c.channels+k]; file[at] != want {
								t.Fatalf("%s: %s%s[%d] is %g in the file, want %g", c.model, prefix, c.weight, at, file[at], want)
							}
							at++
						}
					}
				}
			}
		}
		must(t, f.Close())
	}
}

// Checkpoints and exported weights load again, bit for bit.
func TestLinearBehindAnImageComesBack(t *testing.T) {
	t.Parallel()
	for _, c := range flattening {
		from := flattened(t, c.model, 1)
		restoredFrom(t, encode(t, from, someMeta(3)), from, flattened(t, c.model, 2))
		path, into := filepath.Join(t.TempDir(), "final.safetensors"), flattened(t, c.model, 2)
		must(t, Export(path, from, Batches{}, nil))
		imported(t, path, into)
		if name := differs(from, into, inference); name != "" {
			t.Errorf("%s: %s changed on its way out and in", c.model, name)
		}
	}
}

// Checkpoints of the first format, with columns in the order H,W,C, load bit for bit.
func TestFirstFormatIsReadRight(t *testing.T) {
	t.Parallel()
	for _, c := range flattening {
		from := flattened(t, c.model, 1)
		restoredFrom(t, firstFormatOf(t, from), from, flattened(t, c.model, 2))
	}
}

// firstFormatOf returns a checkpoint of the first format.
func firstFormatOf(t testing.TB, m *memory) []byte {
	t.Helper()
	plain := &memory{values: m.values}
	for _, x := range m.tensors {
		x.Parts = nil
		plain.tensors = append(plain.tensors, x)
	}
	b := encode(t, plain, someMeta(3))
	return resummed(t, bytes.Replace(b, []byte(Format), []byte("plimsoll.checkpoint/v1"), 1))
}

func restoredFrom(t testing.TB, file []byte, from, into *memory) {
	t.Helper()
	c, err := Open(save(t, file))
	must(t, err)
	must(t, c.Restore(into))
	must(t, c.Close())
	if name := differs(from, into, training); name != "" {
		t.Errorf("%s changed in a checkpoint", name)
	}
}

// resummed returns a checkpoint with a new checksum.
func resummed(t testing.TB, b []byte) []byte {
	t.Helper()
	end := len(b) - sha256.Size
	sum := sha256.Sum256(b[:end])
	return append(b[:end:end], sum[:]...)
}

// A tensor whose axes of 1 are others in files has them there, and is read back from them.
func TestFilesHaveTheirOwnAxesOfOne(t *testing.T) {
	t.Parallel()
	of := func(seed uint64) *memory {
		m := &memory{}
		m.add("token", "weight", 1, 3)
		m.tensors[0].Parts = []models.Part{{Name: "token", Rows: 1, Shape: []int{1, 1, 3}}}
		m.fill(seed)
		return m
	}
	from, into := of(1), of(2)
	restoredFrom(t, encode(t, from, someMeta(3)), from, into)
	f, err := safetensors.Open(save(t, encode(t, from, someMeta(3))))
	must(t, err)
	if x, is := f.Tensor("token"); !is || !slices.Equal(x.Shape, []int{1, 1, 3}) {
		t.Errorf("%+v", x)
	}
	must(t, f.Close())
}
