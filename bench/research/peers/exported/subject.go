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

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/executor/checkpoint"
	"plimsoll/models"
	_ "plimsoll/models/huggingface" // reads folders of transformers
	_ "plimsoll/models/onnx"        // and .onnx files
	_ "plimsoll/models/torchexport" // and .pt2 archives
)

// subject is the model of a folder with the batch that PyTorch has trained it on.
type subject struct {
	*reference
	layers     int
	axes       int // of a sample of numbers, which are in PyTorch's order
	parameters int64
	engine     *storeall.Model
	pixels     []byte // of images; nil: it is of text
	close      func() error
}

// openSubject opens the folder that torch_export.py or torch_folders.py has written.
func openSubject(folder string) (*subject, error) {
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
	f, _, err := models.Open(file)
	if err != nil {
		return nil, err
	}
	m, err := models.New(file, models.Config{Batch: ref.Batch, Image: ref.Image, Channels: f.Channels, Classes: ref.Classes})
	if err != nil {
		return nil, err
	}
	if n := len(ref.Labels); f.Axes != 2 && n != ref.Batch && n != len(ref.Tokens) && n != ref.Batch*ref.Image*ref.Image {
		return nil, fmt.Errorf("%s: reference.json: %d labels", folder, n)
	}
	s := &subject{reference: ref, layers: len(m.Layers), axes: f.Axes, parameters: m.ParamCount()}
	if len(ref.Tokens) == 0 {
		if s.pixels, err = os.ReadFile(filepath.Join(folder, "images.f32")); err != nil {
			return nil, err
		}
	}
	if s.engine, s.close, err = storeall.Open(m, storeall.Options{}); err != nil {
		return nil, err
	}
	if f.Weights != "" {
		if _, err := checkpoint.Import(f.Weights, s.engine); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// step takes a step of gradient descent on PyTorch's batch, and returns the loss before it.
func (s *subject) step(rate float32) (loss float64, err error) {
	images, labels := s.engine.Batch.Input, s.engine.Batch.Target
	if len(s.pixels)/4+len(s.Tokens) != len(images) || copy(labels, s.Labels) != len(labels) {
		return 0, fmt.Errorf("images.f32 has %d bytes, want %d, or reference.json %d tokens, want %d", len(s.pixels), 4*len(images), len(s.Tokens), len(images))
	}
	s.put(images)
	done, err := s.engine.Step(rate)
	if err != nil {
		return 0, err
	}
	return done.Loss, nil
}

// writeStepped writes the weights after one step of a rate: those before it less the rate times the gradient.
func writeStepped(folder, path string, rate float32) (err error) {
	s, err := openSubject(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := s.step(rate); err != nil {
		return err
	}
	return checkpoint.Export(path, s.engine, checkpoint.Batches{}, nil)
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

// put writes the tokens, or makes N,H,W,C of N,C,H,W.
func (s *subject) put(images []float32) {
	for i, token := range s.Tokens {
		images[i] = math.Float32frombits(token)
	}
	if len(s.Tokens) > 0 {
		return
	}
	area := s.Image * s.Image
	if s.axes > 0 {
		area = len(images) / s.Batch
	}
	channels := len(images) / area / s.Batch
	for i := range images {
		n, p, c := i/(area*channels), i/channels%area, i%channels
		images[i] = math.Float32frombits(binary.LittleEndian.Uint32(s.pixels[4*((n*channels+c)*area+p):]))
	}
}
