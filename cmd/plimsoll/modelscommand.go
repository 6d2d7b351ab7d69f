package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"plimsoll/models"
)

// modelFigure is a model of the zoo, in JSON.
type modelFigure struct {
	Name       string `json:"name"`
	Summary    string `json:"summary"`
	Source     string `json:"source,omitempty"`
	Parameters int64  `json:"parameters"`
	Layers     int    `json:"layers"` // with the loss
	models.SampleSize
	Classes int  `json:"classes"`
	Pairs   bool `json:"pairs,omitempty"`
}

// modelList is the JSON of models.
type modelList struct {
	Models []modelFigure `json:"models"`
}

func newModelsCommand(a *app) *cobra.Command {
	cmd := command("models", "List the models", `List the models that -m knows, with layers of the chain, the loss included, and parameters for the shown samples and classes.

A model is meant for these; --image, --length, --classes and --option data.channels give others. A sample of a language model has --length tokens,
and its classes are the vocabulary.

unet-B-C is the U-Net of B convolutions a level and C channels. unetseg-B-C has a class for each pixel. amoebanet-L-F is the AmoebaNet-D
of L cells and F filters.

Model gpt2-B-C is a GPT-2 of B blocks and C channels without dropout. Model llama-B-C is a Llama of B blocks and C channels. Model
llama-B-C-H-K-F has H heads, K heads of keys and values, and F channels in its MLP. With -tied behind the name the last layer has the embedding's weight. With
-untied it has its own. Constants stand at the end of a name, as in llama-B-C,rope_theta=500000,rms_norm_eps=1e-6 and
gpt2-B-C,layer_norm_epsilon=1e-6.`, nil)
	cmd.Example = `  plimsoll models
  plimsoll train -m resnet50 --image 224 --batch 8 --data folder:PATH`
	cmd.RunE = func(*cobra.Command, []string) error { return listModels(a) }
	return cmd
}

func listModels(a *app) error {
	list := modelList{}
	for _, k := range models.All() {
		m, err := models.New(k.Name, k.Config())
		if err != nil {
			return err
		}
		list.Models = append(list.Models, modelFigure{
			k.Name, k.Summary, k.Source, m.ParamCount(), len(m.Layers), models.SizeOf(k.Name, k.Image), k.Classes, models.OfPairs(k.Name),
		})
	}
	return a.print(list, func(out io.Writer) {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "model\tparameters\tlayers\tsample\tclasses\twhat\tsource")
		for _, m := range list.Models {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", m.Name, humanize.Comma(m.Parameters), m.Layers, m.Describe(), m.Classes, m.Summary, m.Source)
		}
		_ = w.Flush() // of a buffer
	})
}
