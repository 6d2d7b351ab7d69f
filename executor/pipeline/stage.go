package pipeline

import (
	"slices"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/pack"
	"plimsoll/executor/internal/stageops"
	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// localStage is a stage on one device: its memory there, and what its driver knows of the minibatches in flight.
//
// Invariant: all memory is placed before the first minibatch; a run only chooses between blocks.
type localStage struct {
	stage   int
	device  int
	spec    pipeline.Stage
	ops     [2]*stageops.StageOps // of the last microbatch of a step, which may run other ops, and of all others
	repeats int
	stash   *order.WeightStash

	stageParameters
	stageSums
	stageMessages

	slabs       []slab
	ring        *ring        // of a stage that has one, and its slabs are by its slots; else nil
	cyclic      *cyclicStage // of a cyclic plan; else nil
	free        []int        // slabs that no minibatch holds
	inFlight    []*inFlight
	deferred    deferral
	discrepancy discrepancy
	waiting     stagedBatch // beside the batches of minibatches in flight
}

// stageParameters are the parameters of a stage on one device, and what updates need.
type stageParameters struct {
	weights   []runtime.Span // by slot: one copy of the trained parameters of all layers
	buffers   runtime.Span   // BatchNorm's statistics, of which there is one copy
	frozen    runtime.Span   // weights that stay as they are, likewise; a cyclic plan has them with the others
	grads     []runtime.Span // by slot: a sum of gradients, and what else replicas add up; by round: gradients that pass
	kept      runtime.Span   // of weights that come for turns: the device's parts, laid out like the shard; weights has its buffers
	fetches   bool           // the weights come for turns
	own       runtime.Span   // of gradients that pass: the sum of the device's parts, laid out like the shard
	scalars   []runtime.Span // of the update, likewise
	squares   runtime.Span   // partial sums of those of the gradients
	states    []runtime.Span // the optimizer's, each by executor.StateLayout, or like the shard
	workspace runtime.Span   // of updates
	shard     *shard         // of the optimizer's state; nil: the device has all
	host      *hostState     // nil: the device has the state
	layers    []stageLayer
}

// stageSums is how the replicas of a stage add up their gradients.
type stageSums struct {
	renewed   runtime.Event // the device's parts of weights that others fetch are up to date
	summed    runtime.Event // gradients are ready to leave for another replica
	summedAll runtime.Event // those of all replicas are added up by a library, of a plan that does not say when
	sums      *replicaSums  // nil where the plan has no messages for those of replicas
	rounds    int           // sums over replicas in this run
	shared    int           // how often their statistics became the first one's, likewise
}

// stageMessages are the messages that come into a stage and leave it.
type stageMessages struct {
	in, out       map[int]*channel // of a_l into the stage and out of it, by the other device
	back          map[int]*channel // of δ_j into the stage
	away          map[int]*channel // of δ_{i-1} out of it
	portalInputs  []portalInput    // of portals, by Branch-1
	portalOutputs []portalOutput
	returns       []runtime.Span
	freeReturns   []int      // returns that no minibatch holds, of those for δ from the same device
	outputs       sendBuffer // of the stage, where nothing else keeps them
	deltas        sendBuffer // δ of the input
}

// stageLayer says where the parameters of a layer lie. Trained ones have an offset of a copy of the weights, of the
// gradients and of each state. Buffers and frozen weights have an offset of theirs.
type stageLayer struct {
	at      int64                    // offset in a copy of the weights
	sumAt   int64                    // likewise in a sum of gradients
	own     int64                    // bytes of the gradients of its own parameters, which come first
	ties    []models.Parameter       // parameters that are another layer's
	tied    map[int64]*tiedParameter // likewise, by the offset in the Params block
	buffers map[int64]int64          // by offset in the Params block
	frozen  map[int64]int64          // likewise
	trained map[int64]int64          // likewise, the offset in the Grads block
	params  []models.Parameter       // with their places
	stateAt []map[int64]int64        // of each of the optimizer's states, where it has a parameter, by the offset in the Grads block
	number  int                      // of the layer, from 1
	earlier uint64                   // updates before this run
}

// tiedParameter is a parameter of a layer that is another layer's.
type tiedParameter struct {
	models.Parameter
	owner *localStage  // the stage of that layer, if the device has it
	copy  runtime.Span // else: of the weights
}

// value returns where a device has the parameter, in a slot of its owner's weights.
func (q *tiedParameter) value(slot int) runtime.Span {
	if q.owner == nil {
		return q.copy
	}
	return q.owner.value(&q.owner.layers[q.Of.Layer-q.owner.spec.First], slot, q.Of.Value)
}

// tie is a trained parameter that two stages share.
type tie struct {
	param         models.Parameter // of the reader
	owner, reader int
	sums          []*channel // of the reader's gradients, to devices of the owner that do not have them
	renewals      []*channel // of new weights, to devices of the reader that have a copy
}

func (x *tie) channels() []*channel { return slices.Concat(x.sums, x.renewals) }

// inFlight is a minibatch in a stage, from its forward to the end of its last task.
type inFlight struct {
	minibatch int
	slab      int
	lent      []loan       // slabs of other stages on the same device, whose outputs this one reads
	entry     runtime.Span // the stage's input
	from      *channel     // that brought it, and in which block; nil from the same device
	block     int
	returned  int          // the return that δ of the output lies in, from the same device
	delta     runtime.Span // δ of the output
	back      *channel     // that brought it, and in which block; nil from the same device, and when it is given back
	backBlock int
	skips     []skipTensor // by portal input
	deltas    []skipTensor // by portal output
	at        frame        // where its task finds what is not its own
	left      bool         // of an input that goes to the host: it has been copied, or read for the last time, and the other is to come
}

// value returns where a parameter of a layer lies, a trained one in a copy of the weights.
func (s *localStage) value(l *stageLayer, slot int, ref models.Ref) runtime.Span {
	if at, ok := l.buffers[ref.Offset]; ok {
		return s.buffers.Part(at, ref.Bytes)
	}
	if at, ok := l.frozen[ref.Offset]; ok {
		return s.frozen.Part(at, ref.Bytes)
	}
	if q, ok := l.tied[ref.Offset]; ok {
		return q.value(slot)
	}
	return s.weights[slot].Part(l.at+l.trained[ref.Offset], ref.Bytes)
}

// gradient returns where a layer's op leaves, in a slot of the gradients, that of a parameter.
func (s *localStage) gradient(l *stageLayer, slot int, ref models.Ref) runtime.Span {
	return s.grads[slot].Part(l.sumAt+ref.Offset, ref.Bytes)
}

// Memory is the memory that a plan needs on one device, in bytes.
type Memory struct {
	// Static is weights, gradients, optimizer state, buffers and a batch that waits (executor.Workload.Stage), of which Weights are the
	// copies of the weights.
	Static, Weights int64
	Messages        int64 // blocks in which activations and gradients arrive, wait and leave
	Working         int64 // of one task while it runs; of a stage with a ring it is in InFlight
	InFlight        int64 // the most that minibatches in flight hold at one time
	Peak            int64 // all of it
	Snapshot        int64 // beside the arena: the page-locked memory that Options.Save takes
	Extent          int64 // the arena that it takes, with fragmentation
	Offloaded       int64 // likewise, page-locked memory for what the stage offloads
	Host            int64 // all page-locked memory of a cyclic plan, without Snapshot; 0 of other plans
	// Waits has those of the layout of a cyclic plan (planner/pipeline.CyclicOps); nil of other plans.
	Waits [][]int
}

// allocator hands out the memory of a device.
type allocator struct {
	end   int64
	space runtime.Space
}

func (g *allocator) alloc(bytes int64) runtime.Span {
	span := runtime.Span{Space: g.space, Offset: g.end, Bytes: bytes}
	g.end += kernels.Align(bytes)
	return span
}

// opsOf returns the ops of a minibatch in the stage. Only stages of flush plans have two lists of ops.
func (s *localStage) opsOf(minibatch int) *stageops.StageOps {
	if s.cyclic != nil {
		return s.cyclic.microbatches[minibatch%len(s.cyclic.microbatches)]
	}
	if minibatch%s.repeats == s.repeats-1 {
		return s.ops[0]
	}
	return s.ops[1]
}

// state returns where state k has what a device keeps of a parameter.
func (s *localStage) state(k int, l *stageLayer, q models.Parameter, p piece) runtime.Span {
	at := p.at
	if s.shard == nil {
		at = l.stateAt[k][q.Grad.Offset]
	}
	return s.states[k].Part(at, p.bytes)
}

// part returns where the host has a piece of what lies in a copy of a stage's weights from an offset on.
func (s *localStage) part(of runtime.Span, at int64, p piece) runtime.Span {
	if s.shard == nil {
		return of.Part(at+p.behind, p.bytes)
	}
	return of.Part(p.at, p.bytes)
}

// output returns where a minibatch has the output of the stage.
func (s *localStage) output(f *inFlight) runtime.Span {
	return s.slabs[f.slab].items[s.opsOf(f.minibatch).Out.Item]
}

// find returns the record of a minibatch in flight; nil when it is not in the stage.
func (s *localStage) find(minibatch int) *inFlight {
	if i := slices.IndexFunc(s.inFlight, func(f *inFlight) bool { return f.minibatch == minibatch }); i >= 0 {
		return s.inFlight[i]
	}
	return nil
}

// hostState places the optimizer's state of a stage in page-locked memory (pipeline.Copies.HostState), in a plan with a flush.
//
// Behind the norm of all gradients a device sends those of each layer to the host, or its parts of them. The host updates its copies of the
// weights, unless the step is skipped. These come back to the device layer by layer. The next step begins when all have come.
type hostState struct {
	duplex             bool
	weights, gradients runtime.Span // laid out like a copy of the weights, or like the shard
	scalars, workspace runtime.Span
	ready, back        runtime.Event
	layers             []hostLayer
}

// hostLayer has the events behind the copy of a layer's gradients, and behind its update.
type hostLayer struct{ come, made runtime.Event }

// shard is the part of a stage's optimizer state that a device keeps: the state of some parts of the weights.
type shard struct {
	places []runtime.Span // the parts, in the order of the weights, from the beginning of a copy of them on
	at     []int64        // of each: where its states begin
	bytes  int64          // of a state
}

// piece is the part of the state of some bytes of the weights that a device keeps.
type piece struct {
	behind int64 // bytes of these before it
	bytes  int64
	at     int64 // in a copy of the state
}

// sendBuffer is the memory in which a stage's message waits until it has been copied, where nothing keeps it longer. Messages
// are δ of the input, and an output that only the next stage reads. Its blocks are taken in turn.
type sendBuffer struct {
	slots  []sendSlot
	free   []int // slots that hold nothing
	unsent []unsentMessage
}

// sendSlot is a block for what is on its way to other devices, in one message or in several.
type sendSlot struct {
	span  runtime.Span
	ready runtime.Event   // it has been written
	sent  []runtime.Event // by message: it has been copied
}

// unsentMessage is a message that lies in a slot until its communications are issued, with the number that are left.
type unsentMessage struct{ minibatch, slot, left int }

// channel is the way of one kind of message, a_l or δ_l of a boundary, from one device to another. It ends in blocks of the
// receiver's arena. The receiver grants its blocks one by one as they fall free, and the sender says which minibatch has
// arrived in which. The two drivers share nothing but these messages and the events in them.
type channel struct {
	kind     pipeline.Kind
	boundary int // the stage before it
	far      int // the stage at the other end of a portal; 0: the next one
	from, to int
	bytes    int64
	blocks   []runtime.Span // in the arena of the receiver

	rehearsed
	free  []chan struct{} // by block: the turns of tables, as grants
	sent  []chan struct{} // likewise, as arrivals
	asked bool            // the receiver grants its blocks only when it asks for a message

	arrived []runtime.Event // by block, of the sender
	freed   []runtime.Event // by block, of the receiver
	copied  []runtime.Event // likewise, when it has copied the block to the host; nil: it does not

	what   string // of a stage goes by it, where it carries no task of the plan
	stage  int
	remote *remote // when its ends are in two processes, of which this one has one; else nil
	sizes  []int64 // bytes of messages that follow each other, where they differ, again and again; nil: each fills its block
}

// rehearsed holds the messages of the two ends of a channel to each other in a dry run.
type rehearsed struct {
	grants     chan int // numbers of blocks that are free behind their event freed
	arrivals   chan arrival
	early      []arrival    // that the receiver has taken and not yet used
	deliveries [][]delivery // by block
	latest     int          // the block that the sender has sent to last
}

// delivery is a message of a minibatch, and where it comes to.
type delivery struct {
	minibatch int
	dst       runtime.Span
}

// arrival says that a minibatch's message is in a block behind its event arrived.
type arrival struct{ minibatch, block int }

// deferral keeps the statistics of a step's microbatches until the step ends. Until then the statistics of each microbatch wait in rows
// of their own (kernels.Moments), behind the gradients. A replica writes no rows of microbatches that it does not see. So the sum of the
// gradients brings the rows of all microbatches together.
//
// Deferred batch normalization (torchgpipe) moves the running statistics once, by those of the whole minibatch. Otherwise stages with
// replicas move them by those of each microbatch in turn, as one device does.
type deferral struct {
	microbatches int          // of a step; 0: nothing is deferred
	inTurn       bool         // a move for each microbatch
	rows         runtime.Span // microbatches times as much as the buffers, in their order
	moves        []table.Prepared
}

// discrepancy is a stage's part of PipeMare's second technique, T2 (Yang et al. 2021, section 3.2). In place of the
// latest weights w, a backward uses an estimate u of those that its forward saw.
//
//	u = w - τ δ,  δ' = γ δ + (1-γ)(w' - w),  γ = D^{1/τ}
//
// δ is the decaying mean of the changes by updates, and begins at 0 in every run. τ is the forward's delay in updates; the backward's is 0.
// A copy of the weights holds u, so δ is (w-u)/τ. When an update turns w into w', one step comes before it and one behind it.
//
//	v  = γ/τ (w-u) - (1-γ) w
//	u' = w' - τ (v + (1-γ) w')
//
// Each step is a sum of a multiple of the weights and one of u, as a step of plain SGD is.
type discrepancy struct {
	tau, decay float64 // τ and D; τ is 0 where nothing is corrected
	scalars    [2]runtime.Span
	steps      [2]table.Prepared // before an update and after it
}

// ring is a stage with ops of its own on its device, in a plan that repeats a period. It has the steps that are issued in a period, one after
// the other, and memory in which minibatches follow each other round and round.
//
// A step belongs to one minibatch and one stream. Each step of each minibatch has a position in the order of issue. A
// minibatch's memory lives from the first step that touches it to the first one that the plan has behind the end of all that do.
// Minibatch m has the memory of slot m mod slots, so lifetimes repeat every slots periods. They are packed around that circle: in the
// arena, and for offloaded activations in page-locked memory.
//
// Invariants: two blocks that share bytes are never alive at one position. A step waits, for each other stream, for the latest
// step there that touches bytes of its own, of which one of the two writes. So the plan's times decide how long streams wait for
// each other, and whether the plan's count of bytes is reached, but never what is computed.
type ring struct {
	slots       int
	steps       []step
	items       []int64 // bytes, of what a minibatch holds in the arena
	labels      int     // items behind those of its ops; none where the stage has none
	images      int
	ahead       bool  // the images come before their forward, on a stream of their own
	leaves      int   // the last op of the forward that reads the input of the stage, where that goes to the host; else none
	live, bytes int64 // the most that lives at one position; the extent of what is packed
	locked      int64 // page-locked bytes for what is offloaded
	duplex      bool
	piece       int64 // bytes of what is copied at once between host and device

	places     [][]int64 // by slot and item: offset behind the ring's base
	hostCopies [][]int64 // by slot and swap: offset in page-locked memory behind its base
}

// replicaSums is a stage's part of the sums over its replicas on one device, as the plan's messages say.
//
// The last backward of an update records when the gradients of each bucket are made here. The sum from the device before is added to
// them on a stream of its own, and leaves for the next device. The owner of a part adds up what comes from all. The sum of all comes into
// the same place, so that all devices update by the same bits. The update waits for all buckets, and for the end of the device's own sends.
type replicaSums struct {
	*order.Synchronization
	*sumChannels
	at     int            // in the line
	places []runtime.Span // by bucket, from the beginning of a sum of gradients on
	parts  []float64      // by bucket: the part of a backward behind which its gradients are made
	made   []runtime.Event
	added  []runtime.Event // these and made by slot and bucket: behind which the sum of replicas up to this one is here
	whole  []runtime.Event // likewise that of all; nil: it has not come
	left   []runtime.Event // by slot and device of the line: behind which what was sent there has left
	gone   []runtime.Event // likewise of gradients that pass, by round
}

// sumChannels are the channels of messages between the replicas of a stage.
type sumChannels struct {
	reduces  []*channel          // by position in the line: to the next device
	scatters map[[2]int]*channel // by the two devices: of parts to their owners
	gathers  map[[2]int]*channel // likewise
	block    int                 // of weights that come for turns: the block of the stage in the first buffer, of each such channel
}

// loan is a slab whose minibatch has left its stage.
type loan struct {
	of   *localStage
	slab int
}

// gradientBuffers are the buffers of a device, and the turns of a step, in the order of the backwards.
type gradientBuffers struct {
	spans []runtime.Span
	turns []turn
}

// turn is a microbatch of a stage whose gradients pass.
type turn struct{ stage, microbatch int }

// weightBuffers are the buffers of a device and, by the tasks that use weights, the turn of each.
type weightBuffers struct {
	spans []runtime.Span
	turns map[order.TaskKey]int // of a step
	first map[order.TaskKey]bool
}

// slab is the memory of a stage's device that a minibatch holds while it is in flight there.
type slab struct {
	items           []runtime.Span // of its ops; of a ring also what stands behind them
	scalars, labels runtime.Span
	images          []runtime.Span // of each branch
	hostCopies      []runtime.Span // of a stage with a ring: its swaps, with the host
	forward         runtime.Event  // the forward has ended
}

// stagedBatch is where the next batch of a stage waits on its device, of a plan with a flush. It is copied there on a stream of its own,
// behind the event that the batch before is where its ops read it.
type stagedBatch struct {
	table  runtime.Span   // of the palette, which turns bytes into numbers
	images []runtime.Span // bytes, of each branch; none behind the first stage
	labels runtime.Span   // empty before the last stage
	taken  runtime.Event  // the latest batch is where its ops read it
}

// cyclicStage is the stage of a cyclic plan on its device: where its ops find activations, weights, gradients and optimizer state, and
// what they wait for.
//
// Memory is taken and given back at the positions of ops, in the order of the sequence. If the peak in that order is within the limit,
// no durations can make a plan wait for ever (section 8 of the design). Items that live across periods are packed around a circle of
// these positions.
//
// Invariant: for each other stream, an op waits for the latest op before it there that touches bytes of its own, of which one of the two
// writes. That op may be one of the step before. An op that does not compute also waits for every compute op before it.
type cyclicStage struct {
	ops          []cyclicOp           // by position
	microbatches []*stageops.StageOps // by microbatch
	layers       []layerState
	device       circle
	host         circle
	workspace    runtime.Span // of updates on the host
	sumScalars   runtime.Span // likewise, of sums of the gradients of layers that share weights
	locked       int64        // page-locked bytes
	beside       []untils     // by position: how many positions behind it ops begin while the one there runs, by the simulation
	guard        *cyclicGuard // nil where updates do not wait for all gradients
	duplex       bool
	epilogue     bool // ops with a prime come behind the last step, and what they need
}

// cyclicOp is an op of a cyclic plan.
type cyclicOp struct {
	cycle.Op
	on         stream
	op         *stageops.Op // of its microbatch; nil of an op of state
	microbatch int
	begins     bool // it is its microbatch's first op, loss: it computes the loss for the first time, ends: it is the last one
	loss, ends bool
	adds       bool         // the backward adds to gradients that are there
	updatesOwn bool         // it is the last backward of its layer in a step
	wide       runtime.Span // of a backward: the gradients that are kept rounded, in float32
	waits      []int
	end        runtime.Event // nil: nobody waits for it
}

// layerState is where the weights, the gradient and the optimizer state of a layer are.
type layerState struct {
	weights, gradient, state *residences // on the device
	onHost                   *residences // of the gradient
	weightHome, stateHome    runtime.Span
	weightBytes, gradBytes   int64
	stateAt                  []int64 // offset of each of the optimizer's states
	stateBytes               int64   // of all of them, and of master copies
	offsets                  offsets
	masters                  int64        // offset of that block in the state
	scalars, hostScalars     runtime.Span // of its updates
	free                     runtime.Event
	ties                     bool         // it has parameters of another layer: its own never move, and gradient is of those of the other
	ownGradient              runtime.Span // then: of its own
	newest                   newest       // weights and state behind a run
	newestState              newest
}

// offsets say where each parameter of a layer is in the blocks that a cyclic plan moves. Keys of weights and masters are offsets in the Params block
// (executor.WeightLayout, MasterLayout), keys of gradients and wide offsets in the Grads block (GradientLayout, WideLayout).
type offsets struct{ weights, masters, gradients, wide map[int64]int64 }

// newest says which copies are current.
type newest struct{ device, host bool }

// cyclicGuard is the addition of a cyclic plan to the guard of its device, if updates wait for all gradients
// (Plan.UpdatesLast).
//
// Behind the last backward of a layer the device measures the layer's gradient. Gradients of layers that share weights are added first,
// behind the last backward of these layers. So the partial sums have the bits of a plan that keeps all gradients. Behind the last backward of
// the step the device judges them. All updates read the scalars that the verdict leaves, on the device or on the host.
type cyclicGuard struct {
	scalars   runtime.Span    // of the updates of a step, with the verdict
	filled    runtime.Span    // in page-locked memory: these as the host writes them
	verdict   runtime.Span    // likewise, with the verdict, for updates on the host
	measured  runtime.Span    // partial sums of one layer
	free      runtime.Event   // filled has been read
	measures  map[int][]int   // by position of a backward: the layers whose gradients are whole behind it
	judges    int             // position of the last backward of a step
	positions map[int]partial // by layer
}

// partial is where the partial sums of a layer are among those of all.
type partial struct{ offset, bytes int64 }

// portalInput is where skips of a portal come into a stage, and δ of them leaves it.
type portalInput struct {
	models.Portal
	in, away map[int]*channel // by the other device
	deltas   sendBuffer
}

// portalOutput is where skips leave the stage that makes them, and δ of them comes back.
type portalOutput struct {
	models.Portal
	out, back   map[int]*channel // by the other device
	returns     []runtime.Span
	freeReturns []int // returns that no minibatch holds, of those for δ from the same device
}

// skipTensor is the tensor of a minibatch at a portal input or portal output.
type skipTensor struct {
	span     runtime.Span // the skips at a portal input, δ of them at a portal output
	target   runtime.Span // where a portal input's δ goes
	from     *channel     // that brought span, and in which block; nil from the same device, and when it is given back
	block    int
	returned int // the return that span is, from the same device
}

// fold is a number for several places and one more.
type fold struct {
	places int
	at     int64
}

// residences are the residences of one item, in a step of a given number of positions.
type residences struct {
	positions int
	list      []*residence
}

// stepRef is the end of a step of a slot's minibatch.
type stepRef struct{ step, slot int }

// remote is a channel between two processes, and its end in this one, if it has one.
//
// The receiver has a stream of its own for the channel. It lets the next message come into a block as soon as it would grant the block to a
// sender here. So every message has a place, in whatever order the messages of several channels are sent and used. The plan says which
// message comes next.
type remote struct {
	way      int
	prepare  func(way int, span runtime.Span) (runtime.Launch, error)
	dev      runtime.Device // of the end that is here; nil: none is
	launches map[runtime.Span]table.Prepared
	number   int // of the latest of them

	incoming table.Queue // of the receiver
}

// frame says where an op finds its blocks: the spans of one device's arena.
type frame struct {
	input, output, gradOutput, gradInput, scratch, kept runtime.Span
	scalars, labels                                     runtime.Span
	slot                                                int          // of the weights
	sum                                                 int          // slot of the gradients
	add                                                 bool         // gradients of parameters are added to those there
	row                                                 int          // for statistics that are deferred
	skips, deltas                                       []skipTensor // of portals; skips also of branches that are joined
	portals                                             int          // tells the places of those apart
	weights, gradients                                  runtime.Span // of the layer's own parameters, in a cyclic plan
	wide                                                runtime.Span // likewise, gradients that are kept rounded, in float32
	tied, tiedGradients                                 runtime.Span // likewise, of those that are another layer's
}

// step is the work that is issued at once.
type step struct {
	order.Instruction
	on     stream
	begin  bool        // the task begins
	op     int         // of the task; none
	last   bool        // the task ends
	swap   int         // a transfer of it; none
	batch  bool        // the images come
	from   int         // the moment at which it starts by the plan, from the beginning of the period on
	until  int         // likewise, at which it ends
	length float64     // of an op: what it takes by the plan, in seconds
	waits  [][]stepRef // by slot
	ends   []runtime.Event
}

// stream is one of those that a ring's steps are issued to.
type stream int

// slacks are factors by which an op may be slower than predicted while others begin beside it. Layouts for them are tried one after the
// other. An op that is slower than its factor makes others wait.
var slacks = [...]float64{2, 1}

// untils are the last positions, by slack, at which an op may begin while the last one that uses an item runs.
type untils [len(slacks)]int

// circle holds the items that live across periods in one memory.
type circle struct {
	positions int
	spans     []*runtime.Span // of the items
	until     []untils        // likewise
	placement
}

// placement is items with their places, the most that lives at one position, and the end of the highest item.
type placement struct {
	items        []pack.Item
	live, extent int64
}

// residence is when something is in one place of memory: from one position to another, both included, of each step, and where.
type residence struct {
	first, last int
	span        runtime.Span
}

func itemSpan(it pack.Item) runtime.Span { return runtime.Span{Offset: it.Offset, Bytes: it.Bytes} }

// whole is the piece of all of some bytes.
func whole(at, bytes int64) []piece { return []piece{{bytes: bytes, at: at}} }

// pieces returns which pieces of some bytes of the weights the device keeps the state of; without a shard all.
func (h *shard) pieces(at, bytes int64) (all []piece) {
	if h == nil {
		return whole(at, bytes)
	}
	for i, p := range h.places {
		if from, to := max(at, p.Offset), min(at+bytes, p.End()); from < to {
			all = append(all, piece{from - at, to - from, h.at[i] + from - p.Offset})
		}
	}
	return all
}

// size returns the bytes of a state of so many bytes of weights.
func (h *shard) size(weights int64) int64 {
	if h == nil {
		return weights
	}
	return h.bytes
}

// bytes returns the bytes of the rows for the given bytes of buffers.
func (f *deferral) bytes(buffers int64) int64 { return int64(f.microbatches) * buffers }

// copies returns how many copies of the weights it takes.
func (c *discrepancy) copies() int {
	if c.corrects() {
		return 1
	}
	return 0
}

// corrects reports whether backwards of the stage use other weights than the latest.
func (c *discrepancy) corrects() bool { return c.tau > 0 }

// gradientsOf returns the gradients of a bucket in a slot.
func (s *localStage) gradientsOf(slot, bucket int) runtime.Span {
	p := s.sums.places[bucket]
	return s.grads[slot].Part(p.Offset, p.Bytes)
}

// mod returns a remainder that is not negative.
func mod(a, b int) int { return ((a % b) + b) % b }

// launch returns the launch that sends or receives a span.
func (r *remote) launch(span runtime.Span) (table.Prepared, error) {
	if l, ok := r.launches[span]; ok {
		return l, nil
	}
	l, err := r.prepare(r.way, span)
	r.number--
	r.launches[span] = table.Prepared{Launch: l, ID: r.number<<16 - r.way}
	return r.launches[span], err
}

// rounds reports whether a parameter, by its offset in the Params block, is in bfloat16 and has a master copy in the state.
func (x *layerState) rounds(offset int64) bool {
	_, is := x.offsets.masters[offset]
	return is
}

// weight returns where a copy of the layer's weights has a parameter, by its offset in the Params block and its bytes in float32.
func (x *layerState) weight(in runtime.Span, offset, bytes int64) runtime.Span {
	if x.rounds(offset) {
		bytes = bytes / kernels.Float32.Size() * kernels.BFloat16.Size()
	}
	return in.Part(x.offsets.weights[offset], bytes)
}

// gradientOf returns where a copy of the layer's gradients has that of a parameter, and its type.
func (x *layerState) gradientOf(in runtime.Span, q models.Parameter) (runtime.Span, kernels.DType) {
	of := q.Desc.DType
	if _, wide := x.offsets.wide[q.Grad.Offset]; wide {
		of = kernels.BFloat16
	}
	return in.Part(x.offsets.gradients[q.Grad.Offset], q.Desc.As(of).Bytes()), of
}

// master returns where a copy of the layer's state has the master copy of a parameter.
func (x *layerState) master(in runtime.Span, offset, bytes int64) runtime.Span {
	return in.Part(x.masters+x.offsets.masters[offset], bytes)
}

// sumOf returns where a device has a piece of the gradients of an update, which begin somewhere in a sum of them.
func (s *stageParameters) sumOf(slot int, at int64, p piece) runtime.Span {
	if s.own.Bytes > 0 {
		return s.own.Part(p.at, p.bytes)
	}
	return s.grads[slot].Part(at+p.behind, p.bytes)
}

// weightOf returns where a device keeps a piece of the weights, which begin somewhere in a slot of them.
func (s *stageParameters) weightOf(slot int, at int64, p piece) runtime.Span {
	if s.fetches {
		return s.kept.Part(p.at, p.bytes)
	}
	return s.weights[slot].Part(at+p.behind, p.bytes)
}
