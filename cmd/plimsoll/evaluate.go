package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/executor/train"
	"plimsoll/internal/visible"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/models/tokenizer"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
)

// weightsFlags are the flags of commands that run trained weights forward.
type weightsFlags struct {
	job     jobFlags
	weights string
}

func (f *weightsFlags) register(a *app, cmd *cobra.Command) {
	f.job.register(a, cmd)
	_ = cmd.Flags().MarkHidden("bandwidth") // that is for training, as are:
	debugOf(cmd).hide("no-graph", "chaos")
	hideOptimizer(cmd)
	cmd.Flags().StringVar(&f.weights, "weights", "", "weights: a safetensors file, a checkpoint, or the folder of a run that has ended")
}

// open opens the job and binds it to its device, with the weights.
func (f *weightsFlags) open(ctx context.Context) (*train.Job, *train.Runner, error) {
	f.weights = cmp.Or(f.weights, f.job.weights())
	if err := required("--weights", f.weights, "--weights runs/a"); err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(f.weights); err != nil {
		return nil, nil, usage(fmt.Errorf("--weights: %w", err))
	}
	if n, err := countDevices(f.job.devices); err == nil && n > 1 {
		return nil, nil, usage(fmt.Errorf("--devices %s: one device runs the model forward", f.job.devices))
	}
	f.job.forward, f.job.start = true, f.weights
	job, err := f.job.open()
	if err != nil {
		return nil, nil, err
	}
	kinds := planner.Kinds(job.Work.Chain())
	kind := kinds[slices.IndexFunc(kinds, func(k strategy.Kind) bool { return k.Name == planner.Recompute })]
	r, err := job.Predictor(ctx, kind, f.weights)
	return job, r, err
}

// evaluateFigures is the JSON of evaluate.
type evaluateFigures struct {
	Model      string       `json:"model"`
	Data       string       `json:"data"`
	Samples    int          `json:"samples"` // held out; of text its tokens, of masks their pixels
	Correct    int          `json:"correct"`
	Accuracy   train.Number `json:"accuracy"`             // not a number of a loss that predicts nothing
	MeanIoU    *float64     `json:"mean_iou,omitempty"`   // of masks
	Loss       float64      `json:"loss"`                 // the mean
	Perplexity *float64     `json:"perplexity,omitempty"` // of text
}

