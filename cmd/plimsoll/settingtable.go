package main

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// setting is a row of --option's table or of --debug's: a value that few command lines give.
type setting struct {
	of    string // those whose setting it is, separated by blanks: "rotor offload-dynprog"; "" in the table of --debug
	key   string
	takes form
	unset string // the default, in words; "" is none
	line  string // what the value says
	old   string // the flag that it was, which this version still takes; "" where there was none
}

// form is the form of a setting's values.
type form struct {
	name string                 // help texts show it
	give string                 // errors ask for it; "": the value's own error says what is wrong
	fits func(text string) bool // whether a value, as it prints itself, can be meant; nil: every one that can be read
}

// names returns how a row is written: NAME.KEY for each name, or KEY.
func (r *setting) names() (all []string) {
	if r.of == "" {
		return []string{r.key}
	}
	for name := range strings.FieldsSeq(r.of) {
		all = append(all, name+"."+r.key)
	}
	return all
}

// asked says what to give, for errors.
func (k form) asked() string {
	if k.give == "" {
		return "a " + k.name
	}
	return k.give
}

// optionTable has every setting of a strategy, an optimizer, a schedule of the learning rate or another part of a run. Help texts, plimsoll
// options, completion and errors print it; commands bind its rows to their values.
var optionTable = []setting{
	{"auto", "tolerance", aShare, "1%", "among plans within this share of the fastest, take the one that transfers least", "tolerance"},
	{"auto", "budget", aTime, "", "improve the plan, or search for one where there is none, for so long; the plan then depends on the machine's speed", "budget"},
	{"rotor offload-dynprog", "slots", aCount, "500", "memory slots", "slots"},
	{"pofo", "slots", aCount, "50", "N, more of which keep more alternatives", "pofo-slots"},
	{"branch-and-bound", "states", aCount, "1048576; in auto 65536", "states that the search keeps, about 100 bytes each", "states"},
	{"residency", "trials", aCount, "by the chain's length", "plans that the search times", ""},
	{"periodic", "segments", aCount, "the best number", "segments", "segments"},
	{"capper", "high-memory", aSize, "store-all's peak", "limit of the plan that is then offloaded, M' of the thesis", ""},
	{"interleaved looped-bfs", "chunks", aNumber, "2", "stages of each device", "chunks"},
	{"k-periodic", "per-period", aNumber, "the best number", "minibatches of a period", "per-period"},
	{"milp ilp", "time-limit", aTime, "milp none, ilp 1m", "end the search after this time, with the best plan so far", "time-limit"},
	{"milp ilp", "gap", aShare, "0.001%", "end the search when the plan is so close to the best possible", ""},

	{"pipemare", "updates", aNumber, "--strategy pipemare: a quarter of step.every or --steps; others: none", "updates over which rates by stage phase out", "pipemare"},
	{"pipemare", "decay", aFraction, "--strategy pipemare: 0.135; others: none", "decay by which backwards estimate the weights of their forward", "pipemare-decay"},
	{"platform", "ops-at-once", aPlenty, "train, validate: measured; others: each device has a processor", "ops that devices sharing processors run at once at full speed", ""},
	{"batchnorm", "deferred", aSwitch, "", "running statistics move once a step, not once a microbatch", "deferred-batchnorm"},

	{"sgd muon", "momentum", aFraction, "sgd 0.9, muon 0.95", "momentum", "momentum"},
	{"adam adamw muon", "beta1", aFraction, "0.9", "decay of the first moment", "beta1"},
	{"adam adamw muon", "beta2", aFraction, "0.999", "decay of the second moment", "beta2"},
	{"adam adamw muon", "eps", aPositive, "1e-08", "the number that keeps divisors from 0", "eps"},
	{"optimizer", "decay", aName, "matrices", "parameters that decay: matrices (two axes or more, embeddings too) or all", "decay"},
	{"optimizer", "gradients", aName, "float32", "of --dtype bf16: what gradients of weights are kept and copied in, float32 or bf16; plans that move state", ""},
	{"step", "every", aCount, "", "of --lr-schedule step: steps between two falls of the learning rate", "lr-step"},
	{"step", "gamma", aFactor, "0.1", "of --lr-schedule step: factor of each fall", "lr-gamma"},

	{"data", "channels", aCount, "3", "channels of the images", "channels"},
	{"data", "skip-bad", aSwitch, "", "pass over samples whose files are corrupt, and count them", "skip-bad"},
	{"profile", "steps", aCount, "5", "measured steps of each sequence; fewer of slow ones", "profile-steps"},
	{"profile", "warmup", aNumber, "1", "steps before the measured ones", "profile-warmup"},
	{"profile", "no-cache", aSwitch, "", "measure the chain even when a measurement is kept", "no-cache"},
	{"checkpoint", "keep", aCount, "3", "checkpoints that are kept, the newest", "keep"},
	{"out", "wait", aSwitch, "", "wait while another process writes into --out, instead of refusing", "wait"},

	{"world", "rank", anInteger, "the launcher's", "number of this process, from 0", "rank"},
	{"world", "master", aText, "the launcher's", "host:port where rank 0 listens", "master"},
	{"world", "allreduce", aName, "ordered", "who sums replicas' gradients: ordered, with the bits of one process, or nccl, whose bits vary", "allreduce"},
	{"world", "secret-file", aPath, "$PLIMSOLL_SECRET", "file with the processes' secret", "secret-file"},
	{"world", "tls-certificate", aPath, "the secret's", "certificate of this process, PEM", "tls-certificate"},
	{"world", "tls-key", aPath, "", "its private key, PEM", "tls-key"},
	{"world", "tls-ca", aPath, "", "certificate of the authority that signed all of them, PEM", "tls-ca"},
	{"world", "rendezvous-timeout", aWait, "2m", "longest wait for all processes", "rendezvous-timeout"},
	{"world", "lost-after", aSilence, "10s", "silence after which a process is lost", "lost-after"},
}

