// Package pipeline runs pipeline plans. Every stage is on its device, and each device has a driver of its own. It
// issues the device's tasks in the plan's order, on one stream for compute and one for every device that it sends to.
//
// Drivers share nothing but messages and events: a receiver grants a block of its arena, the sender copies into it and says
// which minibatch has arrived. Streams wait for events alone. Nobody keeps time, and nobody polls.
package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Executor trains with one plan.
//
// Invariants: memory is placed before the first minibatch; between runs the pipeline is empty, every stage has done the same
// minibatches and its latest weights are in slot 0.
type Executor struct {
	*compilation
	tensors  tensorTable
	reports  *reports
	done     int // minibatches
	stopped  bool
	stopping stopping
}

// layout holds the places of a plan in the memory of its devices, and the channels between them. It needs no device.
type layout struct {
	*Workload
	opt           Options
	order         *order.Order
	rules         []order.Rule           // by stage
	delays        []float64              // by stage, where PipeMare corrects them
	discrepancies []discrepancy          // by stage
	replicas      []sumChannels          // by stage
	fetched       map[[2]int]*channel    // of all stages whose weights come for turns, likewise
	scatters      map[[2]int]*channel    // of all stages whose gradients pass, by the two devices
	reducers      []*reducer             // by stage; nil for those on one device
	collectives   []*collective          // by stage; nil for those whose gradients no library adds up
	squares       []squares              // by stage
	ties          []*tie                 // of weights that stages share
	group         int                    // minibatches of an update
	halfDuplex    map[[2]int]*halfDuplex // of the links, by their ends
	channels      []*channel
	drivers       []*driver
	memory        []Memory // by device
	holds         [][]Hold // by device
	evaluations   []*evaluation
}

// compilation binds a layout to devices and compiles their tables: drivers record a dry run, recordings are folded, the prover plays them.
type compilation struct {
	*layout
	streams  int // of all drivers
	recorded int // minibatches of the latest dry run
	launches int // that are opened, counted down
}

// reports lets the drivers of a run tell results one at a time, and save states while they go on.
type reports struct {
	telling sync.Mutex // Options.Done
	saving  sync.WaitGroup
	writing atomic.Int64 // of what saves, how many wait for a disk
}

// tensorTable lists weights, buffers and optimizer states with their places.
type tensorTable struct {
	all       []placed
	byName    map[name]int
	gradients []placed // of a sequence on one device
}

// Group returns how many minibatches make one update.
func (e *Executor) Group() int { return e.group }

// HostBytes returns how much page-locked memory the devices have together.
func (e *Executor) HostBytes() (bytes int64) {
	for _, d := range e.drivers {
		bytes += d.hostBytes
	}
	return bytes
}

// Done returns how many minibatches were done.
func (e *Executor) Done() int { return e.done }

// Segment is a part of a run, from an empty pipeline to an empty one.
type Segment struct {
	Minibatches int  // a multiple of Group
	Save        bool // Options.Save takes the state behind it
}

// runningSegment is a segment while it runs.
type runningSegment struct {
	*order.Bound
	save bool
}

// driver returns the driver of a device.
func (lay *layout) driver(device int) *driver {
	return lay.drivers[slices.IndexFunc(lay.drivers, func(d *driver) bool { return d.Number == device })]
}

// drain empties a channel of Go.
func drain[T any](c chan T) {
	for len(c) > 0 {
		<-c
	}
}

// evaluation is the forward of a stage in evaluation mode, on the first device that has the stage: every layer but the loss, one
// activation at a time. It works where minibatches in flight have their memory during training, since none is.
//
// Batches go through the stages as in a pipeline of F alone: in one round stage s works on batch t-s. A stage waits until its
// output has left before it computes the next one, and a copy waits until the stage behind has used the one before.
type evaluation struct {
	stage   *localStage
	driver  *driver
	ops     []stageops.Op
	frames  []frame
	pixels  []runtime.Span   // where images are bytes: of each branch
	numbers []table.Prepared // likewise, what makes numbers of them
	inputs  []runtime.Span   // of the branches; of a later stage a_{i-1}, the output of the stage before when that is on the same device
	output  runtime.Span
	next    *evaluation // nil for the last
	link    runtime.Stream
	done    runtime.Event // the ops of the latest batch
	sent    runtime.Event // its output has left for the next stage, on another device
	crosses bool          // the next stage is on another device
	remote  *remote       // where the next stage is in another process

	loads      []load // of a cyclic plan, in the order of the ops
	loadedFrom []int  // the layer of each
}

// collective adds up the gradients of a stage's replicas at once, in place of messages along their line: a library does, in an order that
// it chooses.
//
// All devices of all lines issue their parts in one order, that of all instructions of all devices. The part of a bucket stands on all of
// them where the last device of the line would first send the whole sum. So no two parts wait for each other in a circle, and the parts of
// a line follow each other alike on its devices. Dry runs check both: there a driver goes on only when all others of the line have come.
type collective struct {
	line       []int
	number     int                       // among those of all stages
	come, gone []chan int                // in dry runs, by place in the line: what a device adds up next, to the first one; that it may
	turns      [2][]chan struct{}        // of tables, likewise
	launches   map[[3]int]table.Prepared // by device, slot and first bucket
}

// reducer adds up the gradients of a stage that has several devices, where the plan does not say when (synchronization). The sum goes from
// replica to replica, in the order of the plan's list of devices, slice by slice, and back from the last one to all. Every replica updates
// its weights with the same bits. BatchNorm's statistics go from one replica to the others where these do not have them: see share.
type reducer struct {
	hosts  []int
	slice  int64      // bytes
	slices int        // of the gradients of a stage
	up     []*channel // from replica i to the next one
	down   []*channel // from the last replica to replica i
	stats  []*channel // from one replica, the source, to each of the others: BatchNorm's statistics
}

// squares are the partial sums of a stage.
type squares struct {
	place runtime.Span           // among those of all layers
	tell  []*channel             // from the devices that measure them to those that do not
	parts map[int][]runtime.Span // likewise the places of those that a device with a shard measures; nil: all measure all
}

// placed is a tensor and where it lies: on every device of its stage, or pieces of it.
type placed struct {
	executor.Tensor
	param models.Parameter
	at    []place
	// rounded are places of a copy in bfloat16, which is written with the tensor.
	rounded []place
}

// place is a span of a device that has a tensor, or a piece of it.
type place struct {
	driver *driver
	span   runtime.Span
	behind int64 // bytes of the tensor before it
}

// name tells tensors apart.
type name struct{ role, name string }

// stopping lets executors in several processes agree on where they stop: each freezes, all tell each other what they know of, and each
// thaws with the most that anybody does.
type stopping struct {
	mu      sync.Mutex
	thawed  *sync.Cond
	frozen  bool
	runs    int              // that have begun
	running []runningSegment // of the latest run
	active  bool             // it goes on
	agreed  bool
	last    int   // no run begins behind this one, when that is agreed
	known   []int // by segment of the last one
}

// load is a copy of weights to the device for an op of an evaluation.
type load struct {
	op  int
	dst runtime.Span
}

// inOrder calls functions until one returns an error.
func inOrder(parts ...func() error) error {
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// own returns the drivers of this process.
func (comp *compilation) own() (all []*driver) {
	for _, d := range comp.drivers {
		if comp.opt.World.has(d.Number) {
			all = append(all, d)
		}
	}
	return all
}
