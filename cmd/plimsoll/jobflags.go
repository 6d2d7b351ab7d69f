package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/executor/estimate"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/models"
	"plimsoll/models/data"
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
	loss      string
	data      string
	tokenizer string
	skipBad   bool
	seed      uint64
	told      bool // the model's file has been described
	freeze    []string
	lora      string // settings of adapters, or the folder of one
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
	ownCore       bool
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
	debug.BoolVar(&f.ownCore, "own-core", false, "")
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
	s.StringVarP(&f.model, "model", "m", "", "model of the zoo (plimsoll models lists them), a folder of Hugging Face, or a file that PyTorch exported, NAME.pt2 or NAME.onnx")
	s.IntVar(&f.config.Image, "image", 32, "height and width of the images, pixels")
	s.StringVar(&f.tokenizer, "tokenizer", "", "bytes, or a folder with tokenizer.json, or with encoder.json and vocab.bpe (default: bytes; that of a --model FOLDER)")
	s.IntVar(&f.length, "length", 64, "tokens of a sample, of language models")
	o.IntVar(&f.config.Channels, "data.channels", 3, "")
	s.IntVar(&f.config.Classes, "classes", 0, "classes of the model (default: those of the data)")
	s.Var(newOneOf(&f.loss, kernels.CriterionNames()...), "loss", "cross-entropy of classes; mse, l1 or bce (with logits) of float targets, as in --data npy:PATH")
	s.Var(newOneOf(&f.dtype, kernels.FloatNames()...), "dtype", "activations: float32, tf32 (rounded products) or bf16")
	s.StringSliceVar(&f.freeze, "freeze", nil, "weights or modules that do not train, as in 'layer1,*.bias' or '*,!fc' (all but fc)")
	s.StringVar(&f.lora, "lora", "", "train adapters alone: r=16,alpha=32,targets=q_proj+v_proj, or a folder that PEFT or train wrote")
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
		"devices", "bandwidth", "profile", "threads", "own-core", "device-memory", "vendor", "vendor-path", "no-graph", "reference", "chaos")
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

// countDevices returns how many devices a text names.
func countDevices(spec string) (n int, err error) {
	items, err := devices.Parse(spec)
	for _, item := range items {
		n += max(item.Parts, 1)
	}
	return n, err
}
