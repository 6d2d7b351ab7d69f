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

	"plimsoll/executor/estimate"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
	"plimsoll/runtime/devices"
)

// jobFlags are the flags that say what is trained and where, with what commands add to them.
type jobFlags struct {
	set *pflag.FlagSet // that they are in
	modelFlags
	targetFlags
	optimizerFlags
	forward      bool        // nothing is trained: an optimizer without state takes no memory
	microbatches int         // of a pipeline's step; 0: the job is for one device
	parts        int         // of a step on one device; 0: it has one batch
	onSkip       func(error) // is told of every bad sample that is passed over
	note         func(text string)
}

// modelFlags say what is trained: a model, on data.
type modelFlags struct {
	model     string
	config    models.Config
	length    int  // of samples of text
	largest   bool // --batch max
	dtype     string
	data      string
	tokenizer string
	skipBad   bool
	seed      uint64
	told      bool   // the model's file has been described
	start     string // weights that the model begins with; "": those of the seed
}

// targetFlags say on which devices, with which kernels.
type targetFlags struct {
	devices       string
	described     string // --device
	deviceMemory  units.Size
	hostMemory    units.Size // --host-memory: the device gives it, where it would give less by itself
	bandwidth     units.Bandwidth
	peerBandwidth units.Bandwidth // of its links
	processes     int             // that have such devices; 0: this one alone
	local         int             // number of this one among those of its machine
	until         context.Context // whose end gives up what runs on the devices; nil: it is finished
	chaos         uint64
	noGraph       bool
	kernels       library.Options
}

func (f *jobFlags) register(a *app, cmd *cobra.Command) {
	f.registerModel(a, cmd)
	s, debug := cmd.Flags(), debugOf(cmd)
	s.Var(&batchFlag{images: &f.config.Batch, max: &f.largest}, "batch", "samples of a step, or max (train): as many as fit")
	s.StringVar(&f.devices, "devices", "cpu", "device: cpu")
	s.Var(&f.bandwidth, "bandwidth", "slow the cpu's link to host memory to this, as in 1GB/s (default: off)")
	debug.IntVar(&f.kernels.Threads, "threads", 0, "")
	debug.Var(&f.deviceMemory, "device-memory", "")
	debug.Var(newOneOf(&f.kernels.Vendor, "prefer", "refuse", "require"), "vendor", "")
	debug.StringVar(&f.kernels.VendorPath, "vendor-path", "", "")
	debug.BoolVar(&f.noGraph, "no-graph", false, "")
	debug.BoolVar(&f.kernels.Reference, "reference", false, "")
	debug.Uint64Var(&f.chaos, "chaos", 0, "")
}

// registerModel registers the flags that say what is trained, wherever that is.
func (f *jobFlags) registerModel(a *app, cmd *cobra.Command) {
	f.note = func(text string) { a.note("%s", text) }
	f.kernels.Note = f.note
	s, o := cmd.Flags(), optionsOf(cmd)
	f.set, f.config.Batch = s, 32
	s.StringVarP(&f.model, "model", "m", "", "model of the zoo (plimsoll models lists them), or a file that PyTorch exported, NAME.pt2 or NAME.onnx")
	s.IntVar(&f.config.Image, "image", 32, "height and width of the images, pixels")
	s.StringVar(&f.tokenizer, "tokenizer", "", "bytes, or a folder with encoder.json and vocab.bpe (default: bytes)")
	s.IntVar(&f.length, "length", 64, "tokens of a sample, of language models")
	o.IntVar(&f.config.Channels, "data.channels", 3, "")
	s.IntVar(&f.config.Classes, "classes", 0, "classes of the model (default: those of the data)")
	s.Var(newOneOf(&f.dtype, kernels.FloatNames()...), "dtype", "activations: float32, tf32 (rounded products) or bf16")
	s.StringVar(&f.data, "data", "", "data set: "+strings.Join(data.Names(), ", ")+" (default: digits; shapes for segmentation; opticks for text)")
	o.BoolVar(&f.skipBad, "data.skip-bad", false, "")
	s.Uint64Var(&f.seed, "seed", 1, "seed of weights, dropout and data")
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

// registerDevice registers the flag of commands that can ask about a device that is not here.
func (f *jobFlags) registerDevice(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.described, "device", "", "estimate for a device that is not here: a device file, or "+strings.Join(estimate.Names(), ", "))
}

// checkDevice refuses flags of a device that is here beside --device.
func (f *jobFlags) checkDevice(cmd *cobra.Command) error {
	if f.described == "" {
		return nil
	}
	return refuse(cmd, "is for a device that is here, and --device names one that is not: leave one of them out",
		"devices", "bandwidth", "profile", "threads", "device-memory", "vendor", "vendor-path", "no-graph", "reference", "chaos")
}

