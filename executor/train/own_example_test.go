package train_test

import (
	"context"
	"fmt"

	"plimsoll/executor/train"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
)

func init() {
	models.Register(models.Known{Name: "perceptron", Image: 8, Classes: 2, Build: perceptron})
	data.Register(data.Info{Name: "halves", MinImage: 2, Open: func(_ string, o data.Options) (data.Dataset, error) { return halves{o}, nil }})
}

// perceptron is two layers; a plan keeps or drops what lies between layers.
func perceptron(name string, c models.Config) (*models.Model, error) {
	b := models.NewBuilder(name, kernels.F32(c.Batch, c.Image, c.Image, c.Channels), c.Classes)
	b.Layer("hidden", "hidden", func(g *models.Graph, x models.Value) models.Value { return g.ReLU("relu", g.Linear("fc", x, 32)) })
	b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, c.Classes) })
	return b.Model()
}

// halves are images whose upper or lower half is bright.
type halves struct{ data.Options }

func (halves) Name() string    { return "halves" }
func (halves) Classes() int    { return 2 }
func (h halves) Shape() [3]int { return [3]int{h.Image, h.Image, h.Channels} }
func (halves) TrainLen() int64 { return 0 }
func (halves) TestLen() int64  { return 10 }
func (halves) Fill(_ data.Split, index int64, dst []float32) (int, error) {
	label := int(index % 2)
	for i := range dst {
		dst[i] = float32(2*(i*2/len(dst)^label) - 1)
	}
	return label, nil
}

// Once they are registered, a model and a data set of one's own are opened by name, like built-in ones. A job offers them all it has:
// measurements, plans, checkpoints, pipelines, reports (examples/own-model shows them).
func Example_ownModel() {
	ctx := context.Background()
	job, err := train.Open(train.Spec{
		Model: "perceptron", Config: models.Config{Image: 8, Channels: 1, Batch: 4}, Data: "halves", Seed: 1,
		Devices: "cpu", Update: kernels.SGD{},
	})
	if err != nil {
		panic(err)
	}
	costs, err := job.Profile(ctx, train.Measure{Repeats: 1})
	if err != nil {
		panic(err)
	}
	all, err := job.StoreAllBytes()
	if err != nil {
		panic(err)
	}
	out, err := trainAt(ctx, job, costs, all)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d layers, %.0f %% of %d images, the peak as predicted: %v\n",
		len(costs.Layers), 100*out.Accuracy, out.TestSamples, out.MeasuredPeakBytes == out.PredictedPeakBytes)
	// Output: 3 layers, 100 % of 10 images, the peak as predicted: true
}
