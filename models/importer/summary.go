package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll/kernels"
)

// Summary describes a model that was read: its layers and parameters, and parts that an exporter has left out, as far as the graph tells.
type Summary struct{ m *importer }

// Layers counts the ops with parameters, by kind.
func (s *Summary) Layers() string {
	kinds := map[string]int{}
	for _, step := range s.m.steps {
		if len(step.sources) > 0 {
			kinds[step.op.Kind()]++
		}
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return strings.Join(all, ", ")
}

// Parameter is a tensor of the file that is a parameter of a layer, or a buffer.
type Parameter struct {
	Name     string
	Node     string // that reads it
	Label    string // of that node
	Trained  bool
	Frozen   bool // it would train, and the file says that it does not
	Fixed    bool // a statistic of a norm that computes with it and leaves it as it is
	Elements int64
}

// Parameters lists them in the order of the layers, each once.
func (s *Summary) Parameters() (all []Parameter) {
	for _, step := range s.m.steps {
		descs := step.inputs()
		norm, _ := step.op.(kernels.BatchNorm)
		for i, p := range step.op.Params(descs) {
			if from := step.sources[i]; from.tied == 0 && !from.constant {
				all = append(all, Parameter{from.name, step.node, step.label, p.Trained && !from.tensor.Frozen, p.Trained && from.tensor.Frozen, norm.Frozen && !p.Trained, p.Desc.Elements()})
			}
		}
	}
	return all
}

// Reader returns the label of a node that reads a tensor of the file and that the output needs; "": there is none.
func (s *Summary) Reader(name string) string {
	if n := s.m.readers[name]; n != nil {
		return n.Label
	}
	return ""
}

// WithoutBias lists the weights of convolutions and linear layers that have neither a bias nor a norm behind them.
func (s *Summary) WithoutBias() (all []string) {
	normed := map[*step]bool{}
	for _, step := range s.m.steps {
		if _, norm := step.op.(kernels.BatchNorm); norm {
			normed[step.in[0]] = true
		}
	}
	for _, step := range s.m.steps {
		bias := true
		switch op := step.op.(type) {
		case kernels.Conv2D:
			bias = op.Bias
		case kernels.Linear:
			bias = op.Bias
		}
		if !bias && !normed[step] {
			all = append(all, step.sources[0].name)
		}
	}
	return all
}

// Unread lists the initializers of numbers that no node reads.
func (s *Summary) Unread() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.m.Tensors)) {
		if s.m.reads[name] == 0 && s.m.Tensors[name].DType == Float32 {
			all = append(all, name)
		}
	}
	return all
}