func newEvaluateCommand(a *app) *cobra.Command {
	f := &weightsFlags{}
	cmd := command("evaluate", "Judge trained weights by held-out samples", `Run a model with trained weights over the held-out samples of a data set. Evaluate prints the mean loss (cross entropy) and the share
of right predictions, for text also the perplexity, for masks the mean IoU. --weights is a safetensors file with the names that train and PyTorch write, a
checkpoint, or the folder of a run. Give the --model, --length or --image, --tokenizer and --classes that they were trained with.`, nil)
	cmd.Example = `  plimsoll train -m resnet20 --data digits --image 32 --steps 200 --out runs/a
  plimsoll evaluate -m resnet20 --data digits --image 32 --weights runs/a`
	f.register(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		job, r, err := f.open(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		score, err := r.Evaluate(cmd.Context())
		if err != nil {
			return err
		}
		out := evaluateFigures{job.Model, job.Data, score.Samples, score.Correct, train.Number(score.Accuracy()), score.MeanIoU(), score.MeanLoss(), nil}
		if job.Tokens() > 0 && data.Labels(job.Set) > 1 {
			perplexity := math.Exp(out.Loss)
			out.Perplexity = &perplexity
		}
		return a.print(out, func(w io.Writer) {
			fmt.Fprintf(w, "%s on %s: loss %.5f, %s\n", out.Model, out.Data, out.Loss, job.Held(train.Number(out.Loss), out.Accuracy, out.MeanIoU, out.Samples))
		})
	}
	return cmd
}

// generateFigures is the JSON of generate.
type generateFigures struct {
	Prompt string  `json:"prompt"`
	Text   string  `json:"text"`
	Tokens []int32 `json:"tokens"`
}

// generateCommand is plimsoll generate.
type generateCommand struct {
	*app
	weightsFlags
	prompt string
	tokens int
	train.Sampling
}

func newGenerateCommand(a *app) *cobra.Command {
	c := &generateCommand{app: a}
	cmd := command("generate", "Continue a text with a trained language model", `Continue a text, token by token, with a language model and trained weights. The likeliest token is taken, or with
--temperature one is drawn, the same ones for a --seed. The model sees as much of what comes before as --length says, the
length that it was trained with; every token takes a forward over all of it.`, nil)
	cmd.Example = `  plimsoll train -m gpt2-2-64 --length 64 --steps 500 --optimizer adamw --lr 0.003 --out runs/text
  plimsoll generate -m gpt2-2-64 --length 64 --weights runs/text --prompt "The Rays of Light" --tokens 200 --temperature 0.8`
	c.register(a, cmd)
	for _, name := range []string{"image", "batch", "data"} {
		_ = cmd.Flags().MarkHidden(name) // that are for data
	}
	optionsOf(cmd).hide("data.channels", "data.skip-bad")
	s := cmd.Flags()
	s.StringVar(&c.prompt, "prompt", "", "text to continue")
	s.IntVar(&c.tokens, "tokens", 100, "tokens to add")
	s.Float64Var(&c.Temperature, "temperature", 0, "draw tokens: 1 as the model says, below 1 likelier ones (default: take the likeliest)")
	s.IntVar(&c.Top, "top-k", 0, "draw among so many likeliest tokens (default: all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) }
	return cmd
}

func (c *generateCommand) check() error {
	file, _, _ := models.Open(c.job.model) // its errors come again
	switch {
	case c.job.model != "" && !models.OfText(c.job.model):
		return usage(fmt.Errorf("--model %s reads no text: give a language model, as in -m gpt2-2-64", c.job.model))
	case file.Masked || file.PerSample:
		return usage(fmt.Errorf("--model %s sees a text whole and tells no next token: give a decoder, as in -m gpt2-2-64", c.job.model))
	case c.prompt == "":
		return required("--prompt", "", `--prompt "The "`)
	case c.tokens < 1:
		return usage(fmt.Errorf("--tokens is %d: give a number from 1", c.tokens))
	case !(c.Temperature >= 0) || math.IsInf(c.Temperature, 1):
		return usage(fmt.Errorf("--temperature is %v: give 0 or a positive number", c.Temperature))
	case c.Top < 0:
		return usage(fmt.Errorf("--top-k is %d: give a number from 1, or 0 for all tokens", c.Top))
	}
	return nil
}

func (c *generateCommand) run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.job.ofFile(); err != nil {
		return err
	}
	words, err := tokenizer.Open(c.job.tokenizer)
	if err != nil {
		return usage(fmt.Errorf("--tokenizer: %w", err))
	}
	c.job.config.Batch, c.job.data, c.Seed = 1, "opticks", c.job.seed // of which the vocabulary alone is used
	job, r, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if have := job.Config.Classes; have < words.Size() || have > words.Size() && c.job.weights() == "" { // folders have rows to spare
		return usage(fmt.Errorf("the model has %d tokens, and the tokenizer %d: give the --tokenizer that it was trained with", have, words.Size()))
	}
	out := generateFigures{Prompt: c.prompt}
	shown := io.Discard
	if !c.json {
		shown = visible.Writer{W: c.stdout}
	}
	fmt.Fprint(shown, c.prompt)
	var text []byte // of which so much was shown:
	from := 0
	err = r.Generate(ctx, words.Encode(nil, []byte(c.prompt)), c.tokens, c.Sampling, func(token int32) (err error) {
		out.Tokens = append(out.Tokens, token)
		if text, err = words.Decode(text, []int32{token}); err != nil {
			return err
		}
		to := max(from, tokenizer.Whole(text))
		fmt.Fprintf(shown, "%s", text[from:to])
		from = to
		return nil
	})
	if errors.Is(err, train.ErrNotFinite) {
		err = fmt.Errorf("--weights %s: %w", c.weights, err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(shown, "%s\n", text[from:])
	out.Text = string(text)
	return c.print(out, func(io.Writer) {}) // it was shown
}
