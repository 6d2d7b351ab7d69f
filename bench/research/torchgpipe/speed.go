package main

import (
	"context"
	"fmt"
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// racers returns the strategies of the speed tables. Flush schedules take stages of equal time and as much memory as they
// need; madpipe and loadline plan for the memory of the paper's devices.
func racers() []holder {
	return []holder{
		{"gpipe-checkpoint", "gpipe-checkpoint", pipeline.Flush, false},
		{"1f1b-flush", "1f1b-flush", pipeline.Flush, false},
		{"zb-h1", "zb-h1", pipeline.Flush, false},
		{"interleaved", "interleaved", pipeline.Flush, false},
		{"madpipe", "madpipe", pipeline.DoubleBuffered, false},
		{"loadline", "loadline", pipeline.DoubleBuffered, false},
	}
}

// speedPoint is one strategy in one race.
type speedPoint struct {
	race
	holder  string
	plan    bool
	speedup float64 // images/s over those of the baseline
	need
	reason string
}

// run returns the points of every race of a table.
func (s *speeds) run(ctx context.Context, measured *chain.Chain, limit int64) ([]speedPoint, error) {
	factor, err := s.factor(ctx, measured)
	if err != nil {
		return nil, err
	}
	var points []speedPoint
	for _, r := range s.races {
		p, err := s.problem(r, measured, factor)
		if err != nil {
			return nil, err
		}
		for _, h := range racers() {
			point, err := s.point(ctx, p, h, limit)
			if err != nil {
				return nil, err
			}
			point.race = r
			points = append(points, point)
		}
	}
	return points, nil
}

// point returns a strategy's result in a race.
func (s *speeds) point(ctx context.Context, p *problem, h holder, limit int64) (speedPoint, error) {
	a, err := p.solve(ctx, h, limit)
	if err != nil {
		return speedPoint{}, err
	}
	point := speedPoint{holder: h.title, plan: a.plan != nil, need: a.need, reason: a.reason}
	if a.plan == nil {
		return point, nil
	}
	seconds, err := p.seconds(a.plan, s.always)
	point.speedup = float64(p.costs.Chain.Batch) / seconds / s.baseline
	return point, err
}

// problem returns a race's model with the times of a device as fast as the paper's.
func (s *speeds) problem(r race, measured *chain.Chain, factor float64) (*problem, error) {
	w, err := compiled(wanted{s.model, s.image, r.batch / r.micros, measuredClasses, 0})
	if err != nil {
		return nil, err
	}
	c, err := timed(w, measured, factor)
	if err != nil {
		return nil, err
	}
	return &problem{work: w, costs: pipeline.NewCosts(c), devices: r.devices, micros: r.micros}, nil
}

// factor returns by what measured times are multiplied so that the baseline has its images/s. Where that is a race, messages
// take part of its time, which does not grow with the factor: it is found in a few steps.
func (s *speeds) factor(ctx context.Context, measured *chain.Chain) (float64, error) {
	k := pipeline.NewCosts(measured)
	factor := float64(measured.Batch) / s.baseline / k.U(1, k.Len())
	if !s.always {
		return factor, nil
	}
	for range 12 {
		p, err := s.problem(s.races[0], measured, factor)
		if err != nil {
			return 0, err
		}
		x, err := s.point(ctx, p, racers()[0], paperMemory)
		if err != nil {
			return 0, err
		}
		if factor *= x.speedup; math.Abs(x.speedup-1) < 1e-6 {
			break
		}
	}
	return factor, nil
}

// seconds returns the time of a microbatch. In tables whose baseline recomputes always, a single microbatch does so too: by
// default the last one keeps everything.
func (p *problem) seconds(plan *pipeline.Plan, always bool) (float64, error) {
	platform := pipeline.NewPlatform(p.devices, pipeline.NoLimit, paperBandwidth)
	if always && plan.Strategy == "gpipe-checkpoint" && plan.Microbatches == 1 {
		v := variant{p: p, plan: plan, links: platform, overlap: true, early: true, straight: nil}
		o, err := v.run()
		if err != nil {
			return 0, err
		}
		return o.PerMinibatch, nil
	}
	report, err := pipeline.Check(p.costs.Chain, platform, plan)
	if err != nil {
		return 0, fmt.Errorf("BUG: %s made a plan that cannot run: %w", plan.Strategy, err)
	}
	return report.PerMinibatch, nil
}
