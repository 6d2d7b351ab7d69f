package train

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plimsoll/executor/checkpoint"
	"plimsoll/internal/cores"
	"plimsoll/kernels"
	"plimsoll/models/data"
	"plimsoll/models/tokenizer"
	"plimsoll/planner/pipeline"
)

// ErrOtherRun says that a checkpoint, or a folder, is not of the run that is to go on from it.
var ErrOtherRun = errors.New("it is of another run")

// meta is the state that the next step depends on besides the tensors, given how often each layer's weights were
// updated.
func (r *Run) meta(step int64, updates []int64) checkpoint.Meta {
	m := r.settings()
	m.Step, m.Updates, m.Batches, m.Position, m.Plan = step, updates, r.seen(int(step)), step*int64(r.Job.Images()), r.planHash()
	m.Extra[versionsField] = string(r.Plan.versions())
	var also Corrections
	if r.Plan.IsPipeline() {
		also = r.Plan.Corrections
	}
	m.Extra[pipemareField], m.Extra[decayField] = strconv.Itoa(also.PipeMare), fmt.Sprint(also.PipeMareDecay)
	m.Extra[deferredField] = strconv.FormatBool(also.DeferredBatchNorm)
	return m
}

// settings tell a run from others before it is planned.
func (r *Run) settings() checkpoint.Meta {
	m := r.Job.meta()
	m.Schedule = r.Rate.String()
	m.Extra["clip_norm"] = fmt.Sprint(r.MaxNorm)
	m.Extra["skip_not_finite"] = strconv.FormatBool(r.SkipNotFinite)
	m.Extra[microbatchesField] = strconv.Itoa(r.Job.parts())
	return m
}

// meta is the job's part of the settings.
func (j *Job) meta() checkpoint.Meta {
	kind, path, _ := strings.Cut(j.Data, ":")
	threads := j.Kernels.Threads
	if threads == 0 {
		threads = cores.Count()
	}
	c := j.Config
	m := checkpoint.Meta{
		Seed: j.Seed, Model: j.Model, Update: j.Update, Library: j.library, Threads: threads,
		Extra: map[string]string{
			"data": kind, "data_path": path, "batch": strconv.Itoa(j.Images()), "image": strconv.Itoa(c.Image),
			"channels": strconv.Itoa(c.Channels), "classes": strconv.Itoa(c.Classes), "dtype": c.DType.String(),
		},
	}
	if c.Loss != kernels.CrossEntropy {
		m.Extra["loss"] = c.Loss.String()
	}
	if j.NarrowGradients {
		m.Extra[gradientsField] = kernels.BFloat16.String()
	}
	if c.Freeze != "" {
		m.Extra[freezeField] = c.Freeze
	}
	if c.LoRA.Rank > 0 {
		m.Extra[loraField] = fmt.Sprintf("r=%d,alpha=%v,dropout=%v,targets=%s", c.LoRA.Rank, c.LoRA.Alpha, c.LoRA.Dropout, c.LoRA.Targets)
	}
	if j.Work.Apart() {
		m.Extra[matricesField] = "files' tensors"
	}
	if d := j.Work.MatrixType(); d != kernels.Float32 {
		m.Extra[productsField] = d.String()
	}
	if j.Tokens() > 0 {
		m.Extra[windowsField] = "every token"
	}
	if by := data.Tokenizer(j.Set); by != "" && by != tokenizer.BytesName {
		m.Extra["tokenizer"] = by
	}
	return m
}

