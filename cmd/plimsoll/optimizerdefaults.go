package main

// optimizerDefaults are the settings that an optimizer has, each by its flag, and their values unless the flag is given. Those of sgd
// are one recipe, of He et al. 2016, section 3.4; those of the others are torch.optim's.
var optimizerDefaults = map[string]map[string]float64{
	"sgd":   {"lr": 0.1, "momentum": 0.9, "weight-decay": 1e-4},
	"adam":  {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight-decay": 0},
	"adamw": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight-decay": 0.01},
	"muon":  {"lr": 0.001, "momentum": 0.95, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight-decay": 0.1},
}
