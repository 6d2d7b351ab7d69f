package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/joint"
)

// Names of the strategies that the table compares; all others are schedules that are fixed.
const (
	automatic, copies, stale = "auto-flush", "joint-flush", "joint"
)

// platform is the platform of a point.
type platform = pipeline.Platform

// platformOf returns the platform of a point's fields; nil where two devices shall have two levels of links. Errors name the field.
func platformOf(devices, memory, links string) (*platform, error) {
	n, badDevices := strconv.Atoi(devices)
	size, badMemory := strconv.ParseInt(memory, 10, 64)
	if badDevices != nil || badMemory != nil || n < 1 || size < 1 {
		return nil, fmt.Errorf("-devices %s, -memory %s: give lists of whole numbers, at least 1", devices, memory)
	}
	var rates []float64
	for part := range strings.SplitSeq(links, "/") {
		rate, err := strconv.ParseFloat(part, 64)
		if err != nil || rate <= 0 || len(rates) == 2 {
			return nil, fmt.Errorf("-links %s: give GB/s, as 12, or within and between nodes, as 450/12", links)
		}
		rates = append(rates, rate*1e9)
	}
	if len(rates) == 2 && n <= 2 {
		return nil, nil
	}
	return over(n, size<<30, rates), nil
}

// over returns a platform. Nodes have 8 devices, of 8 devices or fewer a half.
func over(devices int, memory int64, links []float64) *platform {
	p := pipeline.NewPlatform(devices, memory, links[0])
	if len(links) == 2 {
		node := min(8, devices/2)
		p.Bandwidth = links[1]
		p.Levels = []pipeline.Level{{Devices: node, Bandwidth: links[0]}, {Devices: devices / node, Bandwidth: links[1]}}
	}
	return p
}

// row is the plan of a strategy at a point.
type row struct {
	strategy string
	seconds  float64 // of a microbatch with its share of the updates, which joint has none of; 0: there is no plan
	remark   string  // of auto-flush the schedule that it took; late: the time for planning had ended
}

const late = "late"

// strategies returns the strategies of the grid. Chimera has two replicas of each stage and comes with divided updates
// too.
func strategies() (all []pipeline.Strategy) {
	for _, s := range slices.Concat(joint.Strategies(), flush.Strategies()) {
		if s.Type != pipeline.Flushing && s.Name != stale {
			continue
		}
		if all = append(all, s); s.Name == "chimera" {
			all = append(all, divided(s))
		}
	}
	return all
}

// divided returns a strategy with ZeRO-1.
func divided(s pipeline.Strategy) pipeline.Strategy {
	d := s
	d.Name += " with zero 1"
	d.Solve = func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
		r.Zero = pipeline.ZeroShards
		return s.Solve(ctx, r)
	}
	return d
}

// solve returns the rows of a chain on a platform, two microbatches for each device. Each strategy has so much time, and auto-flush, which asks
// all, four times as much. Errors: those of judging a plan, and the context's.
func solve(ctx context.Context, c *chain.Chain, on *platform, each time.Duration) (rows []row, err error) {
	q := pipeline.Request{Chain: c, Platform: on}
	q.Microbatches, q.Accounting = 2*on.Devices, pipeline.Saved
	for _, s := range strategies() {
		limit := each
		if s.Name == automatic {
			limit *= 4
		}
		soon, stop := context.WithTimeout(ctx, limit)
		plan, err := s.Solve(soon, q)
		stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r := row{strategy: s.Name}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			r.remark = late
		case err == nil:
			if _, err := pipeline.Check(c, on, plan); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			r.seconds, r.remark = pipeline.StepSeconds(c, on, plan), plan.Winner
		}
		rows = append(rows, r)
	}
	return rows, nil
}
