package train

import (
	"slices"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
)

// Summary holds the results and the costs of a run, beside the predicted ones. Times are of one step, in seconds.
type Summary struct {
	Steps       int `json:"steps"`        // of the whole run
	ResumedFrom int `json:"resumed_from"` // steps that were done before
	Quality
	Strategy   string `json:"strategy"`
	Winner     string `json:"winner,omitempty"` // as in pipeline.Plan
	LimitBytes int64  `json:"limit_bytes"`
	StepTimes
	ArenaSummary
	// Pipe is how a pipeline used its devices. Peak and extent above are then those of the device that needs most.
	Pipe        *PipeSummary `json:"pipeline,omitempty"`
	HostBytes   int64        `json:"host_bytes"`        // of page-locked memory
	CopiesBytes int64        `json:"host_copies_bytes"` // of which for what is offloaded
	Speed
	Skipped           int    `json:"skipped"`     // steps whose gradients were not finite
	BadSamples        int64  `json:"bad_samples"` // that were passed over
	Checkpoints       int    `json:"checkpoints"` // saved
	CheckpointsFailed int    `json:"checkpoints_failed"`
	WeightsSHA256     string `json:"weights_sha256"`
}

// Quality is how well the model does at the end of a run.
type Quality struct {
	Loss        Number   `json:"loss"`               // the last one that is finite
	Accuracy    Number   `json:"accuracy"`           // on the test samples, as in Record
	MeanIoU     *float64 `json:"mean_iou,omitempty"` // likewise, as in Score, where images have masks
	TestLoss    Number   `json:"test_loss"`
	TestCorrect int      `json:"test_correct"`
	TestSamples int      `json:"test_samples"`
}

// StepTimes are the times of a step and of a run.
type StepTimes struct {
	PredictedS float64 `json:"predicted_s_per_step"`
	MeasuredS  float64 `json:"measured_s_per_step"`
	// All steps of a run of a cyclic plan, whose first and last step take other times: from their beginning to the end of the last one.
	PredictedRunS float64 `json:"predicted_s_of_run,omitempty"`
	MeasuredRunS  float64 `json:"measured_s_of_run,omitempty"` // data, that steps waited for, included
	Drift         *Drift  `json:"drift,omitempty"`
}

// ArenaSummary is the memory of the arena, in bytes.
type ArenaSummary struct {
	PredictedPeakBytes int64 `json:"predicted_peak_bytes"`
	MeasuredPeakBytes  int64 `json:"measured_peak_bytes,omitempty"` // not of pipelines without a flush
	ExtentBytes        int64 `json:"extent_bytes"`
	StagedBytes        int64 `json:"staged_bytes,omitempty"` // in which the next batch waits beside a step
}

// Speed is how much a run trained in its time, and how its devices spent that.
type Speed struct {
	SamplesPerS   float64 `json:"samples_per_s"`          // without evaluations and checkpoints
	ImagesPerS    float64 `json:"images_per_s,omitempty"` // the same, of models of images
	TokensPerS    float64 `json:"tokens_per_s,omitempty"` // of language models
	DataWaitShare float64 `json:"data_wait_share"`        // of the time of the steps, that they waited for data
	// Idle is how long the devices computed nothing.
	Idle *Idle `json:"idle,omitempty"`
}

// Drift compares the machine during a run with its profile, and gives the prediction's error with that difference corrected. The reference
// is the run's own ops beside which nothing was copied (executor.Drift). In a plan without transfers the reference is all ops, and the
// rest of the error is launches and waits.
type Drift struct {
	Factor     float64    `json:"factor"` // costs of ops in the run over those in the chain
	Ops        float64    `json:"reference_ops"`
	PredictedS float64    `json:"predicted_s_per_step"` // with costs times the factor
	Error      float64    `json:"error"`                // of PredictedS, as a share of the measured time; above 0: the step was slower
	Interval   [2]float64 `json:"error_interval"`       // of Error, 95 %, by how much steps vary
	Without    float64    `json:"error_without"`        // of the prediction by the costs of the chain
}

// Outcome is a finished run.
type Outcome struct {
	Summary
	Measured executor.Measured // the step in the middle of the latest ones, which MeasuredS is the time of
	// Tasks says when the tasks of a pipeline ran: of the step in the middle of the latest ones, which took MeasuredS; without a
	// flush of the last minibatches.
	Tasks []pipe.Timing
	// Window says which of Tasks are the step in the middle of a cyclic plan, or the steps where it repeats after several.
	Window  cycle.Window
	History History
	// Unsaved is why the trained state is not on disk as it should be; nil when it is.
	Unsaved error
}

