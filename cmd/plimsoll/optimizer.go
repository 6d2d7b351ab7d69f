package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/kernels"
)

// optimizerFlags are the flags of the optimizer.
type optimizerFlags struct {
	optimizer string
	settings  optimizerSettings
	decay     string // which parameters decay
}

// optimizerSettings are the numbers that flags of an optimizer set.
type optimizerSettings struct{ momentum, beta1, beta2, eps, weightDecay float64 }

// Parameters that --decay names: those with two axes or more, or every one.
const (
	decayMatrices = "matrices"
	decayAll      = "all"
)

// optimizerDefaults are the settings that an optimizer has, each by its flag, and their values unless the flag is given. Those of sgd
// are one recipe, of He et al. 2016, section 3.4; those of the others are torch.optim's.
var optimizerDefaults = map[string]map[string]float64{
	"sgd":   {"lr": 0.1, "momentum": 0.9, "weight-decay": 1e-4},
	"adam":  {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight-decay": 0},
	"adamw": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight-decay": 0.01},
	"muon":  {"lr": 0.001, "momentum": 0.95, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight-decay": 0.1},
}

func (f *optimizerFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Var(newOneOf(&f.optimizer, "sgd", "adam", "adamw", "muon"), "optimizer", "sgd, adam, adamw or muon (for matrices of hidden layers, adamw for all else)")
	s.Float64Var(&f.settings.momentum, "momentum", 0, "momentum (default: 0.9 for sgd, 0.95 for muon)")
	s.Float64Var(&f.settings.beta1, "beta1", 0, "adam, adamw, muon: decay of the first moment (default: 0.9)")
	s.Float64Var(&f.settings.beta2, "beta2", 0, "adam, adamw, muon: decay of the second moment (default: 0.999)")
	s.Float64Var(&f.settings.eps, "eps", 0, "adam, adamw, muon: the number that keeps divisors from 0 (default: 1e-08)")
	s.Float64Var(&f.settings.weightDecay, "weight-decay", 0, "weight decay (default: 0.0001 for sgd, 0 for adam, 0.01 for adamw, 0.1 for muon)")
	s.Var(newOneOf(&f.decay, decayMatrices, decayAll), "decay", "parameters that decay: matrices (two axes or more, embeddings too) or all")
}

// optimizerFlagNames are the flags that evaluate and generate hide: they train nothing.
var optimizerFlagNames = []string{"optimizer", "momentum", "beta1", "beta2", "eps", "weight-decay", "decay"}

// update returns the optimizer that the flags describe.
func (f *optimizerFlags) update(set *pflag.FlagSet) (kernels.Update, error) {
	s, err := f.complete(set)
	if err != nil {
		return nil, err
	}
	momentum, decay, matrices := float32(s.momentum), float32(s.weightDecay), f.decay == decayMatrices
	adam := kernels.Adam{Beta1: float32(s.beta1), Beta2: float32(s.beta2), Epsilon: float32(s.eps), WeightDecay: decay, MatricesOnly: matrices}
	switch f.optimizer {
	case "sgd":
		return kernels.SGD{Momentum: momentum, WeightDecay: decay, MatricesOnly: matrices}, nil
	case "adam":
		return adam, nil
	case "muon":
		return kernels.Muon{
			Momentum: momentum, WeightDecay: decay, Beta1: adam.Beta1, Beta2: adam.Beta2, Epsilon: adam.Epsilon, MatricesOnly: matrices,
		}, nil
	}
	return kernels.AdamW(adam), nil
}

// complete returns the settings with the optimizer's defaults, and refuses flags that the optimizer has no use for.
func (f *optimizerFlags) complete(set *pflag.FlagSet) (optimizerSettings, error) {
	s, defaults := f.settings, optimizerDefaults[f.optimizer]
	below1 := func(v float64) bool { return v >= 0 && v < 1 && float32(v) < 1 }
	for _, x := range []struct {
		flag   string
		value  *float64
		good   func(float64) bool
		limits string
	}{
		{"momentum", &s.momentum, below1, "it is from 0 to below 1"},
		{"beta1", &s.beta1, below1, "it is from 0 to below 1"},
		{"beta2", &s.beta2, below1, "it is from 0 to below 1"},
		{"eps", &s.eps, func(v float64) bool { return float32(v) > 0 && v <= math.MaxFloat32 }, "it is a positive number"},
		{"weight-decay", &s.weightDecay, func(v float64) bool { return v >= 0 && v <= math.MaxFloat32 }, "it is 0 or a positive number"},
	} {
		value, has := defaults[x.flag]
		switch given := set.Changed(x.flag); {
		case given && !x.good(*x.value):
			return s, fmt.Errorf("--%s is %v: %s", x.flag, *x.value, x.limits)
		case given && !has:
			return s, fmt.Errorf("--%s is not a setting of --optimizer %s: leave it out", x.flag, f.optimizer)
		case !given:
			*x.value = value
		}
	}
	return s, nil
}
