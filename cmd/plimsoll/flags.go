package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

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

// bandwidths is a flag with a comma-separated list of bandwidths.
type bandwidths []units.Bandwidth

func (b *bandwidths) String() string { return listText[units.Bandwidth](*b) }

// Set implements pflag.Value.
func (b *bandwidths) Set(text string) error { return setList((*[]units.Bandwidth)(b), text) }

// Type implements pflag.Value.
func (b *bandwidths) Type() string { return "bandwidths" }
