// Package train runs training jobs: a model, its data, a device and a plan in, trained weights and a folder of
// results out.
//
// It decides nothing about memory (planner does) and computes nothing (kernels do). A job is a pure function of its
// Spec: the same spec and the same plan, or any other plan, give the same weights bit for bit.
package train

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/models/tokenizer"
	"plimsoll/runtime"
)

// Job is an opened spec: everything that is known before a plan is chosen.
type Job struct {
	Spec
	batches
	Work    *executor.Workload
	Device  runtime.Info
	library string
	unsplit bool // for sizes alone
	// straights are the workloads for plans with portals, by the last layers of their stages.
	straights map[string]*executor.Workload
}

// Open builds the model and opens the data set. Errors name the field and list what is known.
func Open(s Spec) (*Job, error) {
	if err := models.Check(s.Model); err != nil { // before the data set is asked for samples of such a model
		return nil, err
	}
	j := &Job{Spec: s}
	for _, part := range []func() error{j.divide, j.openData, j.compile, j.checkLink} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	if models.OfPairs(j.Model) {
		j.makeRoom()
	}
	return j, nil
}

// Images returns how many images, or samples of text, a step has.
func (j *Job) Images() int { return j.Config.Batch * j.parts() }

// Tokens returns how many tokens a sample has; 0 of images.
func (j *Job) Tokens() int {
	if models.OfText(j.Model) {
		return j.Config.Image
	}
	return 0
}

// Samples says what so many samples are: "32 images", "32 samples of 64 tokens".
func (j *Job) Samples(n int) string {
	if j.SampleSize().OfImages() {
		return units.Count(n, "image")
	}
	return j.SampleSize().Samples(n)
}

// SampleSize returns the size of a sample.
func (j *Job) SampleSize() models.SampleSize { return models.SizeOf(j.Model, j.Config.Image) }

// Rate says what so many samples per second are: "312 images/s", "19.9k tokens/s", "312 samples/s" of numbers.
func (j *Job) Rate(samples float64) string {
	switch t := j.Tokens(); {
	case t > 0:
		return units.Rate(samples*float64(t), "tokens")
	case j.SampleSize().OfImages():
		return units.Rate(samples, "images")
	}
	return units.Rate(samples, "samples")
}

// Held says how many of so many held-out samples, with so large a loss and, of masks, so large a mean IoU, were predicted. Where a loss
// predicts nothing, Held names the loss and the number of targets.
func (j *Job) Held(loss, accuracy Number, iou *float64, samples int) string {
	switch {
	case j.Tokens() > 0 && data.Labels(j.Set) > 1:
		return fmt.Sprintf("%.2f%% of %d held-out tokens, perplexity %.3f", 100*accuracy, samples, math.Exp(float64(loss)))
	case !j.Config.Loss.Predicts():
		return fmt.Sprintf("%v of %s", j.Config.Loss, units.Count(samples, "held-out target"))
	case j.Config.Loss == kernels.BCE:
		return fmt.Sprintf("%.2f%% of %s", 100*accuracy, units.Count(samples, "held-out target"))
	case iou != nil && !j.SampleSize().OfImages():
		return fmt.Sprintf("%.2f%% of %d held-out positions, mean IoU %.4f", 100*accuracy, samples, *iou)
	case iou != nil:
		return fmt.Sprintf("%.2f%% of %d held-out pixels, mean IoU %.4f", 100*accuracy, samples, *iou)
	}
	return fmt.Sprintf("%.2f%% of %d held-out samples", 100*accuracy, samples)
}

