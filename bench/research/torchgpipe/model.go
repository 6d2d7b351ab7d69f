package main

import (
	"fmt"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/runtime/host"
)

// wanted says which model is compiled.
type wanted struct {
	model   string // of the zoo
	image   int
	batch   int
	classes int
	state   int // how many values the optimizer keeps for each parameter, 0 or 1
}

// compiled builds and compiles a model: sizes are those of the processor's kernels. Nothing is allocated or run.
func compiled(x wanted) (*pipe.Workload, error) {
	m, err := models.New(x.model, models.Config{Batch: x.batch, Image: x.image, Classes: x.classes})
	if err != nil {
		return nil, err
	}
	dev, err := host.New(host.Config{Memory: 1, HostMemory: 1})
	if err != nil {
		return nil, err
	}
	defer dev.Close() //nolint:errcheck // it has run nothing
	lib, err := library.Open(dev, library.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	optimizer := kernels.SGD{}
	if x.state > 0 {
		optimizer.Momentum = 0.9
	}
	return pipe.Compile(m, lib, optimizer)
}

// modelName returns the zoo's name of a family's model.
func modelName(family string, s size) string { return fmt.Sprintf("%s-%d-%d", family, s[0], s[1]) }

// counted returns a model's chain with a time for every layer that follows its multiplications. It is the time of a device that does
// 10^12 a second, and a microsecond more. Each half of the backward takes as long. It serves where only the order of events matters.
func counted(w *pipe.Workload) *chain.Chain {
	c := w.Chain()
	for i, layer := range w.Model.Layers {
		l := &c.Layers[i]
		l.ForwardS = 1e-6 + float64(multiplications(layer))/1e12
		half := l.ForwardS
		l.BackwardS, l.BackwardInputS, l.BackwardWeightS = 2*half, &half, &half
	}
	return c
}

// multiplications returns the number of multiplications by a layer's trained parameters: each is used once for every
// place of its op's output.
func multiplications(l *models.Layer) (sum int64) {
	for i, node := range l.Nodes {
		out := l.Desc(models.Value(i + 1))
		places := out.Elements() / int64(out.Shape[len(out.Shape)-1])
		for _, p := range node.Params {
			if p.Trained {
				sum += places * p.Desc.Elements()
			}
		}
	}
	return sum
}

// timed returns a model's chain, whose sizes are exact for its batch, with the times of a chain that was measured for
// another one. Times grow with the images, and factor is the speed of the measured device over that of the wanted one.
func timed(w *pipe.Workload, measured *chain.Chain, factor float64) (*chain.Chain, error) {
	c := w.Chain()
	if c.Len() != measured.Len() || measured.Batch < 1 {
		return nil, fmt.Errorf("the measured chain %q has %d layers and a batch of %d: want the %d layers of %s", measured.Name, measured.Len(), measured.Batch, c.Len(), c.Name)
	}
	factor *= float64(c.Batch) / float64(measured.Batch)
	for i := range c.Layers {
		l, from := &c.Layers[i], &measured.Layers[i]
		if l.Name != from.Name {
			return nil, fmt.Errorf("layer %d of the measured chain %q is %q, that of %s is %q", i+1, measured.Name, from.Name, c.Name, l.Name)
		}
		l.ForwardS, l.BackwardS = factor*from.ForwardS, factor*from.BackwardS
		l.BackwardInputS, l.BackwardWeightS = halves(from, l.BackwardS)
	}
	return c, c.Validate()
}

// halves returns the two halves of a backward that takes so long, in the proportion in which they were measured; nil where
// they were not.
func halves(from *chain.Layer, backward float64) (input, weight *float64) {
	if from.BackwardInputS == nil || from.BackwardWeightS == nil {
		return nil, nil
	}
	share := 0.5
	if sum := *from.BackwardInputS + *from.BackwardWeightS; sum > 0 {
		share = *from.BackwardInputS / sum
	}
	a, b := share*backward, (1-share)*backward
	return &a, &b
}
