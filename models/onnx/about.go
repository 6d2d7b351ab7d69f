package onnx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"plimsoll/internal/units"
	"plimsoll/kernels"
)

// mostNamed bounds how many parameters a sentence names.
const mostNamed = 4

// about describes the model: its layers and parameters, and the parts that an exporter has folded or left out, as far as the file tells.
func (m *importer) about() []string {
	all := []string{m.counts()}
	if made := m.madeUp(); made != nil {
		all = append(all, fmt.Sprintf("%s of the exporter's making (%s): it folds norms into convolutions and transposes matrices. Training begins with them as they are; "+
			"export with do_constant_folding=False and training=torch.onnx.TrainingMode.TRAINING to keep the model's own", counted(len(made), "parameter is", "parameters are"), named(made)))
	}
	if bare := m.withoutBias(); bare != nil {
		all = append(all, fmt.Sprintf("%s no bias and no norm behind (%s): some exporters leave out biases that are zero",
			counted(len(bare), "convolution or linear layer has", "convolutions and linear layers have"), named(bare)))
	}
	if unread := m.unread(); unread != nil {
		all = append(all, fmt.Sprintf("%s by no node, and are no parameters: %s", counted(len(unread), "initializer is read", "initializers are read"), named(unread)))
	}
	return all
}

// counts counts the layers with parameters, by kind, and the parameters.
func (m *importer) counts() string {
	kinds, tensors, elements := map[string]int{}, 0, int64(0)
	for _, s := range m.steps {
		if len(s.sources) > 0 {
			kinds[s.op.Kind()]++
		}
		for _, from := range s.sources {
			if from.tied {
				continue
			}
			n, _ := from.tensor.elements() // which was checked
			tensors, elements = tensors+1, elements+n
		}
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return fmt.Sprintf("%s; %s of %s numbers", strings.Join(all, ", "), units.Count(tensors, "tensor"), humanize.Comma(elements))
}

// madeUp lists parameters whose names no model has given.
func (m *importer) madeUp() (all []string) {
	for _, s := range m.steps {
		for _, from := range s.sources {
			if strings.HasPrefix(from.name, "onnx::") {
				all = append(all, fmt.Sprintf("%s of node %q", from.name, s.node))
			}
		}
	}
	return all
}

// withoutBias lists the weights of convolutions and linear layers that have neither a bias nor a norm behind them.
func (m *importer) withoutBias() (all []string) {
	normed := map[*step]bool{}
	for _, s := range m.steps {
		if _, norm := s.op.(kernels.BatchNorm); norm {
			normed[s.in[0]] = true
		}
	}
	for _, s := range m.steps {
		bias := true
		switch op := s.op.(type) {
		case kernels.Conv2D:
			bias = op.Bias
		case kernels.Linear:
			bias = op.Bias
		}
		if !bias && !normed[s] {
			all = append(all, s.sources[0].name)
		}
	}
	return all
}

// unread lists the initializers of numbers that no node reads.
func (m *importer) unread() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		if m.reads[name] == 0 && m.tensors[name].dtype == typeFloat {
			all = append(all, name)
		}
	}
	return all
}

func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

func named(names []string) string {
	text := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