// openData opens the data set and cuts it into batches.
func (j *Job) openData() (err error) {
	c := &j.Config
	o := data.Options{Seed: j.Seed, Image: c.Image, Channels: c.Channels, Classes: c.Classes, Axes: models.AxesOf(j.Model), SkipBad: j.SkipBad, OnSkip: j.OnSkip}
	if models.OfText(j.Model) {
		o.Image, o.Length, o.Tokenizer = 0, c.Image, j.Tokenizer
	}
	set, err := data.Open(j.Data, o)
	if err != nil {
		return err
	}
	if err := j.checkTexts(set); err != nil {
		return err
	}
	if set, err = maskTokens(set, j.Model, j.Tokenizer, j.Seed); err != nil {
		return err
	}
	if err := j.checkLoss(set); err != nil {
		return err
	}
	if models.OfPairs(j.Model) {
		set = data.Pairs(set, j.Seed)
	}
	if c.Classes = cmp.Or(c.Classes, set.Classes()); c.Classes < set.Classes() {
		if f, is, _ := models.Open(j.Model); is && f.Classes == c.Classes {
			format := "%w: --model %s has %d classes, and data set %s has %d: give data with at most as many, or export the model with %d"
			if f.Text && !f.PerSample {
				format = "%w: --model %s has a vocabulary of %d tokens, and data set %s one of %d: " +
					"give data whose tokenizer has at most as many tokens, or export the model with %d"
			}
			return fmt.Errorf(format, ErrSpec, j.Model, c.Classes, set.Name(), set.Classes(), set.Classes())
		}
		return fmt.Errorf("%w: --classes is %d, but data set %s has %d: give no fewer, or leave it out", ErrSpec, c.Classes, set.Name(), set.Classes())
	}
	j.batches, err = newBatches(set, c.Batch, j.Seed)
	return err
}

// checkTexts refuses texts with a class each for a model that gives logits to each token, and the other way round.
func (j *Job) checkTexts(set data.Dataset) error {
	f, _, _ := models.Open(j.Model)
	switch _, classified := set.(data.Classified); {
	case classified && !f.PerSample:
		return fmt.Errorf("%w: data set %s has a label for each text, and --model %s gives logits to each token: give a model whose logits are N,classes", ErrSpec, set.Name(), j.Model)
	case f.PerSample && !classified:
		return fmt.Errorf("%w: --model %s gives a text a class, and data set %s has the next token of each: give texts with labels, as in --data jsonl:PATH", ErrSpec, j.Model, set.Name())
	case f.PerSample && f.Vocabulary > 0:
		by, err := tokenizer.Open(j.Tokenizer)
		if err == nil && by.Size() > f.Vocabulary {
			err = fmt.Errorf("%w: --model %s has a vocabulary of %d tokens, and --tokenizer %s one of %d: give the tokenizer that the model was trained with",
				ErrSpec, j.Model, f.Vocabulary, by.Name(), by.Size())
		}
		return err
	}
	return nil
}

// maskTokens returns the data set with tokens masked, where the model tells such tokens.
func maskTokens(set data.Dataset, model, words string, seed uint64) (data.Dataset, error) {
	text, is := set.(data.Sequences)
	f, _, _ := models.Open(model)
	if !is || !f.Masked {
		return set, nil
	}
	by, err := tokenizer.Open(cmp.Or(words, f.Tokenizer))
	if err != nil {
		return nil, err
	}
	masks, has := by.(interface{ Mask() int32 })
	switch {
	case !has || masks.Mask() < 0:
		return nil, fmt.Errorf("%w: --model %s tells masked tokens, and --tokenizer %s has no token that masks them: give a folder whose tokenizer_config.json has mask_token",
			ErrSpec, model, by.Name())
	case by.Size() != set.Classes():
		return nil, fmt.Errorf("%w: data set %s has a vocabulary of %d tokens, and tokenizer %s one of %d: give the data that it made", ErrSpec, set.Name(), set.Classes(), by.Name(), by.Size())
	}
	return data.NewCloze(text, seed, masks.Mask()), nil
}