// debugTable has the settings of tests and of the search for faults: no result depends on them but time, where they say nothing else.
var debugTable = []setting{
	{"", "threads", aNumber, "every core, divided among processes", "threads of the kernels", "threads"},
	{"", "own-core", aSwitch, "", "one thread computes on a core that all others leave; cpu only, on Linux, for timings", "own-core"},
	{"", "device-memory", aSize, "all of it", "memory of the device", "device-memory"},
	{"", "vendor", aName, "prefer", "cuDNN and cuBLAS on a GPU: refuse, prefer or require", "vendor"},
	{"", "vendor-path", aPath, "$PLIMSOLL_CUDA_LIBRARIES", "folders with these libraries", "vendor-path"},
	{"", "no-graph", aSwitch, "", "issue every step call by call, not as one graph", "no-graph"},
	{"", "reference", aSwitch, "", "compute with the reference kernels, in plain Go: slow; cpu only", "reference"},
	{"", "chaos", aSeed, "off", "seed of random delays of the cpu's streams", "chaos"},
	{"", "patience", aTime, "5m", "end a run that stands still for so long; 0: never", "patience"},
	{"", "table", aPath, "", "write the commands of each device here: a picture where the name ends with .svg, else text", ""},
	{"", "portals", aSwitch, "true", "send skips straight to the stage that reads them", "portals"},
}

// The forms of settings. Those that ask for nothing have values whose own errors do.
var (
	aCount    = form{"count", "a whole number from 1", atLeast(1)}
	aNumber   = form{"number", "a whole number from 0", atLeast(0)}
	anInteger = form{"number", "a whole number", nil}
	aSeed     = form{"seed", "a whole number from 0", nil}
	aFraction = form{"fraction", "a number from 0 to below 1", number32(func(x float64) bool { return x >= 0 && x < 1 && float32(x) < 1 })}
	aFactor   = form{"factor", "a number above 0, at most 1", number32(func(x float64) bool { return x > 0 && x <= 1 })}
	aPositive = form{"number", "a positive number", number32(func(x float64) bool { return float32(x) > 0 && x <= math.MaxFloat32 })}
	aPlenty   = form{"number", "a number from 1 on", number32(func(x float64) bool { return x >= 1 && x <= math.MaxFloat32 })}
	aShare    = form{"portion", "", nil}
	aSize     = form{"size", "", nil}
	aTime     = form{"duration", "a time, as in 10s or 5m", lasts(0)}
	aWait     = form{"duration", "a time, as in 2m", lasts(1)}
	aSilence  = form{"duration", "a time from 1s", lasts(time.Second)}
	aSwitch   = form{"bool", "true or false", nil}
	aName     = form{"name", "", nil}
	aPath     = form{"path", "", nil}
	aText     = form{"text", "", nil}
)

// atLeast returns the test for whole numbers from a least one on.
func atLeast(least int) func(string) bool {
	return func(text string) bool {
		n, err := strconv.Atoi(text)
		return err == nil && n >= least
	}
}

// number32 returns the test for numbers that are good as float32.
func number32(good func(float64) bool) func(string) bool {
	return func(text string) bool {
		x, err := strconv.ParseFloat(text, 64)
		return err == nil && good(x)
	}
}

// lasts returns the test for times from a least one on.
func lasts(least time.Duration) func(string) bool {
	return func(text string) bool {
		d, err := time.ParseDuration(text)
		return err == nil && d >= least
	}
}

// usage returns the help text of a row.
func (r *setting) usage() string {
	if r.unset == "" {
		return r.line
	}
	return r.line + " (default: " + strings.TrimSpace(r.unset) + ")"
}
