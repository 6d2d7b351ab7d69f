package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/devices"
)

// jobFlags are the flags that say what is trained and where.
type jobFlags struct {
	set          *pflag.FlagSet // that they are in
	model        string
	config       models.Config
	length       int  // of samples of text
	largest      bool // --batch max
	data         string
	seed         uint64
	devices      string
	deviceMemory units.Size
	dtype        string
	threads      int
	bandwidth    units.Bandwidth
	chaos        uint64
	reference    bool
	vendor       string
	vendorPath   string
	noGraph      bool
	optimizerFlags
	forward       bool // nothing is trained: an optimizer without state takes no memory
	offload       string
	tokenizer     string
	skipBad       bool
	microbatches  int               // of a pipeline's step; 0: the job is for one device
	processes     int               // that have such devices; 0: this one alone
	local         int               // number of this one among those of its machine
	parts         int               // of a step on one device; 0: it has one batch
	peerBandwidth units.Bandwidth   // of its links
	onSkip        func(error)       // is told of every bad sample that is passed over
	note          func(text string) // is told of kernels that are not used
	until         context.Context   // whose end gives up what runs on the devices; nil: it is finished
	told          bool              // the model's file has been described
	start         string            // weights that the model begins with; "": those of the seed
}

func (f *jobFlags) register(a *app, cmd *cobra.Command) {
	f.note = func(text string) { a.note("%s", text) }
	s := cmd.Flags()
	f.set = s
	s.StringVarP(&f.model, "model", "m", "", "model of the zoo (plimsoll models lists them), or an ONNX file, NAME.onnx")
	s.IntVar(&f.config.Image, "image", 32, "height and width of the images, pixels")
	s.StringVar(&f.tokenizer, "tokenizer", "", "bytes, or a folder with encoder.json and vocab.bpe (default: bytes)")
	s.IntVar(&f.length, "length", 64, "tokens of a sample, of language models")
	f.config.Batch = 32
	s.Var(&batchFlag{images: &f.config.Batch, max: &f.largest}, "batch", "samples of a step, or max (train): as many as fit")
	s.IntVar(&f.config.Channels, "channels", 3, "channels of the images")
	s.IntVar(&f.config.Classes, "classes", 0, "classes of the model (default: those of the data)")
	s.Var(newOneOf(&f.dtype, kernels.FloatNames()...), "dtype", "activations: float32, tf32 (rounded products) or bf16")
	s.StringVar(&f.data, "data", "", "data set: "+strings.Join(data.Names(), ", ")+" (default: digits; shapes for segmentation; opticks for text)")
	s.BoolVar(&f.skipBad, "skip-bad", false, "pass over samples whose files are corrupt, and count them")
	s.Uint64Var(&f.seed, "seed", 1, "seed of weights, dropout and data")
	s.StringVar(&f.devices, "devices", "cpu", "device: cpu")
	s.Var(&f.deviceMemory, "device-memory", "memory of the device, as in 8GiB (default: all of it)")
	s.Var(&f.bandwidth, "bandwidth", "slow the cpu's link to host memory to this, as in 1GB/s (default: off)")
	s.Uint64Var(&f.chaos, "chaos", 0, "seed of random delays of the cpu's streams (default: off)")
	s.IntVar(&f.threads, "threads", 0, "threads of the kernels (default: every core, divided among processes)")
	s.BoolVar(&f.noGraph, "no-graph", false, "issue every step call by call, not as one graph")
	s.BoolVar(&f.reference, "reference", false, "compute with the reference kernels, in plain Go: slow; cpu only")
	s.Var(newOneOf(&f.vendor, "prefer", "refuse", "require"), "vendor", "cuDNN and cuBLAS on a GPU: refuse, prefer or require")
	s.StringVar(&f.vendorPath, "vendor-path", "", "folders with these libraries (default: $PLIMSOLL_CUDA_LIBRARIES)")
	f.optimizerFlags.register(cmd)
}

