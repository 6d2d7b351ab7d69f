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

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/executor/checkpoint"
	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
)

// gpt2Rate is a learning rate that moves the loss.
const gpt2Rate = 1e-4

// gpt2Update has the constants that the peer has.
var gpt2Update = kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}

// gpt2Losses is the largest difference between losses of the same step, as a share. Adam divides a gradient by its size, so that the
// rounding of a small gradient moves a weight as far as a large one does.
const gpt2Losses = 1e-3

// compareGPT2 times training steps of GPT-2 124M beside PyTorch's, from the same weights on the same batch, and compares the losses.
func compareGPT2(o options) error {
	fmt.Printf("\n| GPT-2 124M, a training step | threads | ours s | PyTorch s | ratio | ours least processor s | PyTorch least processor s | ratio | first loss | losses differ by at most |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, threads := range o.threads {
		for _, b := range o.batches {
			t, err := stepGPT2(o, b, threads)
			if err != nil {
				return err
			}
			defer t.print(fmt.Sprint(b), threads)
		}
	}
	return nil
}

// sequences is a batch: how many, and how many tokens of each.
type sequences struct{ batch, length int }

func (s sequences) String() string { return fmt.Sprintf("%dx%d", s.batch, s.length) }

// readSequences reads 4x64.
func readSequences(text string) (s sequences, err error) {
	var rest string
	if n, _ := fmt.Sscanf(text, "%dx%d%s", &s.batch, &s.length, &rest); n != 2 || s.batch < 1 || s.length < 1 {
		return s, fmt.Errorf("%q is no batch like 4x64", text)
	}
	return s, nil
}

// stepGPT2 prints the row of a batch, and returns what our ops took.
func stepGPT2(o options, b sequences, threads int) (t *tally, err error) {
	folder, err := os.MkdirTemp("", "plimsoll-gpt2")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	p, err := o.startPython(threads, "torch_gpt2.py", fmt.Sprint(b.batch), fmt.Sprint(b.length), fmt.Sprint(threads), folder)
	if err != nil {
		return nil, err
	}
	if _, err := p.line(); err != nil { // its version
		return nil, err
	}
	t = &tally{calls: map[string]*called{}}
	e, closed, err := openGPT2(folder, b, threads, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	r := race{ours: e, peer: p, tally: t}
	if err := r.run(o.rounds); err != nil {
		return nil, err
	}
	fmt.Printf("| %v tokens | %d | %.3f | %.3f | %.2f | %.3f | %.3f | %.2f | %.6f | %.1e |\n", b, threads,
		stats.Median(r.seconds[0]), stats.Median(r.seconds[1]), over(r.seconds[1], r.seconds[0]),
		slices.Min(r.processor[0]), slices.Min(r.processor[1]), slices.Min(r.processor[1])/slices.Min(r.processor[0]), r.first, r.differ)
	return t, p.close()
}

// openGPT2 returns our model with the weights and the batch of a folder.
func openGPT2(folder string, b sequences, threads int, t *tally) (*storeall.Model, func() error, error) {
	c := models.GPT2Small(b.batch, b.length)
	c.Dropout = 0
	m, err := models.GPT2("gpt2", c)
	if err != nil {
		return nil, nil, err
	}
	e, closed, err := storeall.Open(m, storeall.Options{Update: gpt2Update, Threads: threads, Watch: t.watch})
	if err != nil {
		return nil, nil, err
	}
	if _, err := checkpoint.Import(filepath.Join(folder, "weights.safetensors"), e); err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	if err := fillGPT2(filepath.Join(folder, "batch.json"), e); err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	return e, closed, nil
}

// fillGPT2 makes the tokens and labels of a file the batch of a model.
func fillGPT2(path string, e *storeall.Model) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var batch struct {
		Tokens []uint32
		Labels []int32
	}
	if err := json.Unmarshal(text, &batch); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tokens, labels := e.Batch.Input, e.Batch.Target
	if len(batch.Tokens) != len(tokens) || len(batch.Labels) != len(labels) {
		return fmt.Errorf("%s has %d tokens and %d labels, want %d", path, len(batch.Tokens), len(batch.Labels), len(tokens))
	}
	for i, token := range batch.Tokens {
		tokens[i], labels[i] = math.Float32frombits(token), batch.Labels[i]
	}
	return nil
}

// race is steps of both, in turns.
type race struct {
	ours    *storeall.Model
	peer    *peer
	tally   *tally
	seconds [2][]float64 // ours, the peer's
	first   float64      // our first loss
	differ  float64      // the largest difference of two losses, as a share of the peer's

	processor [2][]float64 // the same in processor time of all threads
}

// run takes a step that does not count, and so many that do.
func (r *race) run(rounds int) error {
	for step := range rounds + 1 {
		answer, err := r.peer.answer(fmt.Sprint(gpt2Rate))
		if err != nil {
			return err
		}
		var seconds, processor, want float64
		if _, err := fmt.Sscan(answer, &seconds, &processor, &want); err != nil {
			return fmt.Errorf("PyTorch answers %q, want seconds, seconds of the processor and a loss: %w", answer, err)
		}
		busy := processorSeconds()
		done, err := r.ours.Step(gpt2Rate)
		if err != nil {
			return err
		}
		busy = processorSeconds() - busy
		r.differ = max(r.differ, math.Abs(done.Loss-want)/want)
		if !(math.Abs(done.Loss-want)/want <= gpt2Losses) {
			return fmt.Errorf("step %d: the loss is %v, PyTorch's %v", step, done.Loss, want)
		}
		if step == 0 {
			r.first = done.Loss
			r.tally.clear()
			continue
		}
		r.seconds[0], r.seconds[1] = append(r.seconds[0], done.Seconds), append(r.seconds[1], seconds)
		r.processor[0], r.processor[1] = append(r.processor[0], busy), append(r.processor[1], processor)
		r.tally.steps++
	}
	return nil
}
