package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/executor/checkpoint/safetensors"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/ilp"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/pipeline/loadline"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime"
	"plimsoll/runtime/open"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitNoFit  = 3
)

// usageError is an error of what the user wrote.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks an error as one of what the user wrote.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// badInput lists the errors of other packages that only what the user wrote can cause.
var badInput = []error{
	units.ErrSyntax, chain.ErrFormat, chain.ErrFactor, schedule.ErrUnknownOp, schedule.ErrNoLink, schedule.ErrEndless, schedule.ErrPipeline,
	schedule.ErrOtherChain, planner.ErrUnknownStrategy, remat.ErrOptions, remat.ErrTooLarge, offload.ErrLink, offload.ErrOptions, pofo.ErrOptions, pofo.ErrTooLarge, milp.ErrNoSolver, multichain.ErrStrategy, multichain.ErrTooLarge,
	models.ErrUnknown, models.ErrConfig,
	data.ErrUnknown, data.ErrOption, data.ErrUnreadable, data.ErrNoImages, data.ErrEmptyClass, data.ErrCorrupt, data.ErrTruncated,
	data.ErrTooLarge, data.ErrLabel, open.ErrSpec, open.ErrUnknown, train.ErrSpec, train.ErrOtherModel, train.ErrOtherRun,
	train.ErrLog, safetensors.ErrFormat,
	interop.ErrTable, interop.ErrIllegal, interop.ErrChain, pipeline.ErrPlatform, pipeline.ErrBranches, periodic.ErrOptions, periodic.ErrStages, periodic.ErrNoPattern, flush.ErrOptions, flush.ErrHalves, ilp.ErrTooLarge, loadline.ErrOps, pipe.ErrPlan,
}

// exitCode says how the program ends after an error.
func exitCode(err error) int {
	switch {
	case is[*executor.TooSmallError](err), is[*executor.LimitError](err), is[*executor.LayoutError](err), is[*executor.HostLimitError](err),
		is[*strategy.InfeasibleError](err), is[*schedule.MemoryError](err), is[*runtime.OutOfMemoryError](err),
		is[noFit](err), is[*pipeline.InfeasibleError](err), is[*train.PipeMemoryError](err), is[*pipe.LimitError](err), errors.Is(err, errNothingFits):
		return exitNoFit
	case is[usageError](err), is[*checkpoint.TensorsError](err), is[*schedule.RuleError](err), is[*executor.UnusedPrefetchError](err), is[*schedule.ParseError](err), is[*kernels.OpError](err):
		return exitUsage
	}
	for _, known := range badInput {
		if errors.Is(err, known) {
			return exitUsage
		}
	}
	return exitFailed
}

// explain says on one line what happened and what to do.
func explain(err error) string {
	var small *executor.TooSmallError
	var infeasible *strategy.InfeasibleError
	var host *executor.HostLimitError
	var noPipeline *pipeline.InfeasibleError
	var arenas *train.PipeMemoryError
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, data.ErrCorrupt) || errors.Is(err, data.ErrTruncated):
		return oneLine(err) + ": repair or remove it, or pass over such samples with --skip-bad"
	case errors.As(err, &small):
		return tooSmall(small.Strategy, small.Limit, small.Smallest, small.Op, small.LayerName) +
			fmt.Sprintf("; %s of it are weights, gradients and optimizer: a smaller --batch lowers the rest", units.Bytes(small.Static))
	case errors.As(err, &arenas):
		return fmt.Sprintf("%s: a limit of %s on each device is too small: the smallest that works is %s (--memory %d), needed by device %d; %s of it are weights, gradients and optimizer",
			arenas.Strategy, units.Bytes(arenas.Limit), units.Bytes(arenas.Smallest), arenas.Smallest, arenas.Device, units.Bytes(arenas.Static))
	case errors.As(err, &noPipeline):
		return explainPipeline(noPipeline)
	case errors.As(err, &host):
		if host.Unplanned {
			return oneLine(err) + fmt.Sprintf(": give at least --host-memory %d", host.Needed)
		}
		return oneLine(err) + fmt.Sprintf(": --host-memory %d does", host.Needed)
	case errors.As(err, &infeasible):
		return tooSmall(infeasible.Strategy, infeasible.Memory, infeasible.Smallest, infeasible.Op, infeasible.LayerName)
	}
	return oneLine(err)
}

func oneLine(err error) string {
	return strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; ")
}

func tooSmall(strategy string, limit, smallest int64, op schedule.Op, layer string) string {
	return fmt.Sprintf("%s: a limit of %s is too small: the smallest that works is %s (--memory %d), needed by %v, layer %d (%s)",
		strategy, units.Bytes(limit), units.Bytes(smallest), smallest, op, op.Layer, layer)
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// input marks the errors of reading a file that the user named.
func input(err error) error {
	if is[*fs.PathError](err) {
		return usage(err)
	}
	return err
}