// PipeSummary is how a pipeline used its devices.
type PipeSummary struct {
	Versions     pipeline.Versions `json:"weight_versions"`
	Microbatches int               `json:"microbatches"`     // of a step
	UpdateSteps  int               `json:"steps_per_update"` // more than 1 where an update takes several minibatches
	Devices      []DeviceSummary   `json:"devices"`
	// Shared says that the devices compete for processors, and how far the prediction counts that; nil where each has its own.
	Shared *SharedProcessors `json:"shared_processors,omitempty"`
	// Sums names the library that added up the gradients of replicas in different processes: "ncclAllReduce", with bits that may differ from
	// run to run. It is empty where Plimsoll did.
	Sums string `json:"sums,omitempty"`
	// Sent counts the messages between processes; nil in one process.
	Sent *Sent `json:"sent,omitempty"`
	// Slowest is the task that made others wait longest beyond the plan; nil where none took much longer than the plan says.
	Slowest *SlowTask `json:"slowest,omitempty"`
}

// Sent counts the messages between the processes of a run, evaluations included.
type Sent struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
	// DeviceBytes is the memory of GPUs that NCCL has taken for it beside the arenas.
	DeviceBytes int64 `json:"device_bytes,omitempty"`
}

// DeviceSummary is the memory of one device, in bytes, as it was laid out.
type DeviceSummary struct {
	Name      string `json:"name"`
	Stages    []int  `json:"stages"`
	PeakBytes int64  `json:"predicted_peak_bytes"`
	// MeasuredPeakBytes is the peak of a step that is audited before the first one; 0 without a flush.
	MeasuredPeakBytes int64 `json:"measured_peak_bytes,omitempty"`
	ExtentBytes       int64 `json:"extent_bytes"`
	StaticBytes       int64 `json:"static_bytes"`
	WeightsBytes      int64 `json:"weights_bytes"` // all versions
	MessagesBytes     int64 `json:"messages_bytes"`
	WorkingBytes      int64 `json:"working_bytes"`
	InFlightBytes     int64 `json:"in_flight_bytes"`
	// SnapshotBytes of page-locked memory, beside the arena, hold a state while it is saved.
	SnapshotBytes int64 `json:"snapshot_bytes"`
	// OffloadedBytes of page-locked memory hold what the stage offloads.
	OffloadedBytes int64 `json:"offloaded_bytes"`
}

// summary returns the summary of a run that has not begun.
func (r *Run) summary() Summary {
	p := r.Plan
	s := Summary{Steps: r.Steps, ResumedFrom: r.begun(), Strategy: p.Strategy, Winner: p.Winner, LimitBytes: p.Limit}
	s.PredictedS, s.PredictedPeakBytes = p.PredictedSeconds(), p.PredictedPeak()
	if p.IsPipeline() {
		r.summarizeDevices(&s)
	}
	return s
}

// summarizeDevices adds what is known of a pipeline.
func (r *Run) summarizeDevices(s *Summary) {
	p := r.Plan
	s.ExtentBytes, _ = p.extent()
	s.Pipe = &PipeSummary{Versions: p.versions(), Microbatches: r.Job.Microbatches, UpdateSteps: p.unit(), Shared: r.SharedProcessors()}
	for d, m := range p.Needs {
		at := DeviceSummary{
			Stages: []int{}, PeakBytes: m.Peak, ExtentBytes: m.Extent, StaticBytes: m.Static, WeightsBytes: m.Weights,
			MessagesBytes: m.Messages, WorkingBytes: m.Working, InFlightBytes: m.InFlight,
			OffloadedBytes: m.Offloaded,
		}
		if r.Saves.Dir != nil {
			at.SnapshotBytes = m.Snapshot
		}
		for i, st := range p.Stages {
			if slices.Contains(st.Devices, d) {
				at.Stages = append(at.Stages, i)
			}
		}
		s.CopiesBytes += m.Offloaded
		s.Pipe.Devices = append(s.Pipe.Devices, at)
	}
}

// SharedProcessors returns how the run's devices on this machine share processors; nil where each has its own.
func (r *Run) SharedProcessors() *SharedProcessors {
	return r.Plan.SharedProcessors(r.Job, r.World.here())
}
