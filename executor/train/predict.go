package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// Predictor binds a model with trained weights to a device, in the least memory in which the strategies of a kind can train the model.
// Its forwards take less. Weights is a safetensors file, the folder of a checkpoint, or the folder of a run that has ended. The caller
// closes the runner. Errors: those of checkpoint.Import; ErrSpec for a device that is too small.
func (j *Job) Predictor(ctx context.Context, k strategy.Kind, weights string) (*Runner, error) {
	if err := j.checkNext(); err != nil {
		return nil, err
	}
	weights = weightsIn(weights)
	if _, err := checkpoint.Fits(weights, j.Work.Tensors()); err != nil {
		return nil, fmt.Errorf("--weights %w", err)
	}
	if err := checkAdapter(j, weights); err != nil {
		return nil, err
	}
	limit, err := j.Smallest(ctx, k)
	if err != nil {
		return nil, err
	}
	if has := j.Device.Memory; limit > has {
		return nil, fmt.Errorf("%w: --devices %s has %s, and %s takes %s with --batch %d: give a smaller batch", ErrSpec, j.Devices, units.Bytes(has), j.Model, units.Bytes(limit), j.Config.Batch)
	}
	var plan *pipeline.Plan
	costs := j.Work.Unmeasured()
	for _, s := range k.Strategies { // one of which has a plan there
		if plan, err = executor.Plan(ctx, j.Work, costs, s, limit, strategy.Options{}); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	r, err := j.Start(j.SequenceOf(costs, plan, limit), pipe.Options{})
	if err != nil {
		return nil, err
	}
	_, err = checkpoint.Import(weights, r.Executor)
	if err == nil && j.Adapter != "" {
		err = checkpoint.ImportAdapter(j.Adapter, r.Executor)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// checkAdapter refuses to judge a model whose adapter is in no file, and an adapter that is not the model's.
func checkAdapter(j *Job, weights string) error {
	switch {
	case j.Adapter != "":
		if err := checkpoint.FitsAdapter(j.Adapter, j.Work.Tensors()); err != nil {
			return fmt.Errorf("--lora %w", err)
		}
	case j.Config.LoRA.Rank > 0:
		has, err := checkpoint.HasAdapter(weights)
		if err == nil && !has {
			err = fmt.Errorf("%w: --weights %s has no adapter: give the folder of one, as in --lora runs/a, or leave --lora out", ErrSpec, weights)
		}
		return err
	}
	return nil
}

// ErrNotFinite says that a model has no likeliest token.
var ErrNotFinite = errors.New("the model's outputs are infinite or not numbers: its weights are, or are too large (evaluate says how it does)")

// Sampling is how the next token is chosen.
type Sampling struct {
	Temperature float64 // of the distribution; 0 takes the likeliest token
	Top         int     // tokens that are chosen among, the likeliest ones; 0 for all
	Seed        uint64
}

// Generate continues a text of at least one token by n tokens, and hands each over as it comes. Each takes a forward of a whole sample: of
// what comes before it as much is seen as a sample has. It needs a batch of one sample. Errors: ErrNotFinite.
func (r *Runner) Generate(ctx context.Context, text []int32, n int, s Sampling, each func(token int32) error) error {
	length, size := r.job.Tokens(), r.job.Config.Classes
	logits, batch := make([]float32, length*size), pipe.NewBatch(r.Model)
	random := rand.New(rand.NewPCG(s.Seed, s.Seed))
	text = slices.Clone(text)
	for made := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		seen := text[max(0, len(text)-length):]
		clear(batch.Input)
		for i, token := range seen {
			batch.Input[i] = math.Float32frombits(uint32(token))
		}
		if err := r.Predict(batch, logits); err != nil {
			return err
		}
		last := logits[(len(seen)-1)*size:][:size]
		if !allFinite(last) {
			return fmt.Errorf("%w: token %d behind the prompt", ErrNotFinite, made+1)
		}
		next := s.choose(last, random)
		text = append(text, next)
		if err := each(next); err != nil {
			return err
		}
	}
	return nil
}

// choose draws a token, by its logits.
func (s Sampling) choose(logits []float32, random *rand.Rand) int32 {
	if s.Temperature == 0 {
		return int32(argmax(logits))
	}
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { // NaN is last
		switch x, y := logits[a], logits[b]; {
		case x > y || x == x && y != y:
			return -1
		case x < y || y == y && x != x:
			return 1
		}
		return 0
	})
	if s.Top > 0 {
		order = order[:min(s.Top, len(order))]
	}
	sum := 0.0
	weights := make([]float64, len(order))
	for i, token := range order {
		weights[i] = math.Exp((float64(logits[token]) - float64(logits[order[0]])) / s.Temperature)
		sum += weights[i]
	}
	left := random.Float64() * sum
	for i, w := range weights {
		if left -= w; left < 0 {
			return order[i]
		}
	}
	return order[0]
}
