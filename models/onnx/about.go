package onnx

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"plimsoll/internal/units"
	"plimsoll/models/importer"
)

// mostNamed bounds how many parameters a sentence names.
const mostNamed = 4

// about describes the model: its layers and parameters, and the parts that an exporter has folded or left out, as far as the file tells.
func about(s *importer.Summary) []string {
	var made []string
	elements, parameters := int64(0), s.Parameters()
	for _, p := range parameters {
		if elements += p.Elements; strings.HasPrefix(p.Name, "onnx::") {
			made = append(made, fmt.Sprintf("%s of node %q", p.Name, p.Node))
		}
	}
	all := []string{fmt.Sprintf("%s; %s of %s numbers", s.Layers(), units.Count(len(parameters), "tensor"), humanize.Comma(elements))}
	if made != nil {
		all = append(all, fmt.Sprintf("%s of the exporter's making (%s): it folds norms into convolutions and transposes matrices. Training begins with them as they are; "+
			"export with do_constant_folding=False and training=torch.onnx.TrainingMode.TRAINING to keep the model's own", counted(len(made), "parameter is", "parameters are"), units.List(made, mostNamed)))
	}
	if bare := s.WithoutBias(); bare != nil {
		all = append(all, fmt.Sprintf("%s no bias and no norm behind (%s): some exporters leave out biases that are zero",
			counted(len(bare), "convolution or linear layer has", "convolutions and linear layers have"), units.List(bare, mostNamed)))
	}
	if unread := s.Unread(); unread != nil {
		all = append(all, fmt.Sprintf("%s by no node, and are no parameters: %s", counted(len(unread), "initializer is read", "initializers are read"), units.List(unread, mostNamed)))
	}
	return all
}

func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// advice is how to export what is refused.
var advice = importer.Advice{
	Outputs: ": export a model that makes logits, and nothing else, of one batch of images",
	Frozen:  ": export the model in training mode, as in torch.onnx.export(model.train(), ..., training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)",
	Batch:   `, as with dynamic_axes={"NAME": {0: "n"}}`,
	Shared:  ": export with dynamo=False, which keeps apart what begins with equal values",
}
