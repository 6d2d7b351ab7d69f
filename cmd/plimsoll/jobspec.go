package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime/devices"
)

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
	adapter, err := f.takeTrained()
	if err != nil {
		return s, err
	}
	if err := firstOf(f.ofFile(), f.takeConstants()); err != nil {
		return s, err
	}
	if f.tokenizer != "" && !models.OfText(f.model) {
		return s, usage(fmt.Errorf("--tokenizer %s: --model %s reads no text: leave it out", f.tokenizer, f.model))
	}
	f.takeData()
	update := kernels.Update(kernels.SGD{})
	if !f.forward {
		if update, err = f.update(f.set); err != nil {
			return s, usage(err)
		}
	}
	if f.config.Loss, err = kernels.ParseCriterion(f.loss); err != nil {
		return s, usage(fmt.Errorf("--loss: %w", err))
	}
	if f.config.DType, err = kernels.ParseFloat(f.dtype); err != nil {
		return s, usage(fmt.Errorf("--dtype: %w", err))
	}
	described, err := f.describe()
	if err != nil {
		return s, err
	}
	return train.Spec{
		Model: f.model, Config: f.config, Adapter: adapter, Data: f.data, Tokenizer: f.tokenizer, Seed: f.seed, Devices: f.devices, Described: described, Update: update, NarrowGradients: f.narrowGradients(), NoGraph: f.noGraph, Kernels: f.kernels,
		Microbatches: f.microbatches, Parts: f.parts, Processes: f.processes,
		Open: devices.Options{
			Memory: f.deviceMemory.Bytes, Bandwidth: float64(f.bandwidth), PeerBandwidth: float64(f.peerBandwidth), Chaos: f.chaos, OwnCore: f.ownCore, Until: f.until, Local: f.local,
		},
		HostMemory: f.hostMemory.Bytes, SkipBad: f.skipBad, OnSkip: f.onSkip,
	}, nil
}

// takeData takes the built-in data set of the model's kind where none is given, and --length as the size of samples that have one.
func (f *jobFlags) takeData() {
	axes, set := models.AxesOf(f.model), "digits"
	switch {
	case models.OfText(f.model):
		set = "opticks"
	case models.Segments(f.model):
		set = "shapes"
	case axes > 0:
		set = "clusters"
	}
	if axes == 2 || models.OfText(f.model) {
		f.config.Image = f.length
	}
	f.data = cmp.Or(f.data, set)
}

// takeTrained takes what says which weights train. It returns the folder of the adapter to begin with; "": there is none.
func (f *jobFlags) takeTrained() (adapter string, err error) {
	f.config.Freeze = strings.Join(f.freeze, ",")
	switch {
	case f.lora == "" && spelling(f.set, "lora") == "":
		return "", nil
	case f.config.Freeze != "":
		return "", usage(errors.New("--lora freezes all weights but its adapters: leave --freeze out"))
	case strings.Contains(f.lora, "=") || f.lora == "":
		if f.config.LoRA, err = models.ParseLoRA(f.lora); err != nil {
			err = usage(fmt.Errorf("--lora %s: %w", f.lora, err))
		}
		return "", err
	}
	if f.config.LoRA, err = checkpoint.ReadAdapter(f.lora); err != nil {
		err = usage(fmt.Errorf("--lora %w: give settings, as in r=16,alpha=32,targets=q_proj+v_proj, or a folder with %s", err, checkpoint.AdapterSettings))
	}
	return f.lora, err
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
	if err := f.takeTokenizer(file); err != nil {
		return err
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

// weights returns the folder with the weights that the model of a folder begins with; "" of other models.
func (f *jobFlags) weights() string {
	file, _, _ := models.Open(f.model) // its errors come again
	return file.Weights
}

// takeTokenizer takes the tokenizer of a model's folder. Text that becomes other tokens than the model's would mean nothing to it.
func (f *jobFlags) takeTokenizer(file models.File) error {
	if file.Weights == "" || !file.Text || f.tokenizer != "" || strings.HasPrefix(f.data, "tokens:") || strings.HasPrefix(f.data, "nanogpt:") {
		return nil
	}
	if f.tokenizer = file.Tokenizer; f.tokenizer == "" {
		return usage(fmt.Errorf("--model %s is a folder without tokenizer.json: give --tokenizer, or tokens, as in --data tokens:PATH", f.model))
	}
	return nil
}

// takeConstants gives a language model the constants of the file that it begins with, unless its name gives them. It notes constants that
// are assumed or differ from the file's, and writes the model's name in one form.
func (f *jobFlags) takeConstants() error {
	constants, err := models.Constants(f.model)
	if err != nil {
		return err
	}
	for _, c := range constants {
		if c.Given {
			f.model = models.WithConstant(f.model, c)
		}
	}
	if f.start == "" || constants == nil {
		return nil
	}
	saved, err := train.SavedConstants(f.start)
	if err != nil {
		return nil //nolint:nilerr // the error comes again when the weights are loaded
	}
	var assumed []string
	for _, c := range constants {
		was := models.Constant{Name: c.Name, Value: saved[c.Name]}
		switch {
		case was.Value == 0 && !c.Given:
			assumed = append(assumed, c.Name+"="+c.Text())
		case was.Value == 0 || was.Text() == c.Text():
		case c.Given:
			f.note(fmt.Sprintf("%s is %s here, and was %s when %s was trained", c.Name, c.Text(), was.Text(), f.start))
		default:
			f.model = models.WithConstant(f.model, was)
			f.note(fmt.Sprintf("%s is %s, as %s says", c.Name, was.Text(), f.start))
		}
	}
	if assumed != nil {
		f.note(fmt.Sprintf("%s does not tell every constant of its model: %s are assumed. Its config.json has them, and the model's name gives others, as in -m %s,%s",
			f.start, strings.Join(assumed, ", "), f.model, strings.Join(assumed, ",")))
	}
	return nil
}