// planHash is the SHA-256 of the plan's file.
func (r *Run) planHash() string {
	text, err := json.Marshal(r.Plan)
	if err != nil {
		panic("BUG: a plan that ran has no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// mayChange lists the fields in which a run may go on with something else; another value changes what the next steps
// compute, or may change it, but makes sense.
var mayChange = map[string]bool{
	"schedule": true, "clip_norm": true, "skip_not_finite": true, "library": true, "threads": true, "data_path": true,
	microbatchesField: true, versionsField: true, pipemareField: true, decayField: true, deferredField: true,
}

// Fields of a checkpoint that say how a pipeline trained; one without them is of a single device, where a step is one batch and
// its update follows it.
const (
	microbatchesField = "microbatches"
	versionsField     = "weight_versions"
	pipemareField     = "pipemare"
	decayField        = "pipemare_decay"
	deferredField     = "deferred_batchnorm"
)

// Fields of what trains, where not all does: patterns of frozen weights, and settings of adapters.
const (
	freezeField = "freeze"
	loraField   = "lora"
)

// gradientsField says what gradients of weights are kept in, where not in float32.
const gradientsField = "gradients"

// unlessDefault lists the fields that a run has only where it does not do as most do.
var unlessDefault = []string{"loss", gradientsField, freezeField, loraField, "tokenizer"}

// windowsField says which tokens of a text are labels in an epoch; before it was there, an epoch left some out.
const windowsField = "windows"

// remedies say what to do about fields that differ.
var remedies = map[string]string{
	"optimizer_settings": ": give the values that it was begun with, by --weight-decay and --option, as in adam.beta1=0.9, with optimizer.decay=all where it has no MatricesOnly",
	gradientsField:       ": keep them as the run was begun with, by --option optimizer.gradients=float32 or bf16",
	windowsField:         earlier,
	matricesField:        earlier,
	productsField:        earlier,
}

const earlier = ": an earlier version made its steps, and this one would make others: begin a new run from its weights, with --init"

// matricesField says which matrices Muon updates apart from each other, where a parameter has several; before it was there, none.
const matricesField = "muon_matrices"

// productsField says in which type Muon's products compute, where not in float32; before it was there, all were float32.
const productsField = "muon_products"

// Resume makes the run go on from a checkpoint. notes says what is not as it was when it was saved. Errors: ErrOtherRun,
// with what differs.
func (r *Run) Resume(from *checkpoint.Checkpoint) (notes []string, err error) {
	if from.Step >= int64(r.Steps+r.Plan.unit()) { // the last update may have taken more steps than there were left
		return nil, fmt.Errorf("%w: %s is of step %d, and --steps is %d: give more", ErrOtherRun, from.Name(), from.Step, r.Steps)
	}
	if n := len(r.Job.Work.Layers); from.Updates != nil && len(from.Updates) != n {
		return nil, fmt.Errorf("%w: %s counts the updates of %d layers, the model has %d", ErrOtherRun, from.Name(), len(from.Updates), n)
	}
	want := r.meta(from.Step, nil)
	for field, value := range map[string]string{microbatchesField: "1", versionsField: string(pipeline.Flush), pipemareField: "0", decayField: "0", deferredField: "false"} {
		if _, have := from.Extra[field]; !have {
			if from.Extra == nil {
				from.Extra = map[string]string{}
			}
			from.Extra[field] = value
		}
	}
	if notes, err = differences(from.Name(), &from.Meta, &want); err == nil {
		r.From = from
	}
	return notes, err
}

// differences compares what was saved with what is asked for. notes says where a run may go on otherwise. Errors: ErrOtherRun, with
// the rest.
func differences(path string, saved, want *checkpoint.Meta) (notes []string, err error) {
	for _, field := range unlessDefault {
		if _, given := want.Extra[field]; !given && saved.Extra[field] != "" {
			want.Extra[field] = ""
		}
	}
	list, err := saved.Differences(want)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(list, func(d checkpoint.Difference) bool { return d.Field == "dtype" }) { // which decides on the type of products
		list = slices.DeleteFunc(list, func(d checkpoint.Difference) bool { return d.Field == productsField })
	}
	var refused []string
	remedy := ""
	for _, d := range list {
		remedy = cmp.Or(remedies[d.Field], remedy)
		if mayChange[d.Field] {
			notes = append(notes, d.String())
		} else {
			refused = append(refused, d.String())
		}
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("%w: %s: %s%s", ErrOtherRun, path, strings.Join(refused, ", "), remedy)
	}
	return notes, nil
}

// seen returns how many batches BatchNorms have seen after some steps: each microbatch is one, unless statistics are deferred.
func (r *Run) seen(steps int) checkpoint.Batches {
	each := r.Job.parts()
	if r.Plan.IsPipeline() && r.Plan.DeferredBatchNorm {
		each = 1
	}
	return checkpoint.Batches{Before: r.batches, Since: int64((steps - r.begun()) * each)}
}

// updates returns how often each layer's weights were updated before the run. The result nil means never, or on several devices as
// often as the run itself would have updated them in the steps before. A checkpoint that does not say how often is read that way,
// on one device as if every step had updated them.
func (r *Run) updates() []int64 {
	switch {
	case r.From == nil:
		return nil
	case r.From.Updates == nil && !r.Plan.IsPipeline():
		return slices.Repeat([]int64{r.From.Step}, len(r.Job.Work.Layers))
	}
	return r.From.Updates
}
