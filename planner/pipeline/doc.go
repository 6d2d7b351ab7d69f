// Package pipeline holds what every planner shares: the platform, the plan, its costs, the one checker and the one
// simulator. It makes no decision itself.
//
// A plan for one device is a plan of one stage (NewSequence): all layers on device 0, whose ops are the sequence of the step, with a
// flush and one microbatch. It has a file form of its own; every other plan is written with its stages and tasks. One reader reads both.
//
// Words are those of the thesis (chapters 4 to 7). A stage is a range of consecutive layers on a device. A periodic
// plan repeats one pattern every Period seconds: in period j the task with start t and shift h runs at j·T + t and works
// on minibatch j·k + h, k being MinibatchesPerPeriod. A flush plan lists one whole minibatch, and shifts are its
// microbatches. Both are plimsoll.plan/v1 files.
//
// What belongs where:
//
//	pipeline               Platform, Plan, sequences as plans, Stage, Task, Versions, Costs, StageCost, Check, Simulate, Order, Synchronize, timelines, Request, Strategy, errors
//	pipeline/partition     which layers go to which device: balance, pipedream, contiguous, madpipe
//	pipeline/ilp           stages on any devices and their schedule at once, by integer programs
//	pipeline/recompute     the ways in which stages recompute inside
//	pipeline/loadline      stages that recompute and offload inside, chosen while the stages are
//	pipeline/periodic      when tasks run, periodic: 1f1b, 1f1b*, k-periodic, list, milp, eager
//	pipeline/flush         when tasks run, with a flush: gpipe, 1f1b-flush, interleaved, chimera, zero bubble, ...;
//	                       and ampnet and pipemare, which never empty
//	pipeline/events        the clock of schedules that are made by running them
//	pipeline/interop       schedules of other tools
//	pipeline/pipelinetest  random chains, platforms and plans, and the independent checker as a judge, for tests
//
// The sub-packages import this one and not the other way round; the registry that lists all strategies stands above
// them. A strategy begins with Request.Validate and ends with Finish, so that no plan leaves the planner unchecked.
//
// Chains are single ones: branches that meet (chain.Branches) are refused.
//
// # Gradients of replicas
//
// The gradients of a stage on several devices d_0, ..., d_{r-1} that work, in the order of Stage.Devices, are added up by messages
// (Plan.Synchronization): once for each round (Plan.Round) of a periodic plan, once in a step of a flush plan. The layers of the stage that have
// weights are in buckets of consecutive layers, each in one. For each bucket:
//
//	reduces   d_0 to d_1, d_1 to d_2, ..., d_{r-2} to d_{r-1}: the sum so far, to which the next device adds its own. So bits do not
//	          depend on times
//	gathers   the sum of all, from any device that has it, until all have it. Synchronize sends it back along the line: with links of two
//	          directions each then carries the bytes once
//
// A message takes as long as the weights of its bucket take on the link from one device to the other, which carries nothing else
// meanwhile. It may start:
//
//	the first reduce   when the gradients of the bucket are made on d_0 and d_1, in all backwards of the round
//	another reduce     when they are made on the device that it goes to, and the reduce before it has ended
//	a gather           when the device that sends has the sum
//
// A backward comes down from the last layer of its stage: it has made the gradients of layers i and above when all is done but the
// layers of the stage below i, which take their times of the chain. Where that is not known, in a stage with ops, in one whose backward is
// split and of a task with a timing, gradients are there when the last task of the minibatch ends.
//
// The update of a round is made when its last message has ended, and of all rounds before. The weights that a minibatch sees follow
// (Report.Missed); no task waits for a message. Weights that are double buffered are updated for groups of minibatches, of as many
// rounds as the executor needs, which a period does not say: the plan has messages in every round, and the sum of a group takes those of
// its last one.
//
// A plan has all these messages, of all stages with weights on several devices that work, or none: then that takes no time. Where the
// platform counts buffers, a device has blocks in which reduces come to it, from each device that sends some: two of the largest of these
// messages, or one where a round has one message. Parts (ZeroShards) are added up in the order of the devices, so there are at least as many
// blocks as parts are there at once: from the start of a message until all of the part have come and its owner has made its own. Copies
// of the weights are those of the papers, by Versions and minibatches in flight: the version that is kept longer where an update comes
// while another minibatch is live is in the executor's accounts alone, which know each byte before the first step.
//
// # A stage with ops
//
// A stage of layers i..j with ops (Stage.Ops, and LastOps for the last microbatch of a plan with a flush) runs, for each minibatch, a
// forward part F and a backward part B; other minibatches' parts come between. It has its devices for itself, and its
// backward is not split. Its ops are forwards and backwards of layers i..j, in the numbers of the whole chain, with
// the semantics of package schedule; F ends with the first op that computes layer j, and B is the rest. In a plan F and B are
// one task each, of the times of their ops.
//
// With a flush the ops of B before its first backward, which recompute and need no gradient, may run before the gradient is there: a
// device that waits for a gradient recomputes meanwhile (GPipe, Huang et al. 2019, section 2.3; torchgpipe, Kim et al. 2020, sections
// 2.1 and 3.2.4).
//
// What a minibatch of a stage without transfers holds, beside the weights and the communication buffers:
//
//	while F runs    a_{i-1}, and what the ops have made so far, with the op's output and overhead
//	between         a_{i-1}, and what F leaves: K bytes together. A plain a_j goes, it is in the send buffer; an a_j that
//	                is part of a saved set stays
//	while B runs    that and δ_j, copied from the receive buffer, and so on to δ_{i-1}, which goes when B ends
//
// With R the most bytes that one minibatch holds while F or B runs, a stage in which at most g minibatches are live at once
// (from the start of F to the end of B) needs at most
//
//	copies·W(i,j) + Buffers(i,j) + (g-1)·K + R
//
// Proof: the device runs one part at a time, so that at any instant at most one live minibatch is inside F or B and holds at
// most R; all others live are between and hold K each, and they are at most g-1. When none is inside, at most g hold K each,
// and K <= R: F's last instant holds all of K, or it holds more. For g = 1 the bound is reached: R is what some op reaches, and
// the sum is exactly what it takes. For g > 1 it is reached when a part's peak falls on an instant with g live minibatches. With a
// flush the sum of one part and what all others keep is counted exactly, part by part.
//
// # A stage with transfers
//
// Ops may be transfers too, with one minibatch a period and a link between each device and its host (Platform.Host, bytes/s;
// one for each direction where the platform is duplex): offloads in F, each once, and their prefetches in B. A compute op does
// not wait for a transfer; when transfers run follows from the plan, the same in every period:
//
//	prefetches    in their order, each as late as the link allows: it ends before the first op of B begins that reads the
//	              activation, and before the next prefetch of the minibatch begins; it may begin before B does
//	offloads      in their order, each as early as the link, with all prefetches on it, allows: after every op of F before it,
//	              and the offload before it, has ended
//
// The link does one thing at a time, modulo the period: the transfers of all minibatches in flight are on it. A plan in which a
// transfer finds no time, or a prefetch begins before its offload has ended, is refused.
//
// The memory is the sum over all live minibatches at every instant of the period, exactly: each is counted as above, but an
// activation that is offloaded only until the transfer, and the op that directly follows the offload and may still read it, have
// ended, and from the start of its prefetch on.
package pipeline
