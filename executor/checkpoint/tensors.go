package checkpoint

import (
	"encoding/binary"
	"io"
	"regexp"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
)

// Source is the state that is saved.
type Source interface {
	Tensors() []executor.Tensor
	Read(t executor.Tensor, dst []float32) error
}

// Model is the state that is saved and loaded; *executor.Executor is one.
type Model interface {
	Source
	Write(t executor.Tensor, src []float32) error
}

// roles tells which tensors of a model a file holds.
type roles func(role string) bool

// inference are weights and buffers, training optimizer states as well. Gradients are in no file.
func inference(role string) bool { return role == "weight" || role == "buffer" }
func training(role string) bool  { return inference(role) || strings.HasPrefix(role, "state") }

// Names that a file has beside those of weights and buffers. A state has "optimizer.state0." and the weight's name. PyTorch keeps a count
// of batches beside the running statistics of every BatchNorm. Torchvision's file of Inception v3 has "AuxLogits." before the names of
// its auxiliary classifier, which our model lacks. Hugging Face's files of transformers have constants: the masks of GPT-2's attention,
// the frequencies of Llama's rotation. PEFT puts a prefix before the names of an adapter's.
const (
	statePrefix   = "optimizer."
	auxPrefix     = "AuxLogits."
	adapterPrefix = "base_model.model."
	countSuffix   = ".num_batches_tracked"
	varSuffix     = ".running_var"
)

var constant = regexp.MustCompile(`\.attn\.(masked_)?bias$|\.rotary_emb\.inv_freq$`)

// part is a tensor of a file, and the elements of a model's tensor that it holds.
type part struct {
	name          string
	shape         []int
	from, to      int // the elements
	n             int // matrices of so many rows and columns in memory, which the file has transposed; 0: it has them as they are
	rows, columns int
	image         bool // each matrix is a row of a Linear that reads an image
}

// parts returns the parts of a tensor in files. Tensors with four axes belong to convolutions: O,KH,KW,I in memory,
// O,I,KH,KW in files, as PyTorch has them.
func parts(t executor.Tensor) (all []part) {
	prefix, s := "", t.Desc.Shape
	if strings.HasPrefix(t.Role, "state") {
		prefix = statePrefix + t.Role + "."
	}
	if len(t.Parts) == 0 {
		p := part{name: prefix + t.Name, shape: append([]int{}, s...), to: int(t.Desc.Elements())}
		if len(s) == 4 {
			p.shape, p.n, p.rows, p.columns = []int{s[0], s[3], s[1], s[2]}, s[0], s[1]*s[2], s[3]
		}
		return []part{p}
	}
	row, at := int(t.Desc.Elements())/s[0], 0
	for _, x := range t.Parts {
		p := part{name: prefix + x.Name, shape: append([]int{x.Rows}, s[1:]...), from: at, to: at + x.Rows*row}
		switch {
		case x.Transposed:
			p.shape, p.n, p.rows, p.columns = []int{row, x.Rows}, 1, x.Rows, row
		case x.Area > 0:
			p.n, p.rows, p.columns, p.image = x.Rows, x.Area, row/x.Area, true
		case x.Shape != nil:
			if p.shape = x.Shape; len(s) == 4 { // of a convolution along one axis
				p.n, p.rows, p.columns = x.Rows, s[1]*s[2], s[3]
			}
		}
		all, at = append(all, p), p.to
	}
	return all
}

// Batches counts the batches that the running statistics of each BatchNorm have seen; PyTorch keeps this count beside them. Before
// has the counts when a run began, by the name of the module; Since counts the batches that all have seen since.
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
		for _, p := range parts(t) {
			all = append(all, safetensors.Tensor{
				Info: safetensors.Info{Name: p.name, DType: safetensors.F32, Shape: p.shape},
				Data: func(w io.Writer) error { return c.save(w, from, t, p) },
			})
		}
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

// copier moves tensors between a model and files, one at a time, in memory for the largest of them.
type copier struct{ model, file []float32 }

// room returns memory for n elements, that of before if it suffices.
func room(have *[]float32, n int) []float32 {
	if len(*have) < n {
		*have = make([]float32, n)
	}
	return (*have)[:n]
}

// fit returns memory for a tensor.
func (c *copier) fit(t executor.Tensor) []float32 { return room(&c.model, int(t.Desc.Elements())) }

// save writes a part of a tensor, which it reads with the first of them: the others follow.
func (c *copier) save(w io.Writer, from Source, t executor.Tensor, p part) error {
	model := c.fit(t)
	if p.from == 0 {
		if err := from.Read(t, model); err != nil {
			return err
		}
	}
	file := model[p.from:p.to]
	if p.n > 0 {
		file = room(&c.file, p.to-p.from)
		swap(file, model[p.from:p.to], p.n, p.rows, p.columns)
	}
	return safetensors.WriteFloat32(w, file)
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
