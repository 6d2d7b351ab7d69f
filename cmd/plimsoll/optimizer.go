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
	gradients string // what gradients of weights are kept in
}

// optimizerSettings are the numbers that flags of an optimizer set.
type optimizerSettings struct{ momentum, beta1, beta2, eps, weightDecay float64 }

// Parameters that the setting decay names: those with two axes or more, or every one.
const (
	decayMatrices = "matrices"
	decayAll      = "all"
)

func (f *optimizerFlags) register(cmd *cobra.Command) {
	s, o := cmd.Flags(), optionsOf(cmd)
	s.Var(newOneOf(&f.optimizer, "sgd", "adam", "adamw", "muon"), "optimizer", "sgd, adam, adamw or muon (for matrices of hidden layers, adamw for all else)")
	o.Float64Var(&f.settings.momentum, "sgd.momentum", 0, "")
	o.Float64Var(&f.settings.beta1, "adam.beta1", 0, "")
	o.Float64Var(&f.settings.beta2, "adam.beta2", 0, "")
	o.Float64Var(&f.settings.eps, "adam.eps", 0, "")
	s.Float64Var(&f.settings.weightDecay, "weight-decay", 0, "weight decay (default: 0.0001 for sgd, 0 for adam, 0.01 for adamw, 0.1 for muon)")
	o.Var(newOneOf(&f.decay, decayMatrices, decayAll), "optimizer.decay", "")
	o.Var(newOneOf(&f.gradients, kernels.Float32.String(), kernels.BFloat16.String(), "bf16"), "optimizer.gradients", "")
}

// hideOptimizer leaves the optimizer out of the help texts of evaluate and generate: they train nothing.
func hideOptimizer(cmd *cobra.Command) {
	for _, name := range []string{"optimizer", "weight-decay"} {
		_ = cmd.Flags().MarkHidden(name) // that is there
	}
	optionsOf(cmd).hide("sgd.momentum", "adam.beta1", "adam.beta2", "adam.eps", "optimizer.decay", "optimizer.gradients")
}

// narrowGradients reports whether gradients of weights are to be kept in bfloat16.
func (f *optimizerFlags) narrowGradients() bool {
	t, err := kernels.ParseFloat(f.gradients)
	return err == nil && t == kernels.BFloat16
}

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
	for _, x := range []struct {
		setting, row string
		value        *float64
	}{
		{"momentum", "sgd.momentum", &s.momentum}, {"beta1", "adam.beta1", &s.beta1}, {"beta2", "adam.beta2", &s.beta2}, {"eps", "adam.eps", &s.eps},
		{"weight-decay", "weight-decay", &s.weightDecay},
	} {
		value, has := defaults[x.setting]
		switch given := spelling(set, x.row); {
		case given != "" && !has:
			return s, fmt.Errorf("%s is not a setting of --optimizer %s: leave it out", given, f.optimizer)
		case given == "":
			*x.value = value
		}
	}
	if !(s.weightDecay >= 0 && s.weightDecay <= math.MaxFloat32) {
		return s, fmt.Errorf("--weight-decay is %v: it is 0 or a positive number", s.weightDecay)
	}
	return s, nil
}
