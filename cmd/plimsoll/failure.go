package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"plimsoll/bench/trace"
	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/executor/measure"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
	_ "plimsoll/models/huggingface"
	"plimsoll/models/importer"
	_ "plimsoll/models/onnx"
	_ "plimsoll/models/torchexport"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/milp"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/flush"
	"plimsoll/planner/pipeline/ilp"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/pipeline/periodic"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
	"plimsoll/runtime"
	"plimsoll/runtime/devices"
	"plimsoll/runtime/world"
)

// badInput lists the errors of other packages that only what the user wrote can cause.
var badInput = []error{
	units.ErrSyntax, chain.ErrFormat, schedule.ErrUnknownOp, schedule.ErrNoLink, schedule.ErrEndless,
	pipeline.ErrOtherChain, planner.ErrUnknownStrategy, planner.ErrOtherDevices, remat.ErrOptions, remat.ErrTooLarge, offload.ErrLink, offload.ErrOptions, pofo.ErrOptions, pofo.ErrTooLarge, milp.ErrNoSolver, strategy.ErrBranches, multichain.ErrTooLarge,
	models.ErrUnknown, models.ErrConfig, importer.ErrFormat, importer.ErrUnsupported, measure.ErrSlowLink, trace.ErrTooLong,
	data.ErrUnknown, data.ErrOption, data.ErrUnreadable, data.ErrNoImages, data.ErrEmptyClass, data.ErrCorrupt, data.ErrTruncated,
	data.ErrTooLarge, data.ErrLabel, devices.ErrSpec, devices.ErrUnknown, train.ErrSpec, train.ErrOtherModel, train.ErrOtherRun,
	train.ErrLog, train.ErrNoRoom, checkpoint.ErrElsewhere, checkpoint.ErrNoWeights, checkpoint.ErrIndex, safetensors.ErrFormat,
	interop.ErrTable, interop.ErrIllegal, interop.ErrChain, pipeline.ErrPlatform, pipeline.ErrBranches, periodic.ErrOptions, periodic.ErrStages, periodic.ErrNoPattern, flush.ErrOptions, flush.ErrHalves, ilp.ErrTooLarge, pipeline.ErrOps, pipe.ErrPlan, world.ErrTransport,
}

// failure is how a command line ended without success: a line for people, or an object with --json.
type failure struct {
	Command  string `json:"command"`
	Error    string `json:"error"` // what happened and what to do, on one line
	Kind     kind   `json:"kind"`
	ExitCode int    `json:"exit_code"`
	*refusal
}

// kind tells failures apart for programs.
type kind string

const (
	kindUsage       kind = "bad_input" // flags, names, files, plans: exit code 2
	kindNoFit       kind = "does_not_fit"
	kindInterrupted kind = "interrupted"
	kindFailed      kind = "failed"
	kindBug         kind = "bug"
)

// failureOf says what an error means.
func failureOf(command string, err error) *failure {
	f := &failure{Command: command, Error: oneLine(err), Kind: kindFailed, ExitCode: exitFailed}
	if e, ok := errors.AsType[*launchedError](err); ok {
		f.ExitCode = e.code
		switch e.code {
		case exitUsage:
			f.Kind = kindUsage
		case exitNoFit:
			f.Kind = kindNoFit
		}
		return f
	}
	switch f.refusal = refusalOf(err); {
	case errors.Is(err, context.Canceled) || errors.Is(err, runtime.ErrAbandoned):
		f.Kind, f.Error = kindInterrupted, "interrupted"
	case errors.Is(err, train.ErrInterrupted):
		f.Kind = kindInterrupted
	case f.refusal != nil || is[noFit](err):
		f.Kind, f.ExitCode, f.Error = kindNoFit, exitNoFit, f.explain(err)
	case !ofAnother(err) && isInput(err):
		f.Kind, f.ExitCode = kindUsage, exitUsage
	}
	if errors.Is(err, data.ErrCorrupt) || errors.Is(err, data.ErrTruncated) {
		f.Error += ": repair or remove it, or pass over such samples with --option data.skip-bad"
	}
	return f
}

// writeJSON writes the failure on a line of its own.
func (f *failure) writeJSON(w io.Writer) {
	text, err := json.Marshal(f)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	fmt.Fprintf(w, "%s\n", text)
}

// isInput reports whether what the user wrote is wrong.
func isInput(err error) bool {
	return is[usageError](err) || is[*world.DisagreementError](err) || errors.Is(err, world.ErrSecret) || is[*checkpoint.TensorsError](err) || is[*schedule.RuleError](err) || is[*executor.UnusedPrefetchError](err) ||
		is[*schedule.ParseError](err) || is[*kernels.OpError](err) ||
		slices.ContainsFunc(badInput, func(known error) bool { return errors.Is(err, known) })
}
