package train_test

import (
	"context"
	"fmt"

	"plimsoll/executor/train"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/strategy"
)

// A program of one's own measures a model, plans it under a limit and trains it along the plan. With the limit and without it, the weights
// are the same bits, and the peak is the predicted one.
func Example() {
	ctx := context.Background()
	job, err := train.Open(train.Spec{
		Model: "tiny", Config: models.Config{Image: 16, Batch: 8}, Data: "digits", Seed: 1,
		Devices: "cpu", Update: kernels.SGD{Momentum: 0.9},
	})
	if err != nil {
		panic(err)
	}
	costs, err := job.Profile(ctx, train.Measure{Repeats: 1})
	if err != nil {
		panic(err)
	}
	all, err := job.StoreAllBytes()
	if err != nil {
		panic(err)
	}
	weights := map[string]bool{}
	for _, share := range []int64{100, 90} {
		out, err := trainAt(ctx, job, costs, all*share/100)
		if err != nil {
			panic(err)
		}
		weights[out.WeightsSHA256] = true
		fmt.Printf("%d %%: in the limit: %v, the peak as predicted: %v\n", share,
			out.MeasuredPeakBytes <= out.LimitBytes, out.MeasuredPeakBytes == out.PredictedPeakBytes)
	}
	fmt.Println("weights:", len(weights))
	// Output:
	// 100 %: in the limit: true, the peak as predicted: true
	// 90 %: in the limit: true, the peak as predicted: true
	// weights: 1
}

// trainAt trains three steps in so many bytes, the arena's whole size.
func trainAt(ctx context.Context, job *train.Job, costs *chain.Chain, limit int64) (*train.Outcome, error) {
	s, err := planner.Lookup("rotor")
	if err != nil {
		return nil, err
	}
	plan, err := job.Plan(ctx, costs, s, limit, strategy.Options{})
	if err != nil {
		return nil, err
	}
	run := &train.Run{Job: job, Chain: costs, Plan: plan, Steps: 3, Rate: train.Rate{Peak: 0.05, Steps: 3}}
	return run.Do(ctx)
}
