package main

import (
	"path/filepath"

	"plimsoll/executor"
	"plimsoll/executor/estimate"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
)

// chains are the chains that were read or estimated, by their names.
type chains map[string]*chain.Chain

// shapes are the transformers of the grid: models and sizes of their vocabularies. A microbatch is one text of 1024 tokens.
var shapes = map[string]struct {
	model      string
	vocabulary int
}{
	"gpt2-medium": {"gpt2-medium", 50257}, "gpt2-xl": {"gpt2-xl", 50257},
	"llama-1b": {"llama-16-2048-32-8-8192", 128256}, "llama-8b": {"llama3-8b", 128256},
}

// named returns the chain of a shape on a described H100, bfloat16 with AdamW; else the one measured on a V100, of docs/chains.
func (all chains) named(name string) (*chain.Chain, error) {
	if all[name] != nil {
		return all[name], nil
	}
	c, err := chain.Read(filepath.Join("docs", "chains", name+".json"))
	if shape, ok := shapes[name]; ok {
		c, err = estimated(shape.model, models.Config{Batch: 1, Image: 1024, Classes: shape.vocabulary, DType: kernels.BFloat16})
	}
	all[name] = c
	return c, err
}

// estimated returns the chain of a model's step, with the halves of its backwards.
func estimated(model string, c models.Config) (*chain.Chain, error) {
	d, err := estimate.Open("h100")
	if err != nil {
		return nil, err
	}
	target, err := d.Target()
	if err != nil {
		return nil, err
	}
	m, err := models.New(model, c)
	if err != nil {
		return nil, err
	}
	w, err := executor.Compile(m, target.Library, kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
	if err != nil {
		return nil, err
	}
	return d.Chain(w)
}