// batchFlag is a number of samples, or max, or several numbers.
type batchFlag struct {
	images *int
	max    *bool
	more   *[]int // behind the first one; nil: there is one
}

func (f *batchFlag) String() string {
	if f.images == nil {
		return ""
	}
	return strconv.Itoa(*f.images)
}

// Set implements pflag.Value.
func (f *batchFlag) Set(text string) (err error) {
	if *f.max = text == "max"; *f.max { // the search begins at the default
		return nil
	}
	first, more, several := strings.Cut(text, ",")
	if *f.images, err = strconv.Atoi(first); err != nil || several && f.more == nil {
		return fmt.Errorf("give a number of samples, max with train, or several with profile")
	}
	if f.more == nil {
		return nil
	}
	for *f.more = nil; several; {
		first, more, several = strings.Cut(more, ",")
		n, err := strconv.Atoi(first)
		if err != nil || n == *f.images || slices.Contains(*f.more, n) {
			return fmt.Errorf("%q is no other number of samples", first)
		}
		*f.more = append(*f.more, n)
	}
	return nil
}

// Type implements pflag.Value.
func (f *batchFlag) Type() string { return "samples" }

// registerOffload registers the flag of commands that can keep state in host memory.
func (f *jobFlags) registerOffload(cmd *cobra.Command) {
	cmd.Flags().Var(newOneOf(&f.offload, executor.OffloadingNames()...), "offload-state", "keep in host memory: none, optimizer or weights (both)")
}

// mostClasses bounds a slip of the finger: ImageNet has 21,841 classes.
const mostClasses = 1 << 20

// count returns how many devices --devices names.
func (f *jobFlags) count() (int, error) { return countDevices(f.devices) }

// countDevices returns how many devices a text names.
func countDevices(spec string) (n int, err error) {
	items, err := devices.Parse(spec)
	for _, item := range items {
		n += max(item.Parts, 1)
	}
	return n, err
}

// open checks the flags and opens the job.
func (f *jobFlags) open() (*train.Job, error) {
	s, err := f.spec()
	if err != nil {
		return nil, err
	}
	return train.Open(s)
}

// spec checks the flags and returns the job that they say.
func (f *jobFlags) spec() (s train.Spec, err error) {
	if err := f.checkJob(); err != nil {
		return s, err
	}
	if err := firstOf(f.ofFile(), f.takeConstants()); err != nil {
		return s, err
	}
	if models.OfText(f.model) {
		f.config.Image, f.data = f.length, cmp.Or(f.data, "opticks")
	} else if f.tokenizer != "" {
		return s, usage(fmt.Errorf("--tokenizer %s: --model %s reads images: leave it out", f.tokenizer, f.model))
	}
	if models.Segments(f.model) {
		f.data = cmp.Or(f.data, "shapes")
	}
	f.data = cmp.Or(f.data, "digits")
	update, err := f.rule()
	if err != nil {
		return s, usage(err)
	}
	if f.config.DType, err = kernels.ParseFloat(f.dtype); err != nil {
		return s, usage(fmt.Errorf("--dtype: %w", err))
	}
	offload, err := executor.ParseOffloading(cmp.Or(f.offload, executor.OffloadNothing.String()))
	if err != nil {
		return s, usage(fmt.Errorf("--offload-state: %w", err))
	}
	return train.Spec{
		Model: f.model, Config: f.config, Data: f.data, Tokenizer: f.tokenizer, Seed: f.seed, Devices: f.devices, Threads: f.threads, Update: update,
		Reference: f.reference, NoGraph: f.noGraph, Vendor: f.vendor, VendorPath: f.vendorPath, Note: f.note,
		Microbatches: f.microbatches, Parts: f.parts, Processes: f.processes,
		Open: devices.Options{
			Memory: f.deviceMemory.Bytes, Bandwidth: float64(f.bandwidth), PeerBandwidth: float64(f.peerBandwidth), Chaos: f.chaos, Until: f.until, Local: f.local,
		},
		SkipBad: f.skipBad, OnSkip: f.onSkip, Offload: offload,
	}, nil
}

