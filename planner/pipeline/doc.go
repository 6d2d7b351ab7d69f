// Package pipeline holds what every pipeline planner shares: the platform, the plan, its costs, the one checker and
// the one simulator. It makes no decision itself.
//
// Words are those of the thesis (chapters 4 to 7). A stage is a range of consecutive layers on a device. A periodic
// plan repeats one pattern every Period seconds: in period j the task with start t and shift h runs at j·T + t and works
// on minibatch j·k + h, k being MinibatchesPerPeriod. A flush plan lists one whole minibatch, and shifts are its
// microbatches. Both are plimsoll.plan/v1 files.
//
// What belongs where:
//
//	pipeline               Platform, Plan, Stage, Task, Versions, Costs, Check, Simulate, timelines, Request, Strategy, errors
//	pipeline/partition     which layers go to which device: balance, pipedream, contiguous, madpipe
//	pipeline/ilp           stages on any devices and their schedule at once, by integer programs
//	pipeline/loadline      stages that recompute inside, chosen while the stages are
//	pipeline/periodic      when tasks run, periodic: 1f1b, 1f1b*, k-periodic, list, milp, eager
//	pipeline/flush         when tasks run, with a flush: gpipe, 1f1b-flush, interleaved, chimera, zero bubble, ...;
//	                       and ampnet and pipemare, which never empty
//	pipeline/staged        the judge of all plans, and of those with a flush whose stages recompute
//	pipeline/interop       files of other tools
//	pipeline/pipelinetest  random chains, platforms and plans, and the independent checker as a judge, for tests
//
// Check knows stages that keep what their layers save; what a stage with its own ops holds, pipeline/loadline counts, and
// pipeline/staged in a plan with a flush.
// The sub-packages import this one and not the other way round; the registry that lists all strategies stands above
// them. A strategy begins with Request.Validate and ends with Finish, or with loadline's Check where stages have ops, so
// that no plan leaves the planner unchecked.
//
// Chains are single ones: branches that meet (chain.Branches) are refused.
package pipeline
