package pipeline

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"plimsoll/executor/internal/canary"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// driver plays the table of one device.
type driver struct {
	*table.Device
	driverQueues
	driverWatch
	driverMemory
	lay     *layout
	reports *reports
	opened  *int // streams of all drivers
	binder  *binder
	stages  []*localStage // by stage; nil where the device has no part of it

	staging    []staging                        // by stage
	halfDuplex map[int]*halfDuplex              // by peer, of links that carry one message at a time
	paced      map[order.TaskKey]runtime.Launch // in place of kernels, in simulated time; nil else
	done       int                              // minibatches of all runs and segments before the one that it is in
	saver      *saver                           // nil when nothing is saved
	guard      *guard                           // nil without a flush
	step       *stepLayout                      // of a plan with a flush
	compiler   *compiler                        // that makes the table
	table      *table.Table                     // of a period
	now        order.Instance                   // what it issues
}

// driverQueues are the streams of a driver. Streams that its stages have no use for are not opened.
type driverQueues struct {
	compute          table.Queue
	links            map[int]table.Queue // by receiver
	adding           table.Queue         // of gradients of other replicas
	toHost, fromHost table.Queue         // of a stage with transfers
	batches          table.Queue         // of images that come ahead
	updating         table.Queue         // of updates in host memory
	incoming         []table.Queue       // of messages from other processes
	joined           []runtime.Event     // by stream, of a stage with transfers
}

// driverMemory is memory of a device that its stages have together.
type driverMemory struct {
	hostBytes int64 // of page-locked memory
	chunk     runtime.Span
	buffers   *gradientBuffers // for gradients that pass; nil without
	weights   *weightBuffers   // for weights that come for turns; nil without
}

// driverWatch records what a driver does, for those who ask: when its tasks run, which it issues, what they leave in memory.
type driverWatch struct {
	watch    *stopwatch
	auditor  *auditor  // of a step; nil: nothing is audited
	observer *observer // of every step; nil: nothing is observed
	recorder recorder  // of what it issued
	current  *record   // of the task that it is in
	progress progress  // what it issues, for whoever watches
}