// checkLoss refuses a data set that has no targets for the loss, or targets for another one.
func (s *Spec) checkLoss(set data.Dataset) error {
	targets, has := set.(data.Targets)
	loss := s.Config.Loss
	switch {
	case loss == kernels.CrossEntropy && has:
		return fmt.Errorf("%w: --loss %v is of classes, and data set %s has targets, %d of each sample: give --loss mse, l1 or bce, or save y as integers",
			ErrSpec, loss, set.Name(), set.Classes())
	case loss == kernels.CrossEntropy:
		return nil
	case !has:
		return fmt.Errorf("%w: --loss %v is of targets, and data set %s has classes: give --loss %v, or float targets, as in --data npy:PATH", ErrSpec, loss, set.Name(), kernels.CrossEntropy)
	case models.OfPairs(s.Model):
		return fmt.Errorf("%w: --model %s tells whether two samples have one class, and --loss %v is of targets: give a model of single samples", ErrSpec, s.Model, loss)
	case s.Config.Classes > 0 && s.Config.Classes != set.Classes():
		return fmt.Errorf("%w: --model %s has %d outputs, and data set %s has %d targets of each sample: give as many targets as outputs",
			ErrSpec, s.Model, s.Config.Classes, set.Name(), set.Classes())
	}
	if least, largest := targets.TargetRange(); loss == kernels.BCE && (least < 0 || largest > 1) {
		return fmt.Errorf("%w: --loss %v is of targets from 0 to 1, and data set %s has targets from %v to %v: give --loss mse or l1", ErrSpec, loss, set.Name(), least, largest)
	}
	return nil
}

// compile builds the model and compiles it for the device's library, which a device that is never used tells.
func (j *Job) compile() error {
	m, err := models.New(j.Model, j.Config)
	if err != nil {
		return err
	}
	if err := j.checkLabels(m); err != nil {
		return err
	}
	compile := executor.Compile
	switch {
	case j.Microbatches > 0:
		compile = pipe.Compile
	case j.unsplit:
		compile = executor.CompileUnsplit
	}
	err = j.ask(func(target executor.Target) (err error) {
		j.Device, j.library = target.Device.Info(), target.Library.Name()
		j.keepLimits()
		lib := target.Library
		if j.Parts > 0 {
			lib = models.Accumulation(lib)
		}
		if j.Work, err = compile(m, lib, j.Update); err == nil && j.alone() {
			j.Work.KeepMasters(lib)
		}
		if err == nil && j.NarrowGradients {
			err = narrowGradients(j)
		}
		return err
	})
	if errors.Is(err, kernels.ErrType) {
		err = j.typeError(err)
	}
	return err
}

// narrowGradients lets gradients be kept in bfloat16.
func narrowGradients(j *Job) error {
	if !j.alone() {
		return fmt.Errorf("%w: --option optimizer.gradients=bf16 is for one device, and --devices is %s: leave it out", ErrSpec, j.Devices)
	}
	if j.Work.NarrowGradients(); !j.Work.HasNarrowGradients() {
		return fmt.Errorf("%w: --option optimizer.gradients=bf16: no gradient of %s can be kept in it with --dtype %v, whose weights have no master copies: give --dtype bf16, or leave it out",
			ErrSpec, j.Model, j.Config.DType)
	}
	return nil
}

// keepLimits gives the device the same limits whenever it is opened again: those that it takes by itself follow what memory is free then.
func (j *Job) keepLimits() {
	if !j.alone() {
		return
	}
	j.Device.HostMemory = max(j.Device.HostMemory, j.HostMemory)
	j.Open.Memory, j.Open.HostMemory = j.Device.Memory, j.Device.HostMemory
}

// typeError says which kernels do not compute in the job's type, and what does.
func (j *Job) typeError(err error) error {
	of, why, otherwise := "--devices "+j.Devices, "", ", or --debug reference, which is slow"
	if j.Described != nil {
		of, otherwise = "--device", ""
	}
	if lacks, ok := errors.AsType[*kernels.TypeError](err); ok {
		why = ": it needs " + lacks.Needs
	}
	return fmt.Errorf("%w: --dtype %v: the kernels of %s, %s, do not compute in it%s; use --dtype float32%s", ErrSpec, j.Config.DType, of, j.library, why, otherwise)
}

