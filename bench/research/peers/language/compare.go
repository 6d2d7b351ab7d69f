//go:build cgo

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize"

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/models"
)

// The largest differences between PyTorch's results and ours.
const (
	mostLoss     = 1e-4 // of the loss
	mostGradient = 1e-3 // of the largest element of a gradient
)

// steps is the number of steps of gradient descent with compared losses.
const steps = 10

// reference holds PyTorch's results: reference.json.
type reference struct {
	Model, Size, Torch string
	Rate               float32
	Parameters         int64
	Sizes              struct {
		Batch, Length, Vocabulary, Positions, Width, Heads, Hidden, Blocks int

		KVHeads   int `json:"kv_heads"`
		Untied    bool
		RopeTheta float64 `json:"rope_theta"` // 0: as published
		NormEps   float32 `json:"norm_eps"`
	}
	Tokens []uint32
	Labels []int32
	Losses []float64
}

// result is a comparison.
type result struct {
	*reference
	ours      []float64 // losses
	gradients int       // tensors that are compared
	loss      float64   // the largest difference of two losses, as a share of PyTorch's
	gradient  float64   // the largest difference of two elements, as a share of the largest of PyTorch's tensor
	tensor    string    // whose
}

// check returns an error if a difference is too large. A result that is no number is too large.
func (r *result) check() error {
	if len(r.Losses) != steps {
		return fmt.Errorf("there are %d losses of PyTorch's, want %d", len(r.Losses), steps)
	}
	if !(r.loss <= mostLoss) || !(r.gradient <= mostGradient) {
		return fmt.Errorf("losses differ by up to %.2g, gradients by up to %.2g (%s): want at most %.0e and %.0e", r.loss, r.gradient, r.tensor, mostLoss, mostGradient)
	}
	return nil
}

func (r *result) String() string {
	head := "tied"
	if r.Sizes.Untied {
		head = "untied"
	}
	return fmt.Sprintf("| %s %s, %s | %s | %d | %.6f | %.6f | %.1e | %d | %.1e | %s |", r.Model, r.Size, head, humanize.Comma(r.Parameters),
		len(r.Losses), r.Losses[0], r.Losses[len(r.Losses)-1], r.loss, r.gradients, r.gradient, r.tensor)
}

// compare trains our model as PyTorch has trained its.
func compare(folder string) (r *result, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "reference.json"))
	if err != nil {
		return nil, err
	}
	ref := &reference{}
	if err := json.Unmarshal(text, ref); err != nil || len(ref.Losses) == 0 {
		return nil, fmt.Errorf("%s: reference.json: %d losses: %w", folder, len(ref.Losses), errors.Join(err))
	}
	m, err := ref.build()
	if err != nil {
		return nil, err
	}
	if n := m.ParamCount(); n != ref.Parameters {
		return nil, fmt.Errorf("%s: our model has %d parameters, PyTorch's %d", folder, n, ref.Parameters)
	}
	e, closed, err := storeall.Open(m, storeall.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	if _, err := checkpoint.Import(filepath.Join(folder, "weights.safetensors"), e); err != nil {
		return nil, err
	}
	r = &result{reference: ref}
	return r, r.train(e, folder)
}

// build returns our model.
func (r *reference) build() (*models.Model, error) {
	s := r.Sizes
	c := models.Language{
		Batch: s.Batch, Length: s.Length, Vocabulary: s.Vocabulary, Positions: s.Positions, Width: s.Width, Heads: s.Heads, KVHeads: s.KVHeads,
		Hidden: s.Hidden, Blocks: s.Blocks, Tied: !s.Untied, Epsilon: s.NormEps, RotaryBase: s.RopeTheta,
	}
	switch r.Model {
	case "gpt2":
		return models.GPT2("gpt2", c)
	case "llama":
		return models.Llama("llama", c)
	}
	return nil, fmt.Errorf("reference.json: model is %q, want gpt2 or llama", r.Model)
}

// train takes PyTorch's steps, and compares.
func (r *result) train(e *storeall.Model, folder string) error {
	for step, want := range r.Losses {
		tokens, labels := e.Batch.Input, e.Batch.Target
		if len(tokens) != len(r.Tokens) || copy(labels, r.Labels) != len(labels) {
			return fmt.Errorf("%s: reference.json has %d tokens and %d labels, want %d", folder, len(r.Tokens), len(r.Labels), len(tokens))
		}
		for i, token := range r.Tokens {
			tokens[i] = math.Float32frombits(token)
		}
		done, err := e.Step(r.Rate)
		if err != nil {
			return err
		}
		r.ours, r.loss = append(r.ours, done.Loss), worse(r.loss, math.Abs(done.Loss-want)/want)
		if step > 0 {
			continue
		}
		if err := r.compareGradients(e, folder); err != nil {
			return err
		}
	}
	return nil
}

// worse returns the larger of two differences, what is no number before all.
func worse(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return max(a, b)
}

// gradients are a model's in place of its weights, so that they are written as weights are.
type gradients struct{ *storeall.Model }

// Tensors implements checkpoint.Source.
func (g gradients) Tensors() []executor.Tensor {
	all := g.Gradients()
	for i := range all {
		all[i].Role = "weight"
	}
	return all
}

// Read implements checkpoint.Source.
func (g gradients) Read(t executor.Tensor, dst []float32) error {
	t.Role = "gradient"
	return g.Model.Read(t, dst)
}

// compareGradients compares the files of both.
func (r *result) compareGradients(e *storeall.Model, folder string) (err error) {
	temporary, err := os.MkdirTemp("", "plimsoll-language")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	path := filepath.Join(temporary, "gradients.safetensors")
	if err := checkpoint.Export(path, gradients{e}, checkpoint.Batches{}, nil); err != nil {
		return err
	}
	var files [2]*safetensors.File
	for i, path := range []string{filepath.Join(folder, "gradients.safetensors"), path} {
		if files[i], err = safetensors.Open(path); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, files[i].Close()) }()
	}
	theirs, ours := files[0], files[1]
	if len(theirs.Tensors()) != len(ours.Tensors()) {
		return fmt.Errorf("%s: PyTorch has %d gradients, we have %d", folder, len(theirs.Tensors()), len(ours.Tensors()))
	}
	for _, t := range theirs.Tensors() {
		if err := r.compareGradient(t, theirs, ours); err != nil {
			return err
		}
	}
	return nil
}

func (r *result) compareGradient(t safetensors.Info, theirs, ours *safetensors.File) error {
	if have, ok := ours.Tensor(t.Name); !ok || !slices.Equal(have.Shape, t.Shape) {
		return fmt.Errorf("gradient of %s: PyTorch's is %v, ours %v", t.Name, t.Shape, have.Shape)
	}
	n := 1
	for _, extent := range t.Shape {
		n *= extent
	}
	want, got := make([]float32, n), make([]float32, n)
	if err := errors.Join(theirs.Float32(t.Name, want), ours.Float32(t.Name, got)); err != nil {
		return err
	}
	largest, off := 0.0, 0.0
	for i, x := range want {
		largest = max(largest, math.Abs(float64(x)))
		off = worse(off, math.Abs(float64(got[i])-float64(x)))
	}
	if off > 0 {
		off /= largest
	}
	if r.gradients++; !(off <= r.gradient) {
		r.gradient, r.tensor = worse(r.gradient, off), t.Name
	}
	return nil
}