// rule returns the optimizer.
func (f *jobFlags) rule() (kernels.Update, error) {
	if f.forward {
		return kernels.SGD{}, nil
	}
	return f.update(f.set)
}

// checkJob refuses flags that mean nothing, whatever the others say.
func (f *jobFlags) checkJob() error {
	if err := required("--model", f.model, "-m resnet20"); err != nil {
		return err
	}
	if f.largest {
		return usage(errors.New("--batch max is for train: give a number of samples"))
	}
	if f.threads < 0 {
		return usage(fmt.Errorf("--threads is %d: give a number from 1, or 0 for every core", f.threads))
	}
	if f.config.Channels < 1 || f.config.Classes < 0 || f.config.Classes > mostClasses {
		return usage(fmt.Errorf("--channels is %d and --classes %d: both are positive numbers, and there are at most %d classes", f.config.Channels, f.config.Classes, mostClasses))
	}
	if err := noShare("--device-memory", f.deviceMemory); err != nil {
		return err
	}
	if f.length < 1 {
		return usage(fmt.Errorf("--length is %d: a sample of text has at least 1 token", f.length))
	}
	return nil
}

// ofFile takes what the model's file says for flags that are not given.
func (f *jobFlags) ofFile() error {
	file, is, err := models.Open(f.model)
	if !is || err != nil {
		return usage(err)
	}
	for _, sentence := range file.About {
		if !f.told {
			f.note(f.model + ": " + sentence)
		}
	}
	f.told = true
	for _, v := range []struct {
		flag string
		to   *int
		has  int
	}{{"image", &f.config.Image, file.Image}, {"length", &f.length, file.Image}, {"channels", &f.config.Channels, file.Channels}, {"classes", &f.config.Classes, file.Classes}} {
		if !f.set.Changed(v.flag) {
			*v.to = v.has
		}
	}
	return nil
}

// rateFlags are the flags of the learning rate.
type rateFlags struct {
	lr       float64
	schedule string
	warmup   int
	every    int
	gamma    float64
}

func (f *rateFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Float64Var(&f.lr, "lr", 0, "learning rate (default: 0.1 for sgd, 0.001 for all others)")
	s.Var(newOneOf(&f.schedule, "constant", "step", "cosine"), "lr-schedule", "constant, step or cosine")
	s.IntVar(&f.warmup, "warmup", 0, "steps in which the learning rate rises to --lr")
	s.IntVar(&f.every, "lr-step", 0, "of the schedule step: steps between two falls")
	s.Float64Var(&f.gamma, "lr-gamma", 0.1, "of the schedule step: factor of each fall")
}

// decays are the learning rate's schedules.
var decays = map[string]train.Decay{"constant": train.Constant, "step": train.Step, "cosine": train.Cosine}

func (f *rateFlags) rate(optimizer string, steps int) (train.Rate, error) {
	decay := decays[f.schedule]
	r := train.Rate{Peak: f.lr, Warmup: f.warmup, Decay: decay, Every: f.every, Gamma: f.gamma, Steps: steps}
	if r.Peak == 0 {
		r.Peak = optimizerDefaults[optimizer]["lr"]
	}
	switch {
	case steps < 1:
		return r, usage(fmt.Errorf("--steps is %d: give a number from 1", steps))
	case !(r.Peak > 0 && r.Peak <= math.MaxFloat32):
		return r, usage(fmt.Errorf("--lr is %v: it is a positive number", f.lr))
	case f.warmup < 0 || f.warmup > steps:
		return r, usage(fmt.Errorf("--warmup is %d: it is from 0 to --steps, %d", f.warmup, steps))
	}
	return r, usage(f.checkStep(decay))
}

