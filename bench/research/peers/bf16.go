//go:build cgo

package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"plimsoll/bench/research/peers/internal/storeall"
	"plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/models"
)

// bothTypes are compared, the first with the second.
var bothTypes = [2]kernels.DType{kernels.Float32, kernels.BFloat16}

// compareBF16 times products and training steps in bfloat16 beside the same in float32.
func compareBF16(o options) error {
	fmt.Println("\n| product | pass | threads | float32 GFLOP/s | bfloat16 GFLOP/s | ratio of times |\n|---|---|---|---|---|---|")
	for _, threads := range o.threads {
		logs, rows := 0.0, 0
		for _, p := range products() {
			ratios, err := p.compareTypes(o, threads)
			if err != nil {
				return err
			}
			for _, r := range ratios {
				logs, rows = logs+math.Log(r), rows+1
			}
		}
		fmt.Printf("| geometric mean | | %d | | | %.2f |\n", threads, math.Exp(logs/float64(rows)))
	}
	fmt.Println("\n| training step | threads | float32 s | bfloat16 s | ratio of times |\n|---|---|---|---|---|")
	for _, s := range typedSteps {
		for _, threads := range o.threads {
			if err := s.compareTypes(o, threads); err != nil {
				return err
			}
		}
	}
	return nil
}

// product is an op whose passes take so many operations each.
type product struct {
	name       string
	op         kernels.Op
	in         kernels.Desc
	operations float64
}

// products are square ones, the widest of a block of GPT-2 small with 4x64 tokens, and convolutions of ResNet-50.
func products() (all []product) {
	for _, s := range [][3]int{{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {256, 768, 3072}} {
		all = append(all, product{
			fmt.Sprintf("linear %dx%d-%d", s[0], s[1], s[2]), kernels.Linear{Out: s[2]}, kernels.F32(s[0], s[1]), 2 * float64(s[0]) * float64(s[1]) * float64(s[2]),
		})
	}
	for _, s := range []shape{{56, 64, 64, 3, 1}, {28, 128, 512, 1, 1}, {14, 256, 256, 3, 1}} {
		all = append(all, product{s.String(), s.op(), s.images(), s.operations()})
	}
	return all
}

// compareTypes prints a row for each pass and returns the ratios.
func (p product) compareTypes(o options, threads int) (ratios []float64, err error) {
	for _, pass := range convPasses {
		var clocks []stopwatch
		for _, t := range bothTypes {
			clock, err := timeCall(kernels.Call{Op: p.op, In: []kernels.Desc{p.in.As(t)}, Train: true, Pass: pass}, threads)
			if err != nil {
				return nil, err
			}
			clocks = append(clocks, clock)
		}
		t, err := inTurns(o.rounds, clocks...)
		if err != nil {
			return nil, err
		}
		speed := func(times []float64) float64 { return p.operations / stats.Median(times) / 1e9 }
		ratios = append(ratios, over(t[0], t[1]))
		fmt.Printf("| %s | %v | %d | %.1f | %.1f | %.2f |\n", p.name, pass, threads, speed(t[0]), speed(t[1]), over(t[0], t[1]))
	}
	return ratios, nil
}

// typedStep is a training step of a model in a type.
type typedStep struct {
	name   string
	build  func(kernels.DType) (*models.Model, error)
	update kernels.Update
}

var typedSteps = []typedStep{
	{"resnet50, batch 8, 64x64", func(t kernels.DType) (*models.Model, error) {
		return models.New("resnet50", models.Config{Batch: 8, Image: 64, Classes: classes, DType: t})
	}, stepUpdate},
	{"GPT-2 124M, 4x64 tokens", func(t kernels.DType) (*models.Model, error) {
		c := models.GPT2Small(4, 64)
		c.Dropout, c.DType = 0, t
		return models.GPT2("gpt2", c)
	}, gpt2Update},
}

// compareTypes prints a row.
func (s typedStep) compareTypes(o options, threads int) (err error) {
	var clocks []stopwatch
	for _, t := range bothTypes {
		m, failed := s.build(t)
		if failed != nil {
			return failed
		}
		clock, closed, failed := timeSteps(m, s.update, threads)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, closed()) }()
		clocks = append(clocks, clock)
	}
	t, err := inTurns(o.rounds, clocks...)
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %d | %.3f | %.3f | %.2f |\n", s.name, threads, stats.Median(t[0]), stats.Median(t[1]), over(t[0], t[1]))
	return nil
}

// timeSteps returns a function that gives the seconds of a training step that recomputes nothing, on a random batch with a learning rate of
// 0. So the weights, and the work of a step, stay as they are. The first step, which does not count, has been taken.
func timeSteps(m *models.Model, update kernels.Update, threads int) (next stopwatch, closed func() error, err error) {
	e, closed, err := storeall.Open(m, storeall.Options{Update: update, Threads: threads})
	if err != nil {
		return nil, nil, err
	}
	next = func() (float64, error) {
		r, err := e.Step(0)
		if err != nil {
			return 0, err
		}
		return r.Seconds, nil
	}
	fillRandom(e.Batch, m)
	if _, err = next(); err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	return next, closed, nil
}

// fillRandom draws a batch: pixels, or tokens of the vocabulary, and labels.
func fillRandom(b *pipeline.Batch, m *models.Model) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range b.Input {
		if b.Input[i] = r.Float32(); !m.Input.DType.Float() {
			b.Input[i] = math.Float32frombits(r.Uint32N(uint32(m.Classes)))
		}
	}
	for i := range b.Target {
		b.Target[i] = r.Int32N(int32(m.Classes))
	}
}
