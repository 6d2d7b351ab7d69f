//go:build cgo

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/executor/checkpoint"
	"plimsoll/models"
	_ "plimsoll/models/huggingface" // reads folders of transformers
	_ "plimsoll/models/onnx"        // and .onnx files
	_ "plimsoll/models/torchexport" // and .pt2 archives
)

// What PyTorch's losses and ours may differ by, as a share of them.
const mostLoss = 1e-4

// steps are those of gradient descent whose losses are compared.
const steps = 3

// reference is what PyTorch has computed: reference.json.
type reference struct {
	Model, Torch string
	Image, Batch int // of text, Image is the tokens of a sample
	Classes      int
	Rate         float32
	Parameters   int64
	Tokens       []uint32 // of a batch; none: it is of images
	Labels       []int32
	Losses       []float64
}

// result is a comparison.
type result struct {
	*reference
	layers int
	ours   []float64 // losses
	loss   float64   // the largest difference of two losses, as a share of PyTorch's
}

// check returns an error if a difference is too large. What is no number is.
func (r *result) check() error {
	if len(r.ours) != steps || !(r.loss <= mostLoss) {
		return fmt.Errorf("%d losses, want %d, differ by up to %.2g, want at most %.0e: ours %v, PyTorch's %v", len(r.ours), steps, r.loss, mostLoss, r.ours, r.Losses)
	}
	return nil
}

func (r *result) String() string {
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %.6f | %.6f | %.1e |", r.Model, humanize.Comma(r.Parameters), r.layers, r.Image, r.Batch,
		r.Losses[0], r.Losses[len(r.Losses)-1], r.loss)
}

// compare trains the file of a folder as PyTorch has trained the model that it was exported from.
func compare(folder string) (r *result, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "reference.json"))
	if err != nil {
		return nil, err
	}
	ref := &reference{}
	if err := json.Unmarshal(text, ref); err != nil {
		return nil, fmt.Errorf("%s: reference.json: %w", folder, err)
	}
	file, err := modelIn(folder)
	if err != nil {
		return nil, err
	}
	m, err := models.New(file, models.Config{Batch: ref.Batch, Image: ref.Image, Classes: ref.Classes})
	if err != nil {
		return nil, err
	}
	if n := len(ref.Labels); len(ref.Losses) == 0 || n != ref.Batch && n != len(ref.Tokens) && n != ref.Batch*ref.Image*ref.Image {
		return nil, fmt.Errorf("%s: reference.json: %d losses, %d labels", folder, len(ref.Losses), len(ref.Labels))
	}
	if n := m.ParamCount(); n != ref.Parameters {
		return nil, fmt.Errorf("%s: our model has %d parameters, PyTorch's %d", folder, n, ref.Parameters)
	}
	e, closed, err := storeall.Open(m, storeall.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	if f, _, _ := models.Open(file); f.Weights != "" {
		if _, err := checkpoint.Import(f.Weights, e); err != nil {
			return nil, err
		}
	}
	r = &result{reference: ref, layers: len(m.Layers)}
	var images []byte
	if len(ref.Tokens) == 0 {
		if images, err = os.ReadFile(filepath.Join(folder, "images.f32")); err != nil {
			return nil, err
		}
	}
	return r, r.train(e, images)
}

// modelIn returns the file of a folder that is a model, whatever its format, or a folder that is one itself.
func modelIn(folder string) (string, error) {
	if _, is, err := models.Open(folder); is || err != nil {
		return folder, err
	}
	all, err := filepath.Glob(filepath.Join(folder, "model.*"))
	if err != nil {
		return "", err
	}
	if len(all) != 1 {
		return "", fmt.Errorf("%s has %d models, want one, model.pt2 or model.onnx", folder, len(all))
	}
	return all[0], nil
}

// train takes PyTorch's steps, and compares.
func (r *result) train(e *storeall.Model, pixels []byte) error {
	for _, want := range r.Losses {
		images, labels := e.Batch.Input, e.Batch.Target
		if len(pixels)/4+len(r.Tokens) != len(images) || copy(labels, r.Labels) != len(labels) {
			return fmt.Errorf("images.f32 has %d bytes, want %d, or reference.json %d tokens, want %d", len(pixels), 4*len(images), len(r.Tokens), len(images))
		}
		r.put(images, pixels)
		done, err := e.Step(r.Rate)
		if err != nil {
			return err
		}
		r.ours, r.loss = append(r.ours, done.Loss), worse(r.loss, math.Abs(done.Loss-want)/want)
	}
	return nil
}

// put writes the tokens, or makes N,H,W,C of N,C,H,W.
func (r *result) put(images []float32, pixels []byte) {
	for i, token := range r.Tokens {
		images[i] = math.Float32frombits(token)
	}
	if len(r.Tokens) > 0 {
		return
	}
	area := r.Image * r.Image
	channels := len(images) / area / r.Batch
	for i := range images {
		n, p, c := i/(area*channels), i/channels%area, i%channels
		images[i] = math.Float32frombits(binary.LittleEndian.Uint32(pixels[4*((n*channels+c)*area+p):]))
	}
}

// worse returns the larger of two differences, what is no number before all.
func worse(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return max(a, b)
}