// ask lets do use the library of a fresh device, and keeps the choices that the library has made.
func (j *Job) ask(do func(executor.Target) error) error {
	target, err := j.Target()
	if err != nil {
		return err
	}
	err = do(target)
	if lib, chooses := target.Library.(kernels.Chooser); chooses && err == nil {
		j.Kernels.Choices, err = lib.ExportChoices()
	}
	return errors.Join(err, target.Device.Close())
}

// checkLabels refuses a model that gives classes to other things than those that have them in the data.
func (j *Job) checkLabels(m *models.Model) error {
	if j.SampleSize().Features > 0 {
		return checkPositions(j, m)
	}
	switch pixels := len(m.Labels.Shape) == 3; {
	case pixels && !data.Masked(j.Set):
		return fmt.Errorf("%w: --model %s classifies pixels, and data set %s has a class per image: give it masks, as in --data shapes, or a model of images, as in -m unet",
			ErrSpec, j.Model, j.Set.Name())
	case !pixels && data.Masked(j.Set):
		return fmt.Errorf("%w: data set %s has a class for each pixel, and --model %s gives one to an image: give a model that segments, as in -m unetseg", ErrSpec, j.Set.Name(), j.Model)
	}
	return nil
}

// checkPositions refuses a model that gives classes to other positions of N,C,T than those that have them in the data.
func checkPositions(j *Job, m *models.Model) error {
	have, masked := int(m.Labels.Elements())/m.Labels.Shape[0], data.Masked(j.Set)
	switch positions := len(m.Labels.Shape) > 1; {
	case positions && (!masked || have != data.Labels(j.Set)):
		return fmt.Errorf("%w: --model %s gives each of %s a class, and data set %s has %s for each sample: give --data npy:PATH with integers N,%d in y.npy; logits are N,positions,classes",
			ErrSpec, j.Model, units.Count(have, "position"), j.Set.Name(), units.Count(data.Labels(j.Set), "label"), have)
	case !positions && masked:
		return fmt.Errorf("%w: data set %s has a class for each position, and --model %s gives one to a sample: give one class for each sample", ErrSpec, j.Set.Name(), j.Model)
	}
	return nil
}

// untied says which model has no weights that layers share.
func untied(model string) string {
	if name := models.Untied(model); name != "" {
		return ", or -m " + name
	}
	return ""
}

// longestUpload is how long the weights may be on their way to the device before the first step.
const longestUpload = 10 * time.Minute

// checkLink refuses a link to host memory over which nothing would ever begin.
func (j *Job) checkLink() error {
	weights := 4 * j.Work.Model.ParamCount()
	if took := float64(weights) / j.Open.Bandwidth; j.Open.Bandwidth > 0 && took > longestUpload.Seconds() {
		return fmt.Errorf("%w: --bandwidth %s: the weights, %s, would take %s to reach the device: give more, as in --bandwidth 1GB/s",
			ErrSpec, units.Rate(j.Open.Bandwidth, "B"), units.Bytes(weights), units.Seconds(took))
	}
	return nil
}

// StoreAllBytes returns the peak of the step that recomputes nothing, static memory included: what shares of memory
// are shares of.
func (j *Job) StoreAllBytes() (int64, error) { return j.Work.PeakBytes(j.Work.StoreAll()) }

// StoreAllExtent returns the arena in which that step has room, with fragmentation.
func (j *Job) StoreAllExtent() (int64, error) { return j.Work.Extent(j.Work.StoreAll()) }

// HostLimit returns the host memory that a run on one device may take: the limit that was asked for, at most the device's
// own. An argument of 0 asks for no limit; a result of 0 means that no limit is known.
func (j *Job) HostLimit(asked int64) int64 {
	if has := j.Device.HostMemory; has > 0 && (asked == 0 || asked > has) {
		return has
	}
	return asked
}

// Unbounded returns the job on a device as large as the machine has it, whatever size the spec gives the device.
func (j *Job) Unbounded() (*Job, error) {
	large := *j
	large.Open.Memory = 0
	target, err := large.Target()
	if err != nil {
		return nil, err
	}
	large.Device = target.Device.Info()
	return &large, target.Device.Close()
}
