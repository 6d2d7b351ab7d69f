package models

import "plimsoll/kernels"

// Parameter is a trained parameter or a buffer (running statistics) of a model.
type Parameter struct {
	Name    string // unique in the model, as torchvision calls it: "layer1.0.conv1.weight"
	Layer   int    // ℓ, whose Params block holds it
	Desc    kernels.Desc
	Trained bool // false for buffers and frozen weights: no gradient, no update
	// Frozen is true for a weight that its op could train and that stays as it is: see Config.Freeze.
	Frozen bool
	// Constant is true for a frozen weight that the model fills and no file has.
	Constant bool
	Value    Ref // in Params
	Grad     Ref // in Grads; zero where nothing is trained

	// Of is the parameter of an earlier layer that this one is, and whose gradient gets the sum of both; nil: it is its own. Where
	// one memory has both layers, Value and Grad of the two are one tensor and two gradients; else each has a copy at Value.
	Of *Parameter
	// Parts are how files hold it; nil: as one tensor with its name and shape, that of a convolution with the channels in front. The
	// weight of a Linear behind an image always has one: see Part.Area.
	Parts []Part

	// Matrix is the extent of a weight of a linear layer or a convolution (outputs x rest) but the model's last, the head; zero: the
	// parameter is none of these. Optimizers for matrices of hidden layers read it. Its type is that of the layer's products.
	Matrix kernels.Matrix

	Start         Distribution // what Init fills it with
	StartScale    float64      // of its deviation; 0 means 1
	FanIn, FanOut int
	// Fill writes the elements that it starts with, in place of Start; nil: Start does. See Source.
	Fill func(dst []float32)
}

// Role names the parameter's kind among the tensors of a model's state: "weight", "buffer" or "constant".
func (p Parameter) Role() string {
	switch {
	case p.Constant:
		return "constant"
	case p.Statistic():
		return "buffer"
	}
	return "weight"
}

// Statistic reports whether the parameter is a buffer, which forward moves: a running statistic.
func (p Parameter) Statistic() bool { return !p.Trained && !p.Frozen }

// fileNames returns the names of the parameter, or of each of its parts, in files.
func (p Parameter) fileNames() []string {
	if len(p.Parts) == 0 {
		return []string{p.Name}
	}
	all := make([]string, len(p.Parts))
	for i, part := range p.Parts {
		all[i] = part.Name
	}
	return all
}

// Matrices returns the extents that an optimizer for hidden layers' matrices goes by, row by row of the parameter. Where files have a
// matrix as several tensors, they are those of the tensors. They are zero where the parameter is no such matrix.
func (p Parameter) Matrices() []kernels.Matrix {
	if !p.Matrix.Is() || len(p.Parts) < 2 {
		return []kernels.Matrix{p.Matrix}
	}
	all := make([]kernels.Matrix, len(p.Parts))
	for i, part := range p.Parts {
		all[i] = p.Matrix
		all[i].Rows = int64(part.Rows)
	}
	return all
}

// Updates cuts an update of a parameter, or of some of its elements, into updates by rule u: one of each of Matrices where u
// orthogonalizes them, otherwise one.
func (p Parameter) Updates(u kernels.Update, o kernels.UpdateOperands) (all []kernels.UpdateOperands) {
	o.Vector = len(p.Desc.Shape) < 2
	if !p.Matrix.Muons(u) {
		return []kernels.UpdateOperands{o}
	}
	at := int64(0)
	for _, m := range p.Matrices() {
		all = append(all, o.Rows(m, at))
		at += m.Rows * m.Columns * kernels.Float32.Size()
	}
	return all
}

// Part is a tensor of a file that holds a parameter, or some of its rows.
type Part struct {
	Name string
	Rows int // of the parameter's first axis, behind those of the parts before
	// Transposed says that the file has the matrix's columns as rows.
	Transposed bool
	// Area is the number of pixels of the image that a Linear reads. Memory has a row as H*W,C; the file has it as C,H*W, because
	// PyTorch flattens an image in that order. 0: the file has rows as memory has them.
	Area int
	// Shape gives the tensor of the file other axes of 1 than the parameter has; nil: both have the same axes.
	Shape []int
}

// Distribution says what a parameter starts with.
type Distribution uint8

const (
	Zeros Distribution = iota
	Ones
	// KaimingFanIn and KaimingFanOut are normal with variance 2/fan (He et al. 2015, Delving deep into rectifiers,
	// section 2.2, equations 10 and 14).
	KaimingFanIn
	KaimingFanOut
	// UniformFanIn is uniform in ±1/sqrt(fan_in).
	UniformFanIn
	// NormalTenth, NormalFiftieth and NormalHundredth are normal with a deviation of 0.1, of 0.02 and of 0.01.
	NormalTenth
	NormalFiftieth
	NormalHundredth
)
