package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plimsoll/planner/pipeline"
)

// ErrTable is returned for a file that cannot be read as a schedule table.
var ErrTable = errors.New("no schedule table")

// IsTable reports whether a strategy's name is that of a file with a schedule table.
func IsTable(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".csv") }

// Strategy returns the schedule table of a file as a strategy. It places the stages on a chain by their times, runs the ranks'
// ops in the order of the table, and returns the plan of that run. So any schedule can be planned, checked and trained with.
// Errors: ErrTable, ErrIllegal.
func Strategy(path string) (pipeline.Strategy, error) {
	s, err := ReadSchedule(path)
	if err != nil {
		return pipeline.Strategy{}, fmt.Errorf("%w: %w", ErrTable, err)
	}
	if v := s.Violations(); len(v) > 0 {
		return pipeline.Strategy{}, fmt.Errorf("%s: %w: %v", path, ErrIllegal, v[0])
	}
	return pipeline.Strategy{
		Name: path, Type: pipeline.Flushing, Microbatches: s.Microbatches,
		Summary: fmt.Sprintf("the table of a file: %d stages on %d ranks, %d microbatches", s.Stages, len(s.Rows), s.Microbatches),
		Paper:   path, Section: "the whole file",
		Solve: func(_ context.Context, r pipeline.Request) (*pipeline.Plan, error) { return s.solve(path, r) },
	}, nil
}

func (s *Schedule) solve(path string, r pipeline.Request) (*pipeline.Plan, error) {
	if m := r.Microbatches; m > 0 && m != s.Microbatches {
		return nil, fmt.Errorf("%s: %w: it has %d microbatches, asked for are %d", path, ErrChain, s.Microbatches, m)
	}
	placed, err := s.Place(r.Chain, r.Platform)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	run, err := placed.Run()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	plan, err := placed.Plan(run)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	plan.Accounting = r.Accounting
	return pipeline.Finish(path, r, plan)
}