// each returns where the events of a list go.
func each(list []runtime.Event) (all []*runtime.Event) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// makeEvents makes those events that there are not yet.
func makeEvents(dev runtime.Device, events ...*runtime.Event) (err error) {
	for _, ev := range events {
		if *ev == nil {
			if *ev, err = dev.NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers refills list with 0..n-1.
func numbers(list []int, n int) []int {
	list = list[:0]
	for i := range n {
		list = append(list, i)
	}
	return list
}

// pop takes the first entry of a list: that which has been in it longest, so that all are taken in turn.
func pop(list *[]int) int {
	i := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return i
}

// ringed returns the stage of the device that has a ring, which is then its only one; nil: none has.
func (d *driver) ringed() *localStage {
	for _, t := range d.stages {
		if t != nil && t.ring != nil {
			return t
		}
	}
	return nil
}

// cyclicStage returns the stage of the device in a cyclic plan; nil in others.
func (d *driver) cyclicStage() *localStage {
	for _, t := range d.stages {
		if t != nil && t.cyclic != nil {
			return t
		}
	}
	return nil
}

func (d *driver) failed(v order.Instance, err error) error {
	if te := (*TaskError)(nil); errors.As(err, &te) {
		return err
	}
	return &TaskError{Device: d.Number, Task: v.Name(), Minibatch: d.done + v.Minibatch, Err: err}
}

// finish waits for everything but the batch of the next run, whose failure is that run's.
func (d *driver) finish() error {
	for _, q := range d.queues() {
		if q == d.batches && d.step != nil {
			continue
		}
		if err := q.S.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}

// queues returns all streams, the one of compute first.
func (d *driverQueues) queues() []table.Queue {
	all := []table.Queue{d.compute}
	for _, to := range slices.Sorted(maps.Keys(d.links)) {
		all = append(all, d.links[to])
	}
	for _, q := range []table.Queue{d.toHost, d.fromHost, d.batches, d.adding, d.updating} {
		if q.S != nil {
			all = append(all, q)
		}
	}
	return all
}

// newQueue makes a stream.
func (d *driver) newQueue(name string) (q table.Queue, err error) {
	q = table.Queue{Of: d.Device, Number: *d.opened}
	*d.opened++
	q.S, err = d.Dev.NewStream(name)
	return q, err
}

// stopwatch records when the tasks of a device run; nil records nothing. It makes events until it has as many as it keeps.
type stopwatch struct {
	dev     runtime.Device
	compute table.Queue
	origin  runtime.Event
	first   runtime.Event // the origin of the first run
	begun   time.Time     // when that was
	most    int           // stamps that are kept, the latest; 0: all of a run
	stamps  []stamp
	used    int     // stamps of this run
	open    int     // the stamp of the task that is being issued
	byOp    bool    // ops are stamped, too
	ops     []stamp // of a step, in the order in which they are issued; each step has the same
	goesOn  bool    // the latest of them on the compute stream is followed at once by what comes next there
	before  int     // minibatches of the run before the segment
}

// stamp is a task, or an op of it, between two events.
type stamp struct {
	order.Instance
	op         int
	onCompute  bool
	start, end runtime.Event // start is nil of an op on the compute stream that begins when the one before it there has ended
}

// guard is a device's part in clipping and skipping the updates of a step with a flush. Behind the step's backwards it measures the norm of all
// gradients together, and clips. When the norm is not finite, it lets the updates do nothing (kernels.Guard).
//
// Every device of a stage measures the stage's gradients when its replicas have added them up. The first device sends the partial sums, 8
// bytes for kernels.GuardChunk gradients, to all devices that do not have the stage. With a shard of them a device measures its own, and
// sends those to all other devices. Each device puts those of all stages together in the order of the layers, and judges them alone. A
// device with all layers would add the same sums in the same order. So the norm, the scale and the verdict are the same bits on all
// devices, however many there are.
//
// All that a device owes to others it has sent before it waits for what they send: none waits for another in a circle.
type guard struct {
	partials runtime.Span // of the gradients of all layers, in their order
	norm     runtime.Span
	returned runtime.Event // the norm is in page-locked memory

	page []runtime.Span // host alone
	host runtime.Span   // there: the norm

	arrivals []arriving  // the partial sums of others
	stages   int         // that are here
	due      []dueUpdate // of them, in this step
	steps    int         // of this run
	awaited  int         // the minibatch that ends the step whose norm is on its way to the host; none: none is
	skipped  int         // updates that did nothing, of all runs
}

// saver lets the state of a device's stages be saved while training goes on.
//
// Invariant: the copies are those of one state, from when the driver issues them until Options.Save is done with it.
type saver struct {
	driver    *driver
	snapshots []*Snapshot
	regions   []region
	copied    runtime.Event
	idle      chan struct{} // holds a token while nothing is saved
	pending   atomic.Int32  // snapshots that are not saved yet
}

// region is a part of a device's arena and its copy.
type region struct{ dev, host runtime.Span }

// recorder remembers the latest tasks of a driver with an event behind each. Work fails long after it was issued, and perhaps
// another device is the first to notice: the events tell which task it was.
type recorder struct {
	marks []record
	next  int             // of the ring
	begun *order.Instance // a task that is being issued step by step; nil: none is
	task  order.Instance  // of begun
}

// record is a task, of a minibatch counted through all runs, and the event behind it.
type record struct {
	order.Instance
	set    bool
	issued bool // all of it; else its device failed before
	end    runtime.Event
}

// Observation is one thing that an op left in memory. Two runs of the same model on the same batch leave the same
// bytes under the same layer and What, whatever their sequences.
type Observation struct {
	Index int // of the op in the sequence
	Op    schedule.Op
	Layer string
	What  string // "output", "gradient of the input", "gradient of conv1.weight", "statistic bn1.running_mean", "random state"
	Bytes []byte // valid during the call
}

// observer knows what every op of a sequence leaves, and where.
type observer struct {
	mem  runtime.Inspector
	left map[int][]leftBehind // by the number of an op in a step
	see  []byte               // what is shown
}

// leftBehind is where an op left something.
type leftBehind struct {
	Observation
	span runtime.Span
}

// auditor checks a step of a plan that flushes against the layout of a device: memory that no minibatch in flight and no op
// holds must not change. The driver stops after every op until the device's streams have done all issued work; messages of
// others arrive elsewhere. Work between two ops, such as a batch, belongs to the later one.
type auditor struct {
	held     *canary.Region
	away     *canary.Region // what is with the host; nil where nothing goes there
	fixed    int64          // bytes of the arena before what is held
	next     int            // the op that is next
	count    int            // of them
	position []int          // of the ops of a sequence; nil of another plan
	audited  Audited
	done     *Audited     // nil as long as the step runs
	cycle    *cyclicStage // of a cyclic plan; else nil
}

// Audited is the memory of one device in a step, measured: what every op owns is checked against what it writes.
type Audited struct {
	Device      int
	PeakBytes   int64 // the most that was owned while an op ran, static memory and messages included
	ExtentBytes int64 // the end of the highest byte that was written by minibatches in flight
	CopiesBytes int64 // of page-locked memory for what goes to the host
	// Live are the bytes that were owned when each op started, of a plan that runs a sequence, by position in that.
	Live []int64
}

// staging carries data between page-locked memory and a stage's slabs, in rings of some places.
type staging struct {
	images, labels, scalars, results [stagingSlots]runtime.Span
	uploaded                         [stagingSlots]runtime.Event
	returned                         [stagingSlots]runtime.Event
	staged                           [stagingSlots]runtime.Event  // a batch is where it waits on the device for its forward
	batch, result                    [stagingSlots][]runtime.Span // what of these the host writes, and reads
	uploads                          int                          // forwards of this run
	arrivals                         int                          // images of this run that came ahead of theirs
	ahead                            int                          // the minibatch, of all runs, whose batch waits on the device; none
	aheadErr                         error                        // why it does not
	pending                          []pendingResult              // results on their way, in order
	early                            int                          // the minibatch, of all runs, whose batch is in place 0 before its run; none
}

// pendingResult is a result of a minibatch that may not have arrived yet in its slot.
type pendingResult struct {
	minibatch, slot int
	norm            float64 // as in Result
	skipped         bool
}

// halfDuplex orders the messages of two devices whose link carries one at a time (thesis, section 6.1). A message waits for the
// one that the plan has before it, also when that goes the other way.
type halfDuplex struct {
	ends         [2]int
	order        *order.Order
	instructions []order.Instruction // of the link, in the order of the plan, for one period
	passed       [2]chan struct{}
	event        [2]runtime.Event // by end: its latest message before it released the link
	remote       [2]*remote       // by end, of a link between two processes: what the end passes on, sent or received here; else nil
}

// compiler makes the table of a driver. In a dry run it goes through all work of the driver, and records it. Its state of the
// minibatches in flight, and of their blocks of memory, lives in a dry run alone.
type compiler struct {
	*driver
	bound  *order.Bound
	unused []*inFlight // that are not in use
}

// progress is where a driver says what it issues, for whoever watches.
type progress struct {
	instance atomic.Uint64 // packed
	tasks    atomic.Int64  // issued so far
	waiting  atomic.Bool   // it issues the task now; else it has gone on to wait for its streams
	done     atomic.Int64  // minibatches before those of the segment
	saving   atomic.Bool   // it waits until the state before is saved
}

// stepLayout lays out what minibatches hold of a device in a step of a plan with a flush. A step is known to its last op, all ops of a
// device are on one stream, and no copy reads or writes a place that has been left. So each item lies where nothing lies that lives
// during the same ops.
type stepLayout struct {
	order  *order.Order
	w      *Workload
	device int
	stages map[int]*localStage
	tasks  []stepTask
	begins map[stepKey]int // by task: the first of its ops
	ops    int             // of the device, in order
	turns  int             // how often the same ops follow each other, in the same memory: microbatches that each run a sequence; else 1
	items  []stepItem
	packed []pack.Item // of these
	extent int64
	stepTransfers
}

// stepKey names a task of a step.
type stepKey struct {
	stage, minibatch int
	kind             pipeline.Kind
}

// stepTask is a task of the device and its ops, from the first up to the one behind the last.
type stepTask struct {
	order.Instance
	from, to int
}

// stepItem is an item of a minibatch in a stage: of its ops, by number, or of its batch.
type stepItem struct {
	stage     *localStage
	minibatch int
	item      int
	kept      bool // it outlives its task
}

// stepTransfers are the transfers of a step with a flush, and the events that order them and the ops of compute.
//
// Invariant: an op waits, for each other stream, for the latest op before it there that touches bytes of its own, if one of the two
// writes. A transfer also waits for the compute op before it in the sequence. So the simulation that the layout follows decides how long
// streams wait for each other, but never what is computed. Behind the last op of each turn compute waits for all transfers, so that ops
// wait for none of another turn.
type stepTransfers struct {
	host   []pack.Item // what is with the host
	owner  []*slab     // of each
	locked int64       // page-locked bytes for it
	base   int64       // where these begin
	duplex bool
	waits  [][]int         // by op of a turn: the ops of other streams that it waits for
	ends   []runtime.Event // likewise: behind it; nil where nobody waits
	final  []int           // the last op of a turn in each stream of transfers
}

// arriving is partial sums that another device sends, and where they belong.
type arriving struct {
	*channel
	places []runtime.Span // among those of all layers; nil: they come there
}

// dueUpdate is a stage whose gradients of a step are made, and the update that follows the verdict.
type dueUpdate struct {
	t    *localStage
	move order.Move
}

// Snapshot is the state of one stage behind Done minibatches of all runs, copied to page-locked memory: weights, statistics and
// optimizer states, as they are between runs. A stage on several devices is saved by the first of them, as all have the same; of an
// optimizer's state that they divide each saves its own.
type Snapshot struct {
	Stage, Done int

	skipped int    // updates before it
	of      *saver // of the first
	tensors []placed

	parties []*saver // that save something of it
	mu      sync.Mutex
	arrived int // parties that have issued their copies
}

func asBytes[T float32 | int32 | uint16](f []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*int(unsafe.Sizeof(*new(T))))
}

// stagingSlots is how many forwards of a stage a driver issues before the first of them has its data, at most: as many batches are in
// page-locked memory.
const stagingSlots = 4

// openHost makes the streams to host memory and back.
func openHost(d *driver, duplex bool) (err error) {
	if d.toHost, err = d.newQueue("to the host"); err != nil {
		return err
	}
	d.fromHost = d.toHost
	if duplex {
		d.fromHost, err = d.newQueue("from the host")
	}
	return err
}
