package checkpoint

import (
	"encoding/binary"
	"io"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
)

// Names that a file has beside those of weights and buffers: "optimizer.state0." and the weight's name for a state, the
// count of batches that PyTorch keeps beside the running statistics of every BatchNorm, and "AuxLogits." before those of
// the auxiliary classifier in torchvision's file of Inception v3, which ours has not.
const (
	statePrefix = "optimizer."
	auxPrefix   = "AuxLogits."
	countSuffix = ".num_batches_tracked"
	varSuffix   = ".running_var"
)

// fileName returns what a tensor is called in a file.
func fileName(t executor.Tensor) string {
	if strings.HasPrefix(t.Role, "state") {
		return statePrefix + t.Role + "." + t.Name
	}
	return t.Name
}

// fileShape returns a tensor's shape in a file. The tensors with four axes are those of convolutions: O,KH,KW,I in
// memory, O,I,KH,KW in files, as PyTorch has them.
func fileShape(t executor.Tensor) []int {
	s := t.Desc.Shape
	if len(s) == 4 {
		return []int{s[0], s[3], s[1], s[2]}
	}
	return append([]int{}, s...)
}

// Batches are how many batches the running statistics of each BatchNorm have seen, which PyTorch counts beside them: by the name of
// its module as many as were counted when a run began, and as many as all have seen since.
type Batches struct {
	Before map[string]int64
	Since  int64
}

// collect describes the tensors of a model as a file has them.
func collect(from Source, kept roles, batches Batches) []safetensors.Tensor {
	var all []safetensors.Tensor
	c := &copier{}
	for _, t := range from.Tensors() {
		if !kept(t.Role) {
			continue
		}
		all = append(all, safetensors.Tensor{
			Info: safetensors.Info{Name: fileName(t), DType: safetensors.F32, Shape: fileShape(t)},
			Data: func(w io.Writer) error { return c.save(w, from, t) },
		})
		if module, ok := strings.CutSuffix(t.Name, varSuffix); ok && t.Role == "buffer" {
			all = append(all, safetensors.Tensor{
				Info: safetensors.Info{Name: module + countSuffix, DType: safetensors.I64},
				Data: func(w io.Writer) error {
					return binary.Write(w, binary.LittleEndian, batches.Before[module]+batches.Since)
				},
			})
		}
	}
	return all
}

// copier moves tensors between a model and a file, one at a time, in memory for the largest of them.
type copier struct{ model, file []float32 }

// fit returns both buffers with room for t. They are one and the same when its layout in files is that in memory.
func (c *copier) fit(t executor.Tensor) (model, file []float32) {
	n := int(t.Desc.Elements())
	if len(c.model) < n {
		c.model = make([]float32, n)
	}
	if len(t.Desc.Shape) != 4 {
		return c.model[:n], c.model[:n]
	}
	if len(c.file) < n {
		c.file = make([]float32, n)
	}
	return c.model[:n], c.file[:n]
}

func (c *copier) save(w io.Writer, from Source, t executor.Tensor) error {
	model, file := c.fit(t)
	if err := from.Read(t, model); err != nil {
		return err
	}
	if s := t.Desc.Shape; len(s) == 4 {
		swap(file, model, s[0], s[1]*s[2], s[3])
	}
	return safetensors.WriteFloat32(w, file)
}

// read returns what a tensor of a file is in the model.
func (c *copier) read(from stored, t executor.Tensor) ([]float32, error) {
	model, file := c.fit(t)
	if err := from.file.Float32(from.name, file); err != nil {
		return nil, err
	}
	if s := t.Desc.Shape; len(s) == 4 {
		swap(model, file, s[0], s[3], s[1]*s[2])
	}
	return model, nil
}

// swap exchanges the two inner axes: dst[n][columns][rows] = src[n][rows][columns].
func swap(dst, src []float32, n, rows, columns int) {
	area := rows * columns
	for i := range n {
		d, s := dst[i*area:(i+1)*area], src[i*area:(i+1)*area]
		for r := range rows {
			for c := range columns {
				d[c*rows+r] = s[r*columns+c]
			}
		}
	}
}
