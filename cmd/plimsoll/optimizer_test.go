package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"plimsoll/kernels"
)

// TestOptimizerFlags checks the optimizer that flags describe: the defaults of each, and what each flag sets.
func TestOptimizerFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]kernels.Update{
		"":                  kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4, MatricesOnly: true},
		"--optimizer adam":  kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MatricesOnly: true},
		"--optimizer adamw": kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01, MatricesOnly: true},
		"--optimizer muon":  kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1, MatricesOnly: true},

		"--option optimizer.decay=all --option sgd.momentum=0":                                       kernels.SGD{WeightDecay: 1e-4},
		"--optimizer muon --option muon.momentum=0 --weight-decay 0 --option muon.beta1=.5":          kernels.Muon{Beta1: 0.5, Beta2: 0.999, Epsilon: 1e-8, MatricesOnly: true},
		"--optimizer adamw --option adamw.beta1=0 --option adamw.beta2=0.95 --option adamw.eps=1e-6": kernels.AdamW{Beta2: 0.95, Epsilon: 1e-6, WeightDecay: 0.01, MatricesOnly: true},
		"--optimizer adam --weight-decay 0.5 --option optimizer.decay=all":                           kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.5},
	} {
		f, cmd := &optimizerFlags{}, &cobra.Command{}
		f.register(cmd)
		if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		if got, err := f.update(cmd.Flags()); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", line, got, err, want)
		}
	}
}