// checkStep checks the flags of the schedule step.
func (f *rateFlags) checkStep(decay train.Decay) error {
	switch {
	case decay != train.Step && f.every != 0:
		return fmt.Errorf("--lr-step is for --lr-schedule step, not for %s", f.schedule)
	case decay != train.Step:
		return nil
	case f.every < 1:
		return fmt.Errorf("--lr-step is %d: give the steps between two falls of the learning rate, as in --lr-step 500", f.every)
	case !(f.gamma > 0 && f.gamma <= 1):
		return fmt.Errorf("--lr-gamma is %v: it is above 0 and at most 1", f.gamma)
	}
	return nil
}

// strategyFlags are the options of strategies.
type strategyFlags struct{ strategy.Options }

func (f *strategyFlags) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.Slots, "slots", 0, "rotor, offload-dynprog: memory slots (default 500)")
	cmd.Flags().IntVar(&f.PofoSlots, "pofo-slots", 0, "pofo: N, more of which keep more alternatives (default 50)")
	cmd.Flags().IntVar(&f.States, "states", 0, "branch-and-bound: states kept (default 1048576; in auto 65536)")
	cmd.Flags().IntVar(&f.Segments, "segments", 0, "periodic: segments (default: the best number)")
}

// registerTolerance registers the flag of commands that plan for one limit.
func (f *strategyFlags) registerTolerance(cmd *cobra.Command) {
	f.Tolerance = auto.DefaultTolerance
	cmd.Flags().Var((*tolerance)(&f.Tolerance), "tolerance", "auto: among plans within this share of the fastest, take the one that transfers least")
}

// tolerance is a flag with a part of something, from 0 to 1: "1%" or "0.01".
type tolerance float64

// String prints it as a percentage.
func (t *tolerance) String() string { return units.Percent(float64(*t)) }

// Set implements pflag.Value.
func (t *tolerance) Set(text string) error {
	if text == "0" || text == "0%" {
		*t = 0
		return nil
	}
	return (*portion)(t).Set(text)
}

// Type implements pflag.Value.
func (t *tolerance) Type() string { return "portion" }

func (f *strategyFlags) check(flags *pflag.FlagSet) error {
	for _, o := range []struct {
		name  string
		value int
	}{{"slots", f.Slots}, {"pofo-slots", f.PofoSlots}, {"states", f.States}, {"segments", f.Segments}} {
		if flags.Changed(o.name) && o.value < 1 {
			return usage(fmt.Errorf("--%s is %d: give a number from 1", o.name, o.value))
		}
	}
	return nil
}

// namedStrategies looks up a comma-separated list; "all", every strategy that the link allows, is nil.
func namedStrategies(list string) ([]pipeline.Strategy, error) {
	if list == "all" {
		return nil, nil
	}
	var found []pipeline.Strategy
	for name := range strings.SplitSeq(list, ",") {
		s, err := planner.LookupSequence(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, nil
}

// sizes is a flag with a comma-separated list of sizes.
type sizes []units.Size

func (s *sizes) String() string { return listText[units.Size](*s) }

// Set implements pflag.Value.
func (s *sizes) Set(text string) error { return setList((*[]units.Size)(s), text) }

// Type implements pflag.Value.
func (s *sizes) Type() string { return "sizes" }

// value is a pflag.Value of a type T, of which a list can be a flag, too.
type value[T any] interface {
	*T
	Set(text string) error
	String() string
}

func listText[T any, V value[T]](list []T) string {
	var all []string
	for i := range list {
		all = append(all, V(&list[i]).String())
	}
	return strings.Join(all, ",")
}

func setList[T any, V value[T]](into *[]T, text string) error {
	var list []T
	for item := range strings.SplitSeq(text, ",") {
		var one T
		if err := V(&one).Set(item); err != nil {
			return err
		}
		list = append(list, one)
	}
	*into = list
	return nil
}
