package importer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// layerNorm is of the last axis.
func layerNorm(c *call) (*value, error) {
	if axis := c.int("axis", -1); axis != -1 && c.at(0) != nil && axis != len(c.at(0).shape)-1 {
		return nil, fmt.Errorf("attribute axis is %d of %v, and only the last, of a matrix or a sequence, is supported", axis, c.at(0).shape)
	}
	return c.rowNorm(kernels.LayerNorm{Epsilon: c.epsilon(), FromOne: scaledFromOne(c)}, 2)
}

// rmsNorm is of the last axis.
func rmsNorm(c *call) (*value, error) {
	return c.rowNorm(kernels.RMSNorm{Epsilon: c.epsilon(), FromOne: scaledFromOne(c)}, 1)
}

// rowNorm is a norm of each row of the last axis, of a matrix or a sequence, with so many parameters.
func (c *call) rowNorm(op kernels.Op, parameters int) (*value, error) {
	x, seen, err := c.rows(2, 3)
	if err != nil {
		return nil, err
	}
	var sources []source
	for i := range parameters {
		if c.at(1+i) == nil {
			sources = completed(c, op, x, sources)[:i+1]
			continue
		}
		if i == 0 && scaledFromOne(c) {
			p := c.at(1).fromOne
			sources = append(sources, source{name: cmp.Or(p.name, p.tensor.Name), tensor: p.tensor})
			continue
		}
		s, err := c.param(1+i, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	y, err := c.push(c.Node, op, as(x), sources, x)
	if err != nil {
		return nil, err
	}
	return seen(y), nil
}

// scaledFromOne reports whether the weight of a norm is a parameter and 1.
func scaledFromOne(c *call) bool {
	weight := c.at(1)
	return weight != nil && weight.fromOne != nil
}

// constantSource is a constant as a tensor that files could have.
func constantSource(c *call, name string, numbers []float64, dims ...int) source {
	t := &Tensor{DType: Float32, Frozen: true}
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
	}
	for _, v := range numbers {
		t.Raw = binary.LittleEndian.AppendUint32(t.Raw, math.Float32bits(float32(v)))
	}
	if c.Module != "" {
		name = c.Module + "." + name
	}
	for n := 2; c.used[name] != nil || c.Tensors[name] != nil; n++ {
		name = fmt.Sprintf("%s (%d)", name, n)
	}
	t.Name = name
	return source{name: name, tensor: t, constant: true}
}

// batchNormalization has ONNX's momentum, the share that running statistics keep.
func batchNormalization(c *call) (*value, error) {
	if c.int("training_mode", 0) == 0 && !c.trains() {
		return nil, fmt.Errorf("training_mode is 0, so it computes with its running statistics, and training here computes with those of the batch%s", c.Advice.Frozen)
	}
	return c.batchNorm(c.float("epsilon", 1e-5), complement(c.float("momentum", 0.9)), false)
}

// batchNorm has PyTorch's momentum, the share of the batch.
func batchNorm(c *call) (*value, error) {
	return c.batchNorm(c.float("epsilon", 1e-5), c.float("momentum", 0.1), c.int("frozen", 0) != 0)
}

func (c *call) batchNorm(epsilon, momentum float32, frozen bool) (*value, error) {
	x, err := c.tensor(0, 2, 4)
	if err != nil {
		return nil, err
	}
	var sources []source
	for i := 1; i < 5; i++ {
		s, err := c.param(i, asIs)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	if !(epsilon > 0) || !(momentum > 0 && momentum <= 1) {
		c.fail("epsilon is %v and the share of the batch in the running statistics is %v, and only positive ones are supported, the latter up to 1", epsilon, momentum)
	}
	return c.push(c.Node, kernels.BatchNorm{Epsilon: epsilon, Momentum: momentum, Frozen: frozen}, as(x), sources, x)
}

// trains reports whether a BatchNorm has the outputs that it had for training before it had an attribute for that.
func (c *call) trains() bool { return c.Attributes["training_mode"] == nil && len(c.Out) > 1 }

// complement is 1 - x of a number as it is written: 0.1 of 0.9.
func complement(x float32) float32 { return float32(1 - kernels.Decimal(x)) }

// completed adds the parameters that an op of a tensor lacks behind those that it has: a weight of ones, a bias of zeros.
func completed(c *call, op kernels.Op, x *value, have []source) []source {
	for _, p := range op.Params([]kernels.Desc{x.step.desc})[len(have):] {
		width := int(p.Desc.Elements())
		have = append(have, constantSource(c, p.Name, slices.Repeat([]float64{truthOf(p.Name == "weight")}, width), width))
	}
	return have
}