// describe opens the device that --device names; nil where it is not given.
func (f *jobFlags) describe() (*estimate.Device, error) {
	if f.described == "" {
		return nil, nil
	}
	d, err := estimate.Open(f.described)
	if err != nil {
		err = usage(fmt.Errorf("--device: %w", err))
	}
	return d, err
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
	described, err := f.describe()
	if err != nil {
		return s, err
	}
	return train.Spec{
		Model: f.model, Config: f.config, Data: f.data, Tokenizer: f.tokenizer, Seed: f.seed, Devices: f.devices, Described: described, Update: update, NoGraph: f.noGraph, Kernels: f.kernels,
		Microbatches: f.microbatches, Parts: f.parts, Processes: f.processes,
		Open: devices.Options{
			Memory: f.deviceMemory.Bytes, Bandwidth: float64(f.bandwidth), PeerBandwidth: float64(f.peerBandwidth), Chaos: f.chaos, Until: f.until, Local: f.local,
		},
		HostMemory: f.hostMemory.Bytes, SkipBad: f.skipBad, OnSkip: f.onSkip,
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
	if f.config.Classes < 0 || f.config.Classes > mostClasses {
		return usage(fmt.Errorf("--classes is %d: give a number from 1 to %d", f.config.Classes, mostClasses))
	}
	if err := noShare("--debug device-memory", f.deviceMemory); err != nil {
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
	}{{"image", &f.config.Image, file.Image}, {"length", &f.length, file.Image}, {"data.channels", &f.config.Channels, file.Channels}, {"classes", &f.config.Classes, file.Classes}} {
		if spelling(f.set, v.flag) == "" {
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
	s, o := cmd.Flags(), optionsOf(cmd)
	s.Float64Var(&f.lr, "lr", 0, "learning rate (default: 0.1 for sgd, 0.001 for all others)")
	s.Var(newOneOf(&f.schedule, "constant", "step", "cosine"), "lr-schedule", "constant, step or cosine")
	s.IntVar(&f.warmup, "warmup", 0, "steps in which the learning rate rises to --lr")
	o.IntVar(&f.every, "step.every", 0, "")
	o.Float64Var(&f.gamma, "step.gamma", 0.1, "")
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
	case f.every == 0:
		return errors.New("--option step.every is missing: give the steps between two falls of the learning rate, as in --option step.every=500")
	}
	return nil
}

// strategyFlags are the options of strategies.
type strategyFlags struct{ strategy.Options }

func (f *strategyFlags) register(cmd *cobra.Command) {
	o := optionsOf(cmd)
	o.IntVar(&f.Slots, "rotor.slots", 0, "")
	o.IntVar(&f.PofoSlots, "pofo.slots", 0, "")
	o.IntVar(&f.States, "branch-and-bound.states", 0, "")
	o.IntVar(&f.Segments, "periodic.segments", 0, "")
	o.Var((*byteCount)(&f.HighMemory), "capper.high-memory", "")
}

// registerTolerance registers the flag of commands that plan for one limit.
func (f *strategyFlags) registerTolerance(cmd *cobra.Command) {
	f.Tolerance = auto.DefaultTolerance
	optionsOf(cmd).Var((*tolerance)(&f.Tolerance), "auto.tolerance", "")
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

// byteCount is a number of bytes, as units.Size writes it.
type byteCount int64

// String implements pflag.Value.
func (b *byteCount) String() string { return units.Size{Bytes: int64(*b)}.String() }

// Set implements pflag.Value.
func (b *byteCount) Set(text string) error {
	var s units.Size
	if err := s.Set(text); err != nil {
		return err
	}
	if s.Share > 0 || s.Bytes == 0 {
		return fmt.Errorf("%q is no size: give it, as in 4GiB", text)
	}
	*b = byteCount(s.Bytes)
	return nil
}

// Type implements pflag.Value.
func (b *byteCount) Type() string { return "size" }

// namedStrategies looks up a comma-separated list; "all", every strategy that the link allows, is nil.
func namedStrategies(list string) ([]pipeline.Strategy, error) {
	if list == "all" {
		return nil, nil
	}
	return lookupAll(strings.Split(list, ","), planner.LookupSequence)
}

// lookupAll looks up strategies for one device, or for several.
func lookupAll(names []string, lookup func(string) (pipeline.Strategy, error)) (found []pipeline.Strategy, err error) {
	for _, name := range names {
		s, err := lookup(strings.TrimSpace(name))
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

// check refuses a limit of 0.
func (s *sizes) check() error {
	if slices.ContainsFunc(*s, units.Size.IsZero) {
		return usage(fmt.Errorf("--memory %s: a limit is 0", s.String()))
	}
	return nil
}

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
