// Package pipeline has the type Plan, a training step of one device or several, with its platform and costs, one checker and one simulator.
// It makes no decision.
//
// A stage is a range of consecutive layers on a device; words are those of the thesis (chapters 4 to 7). A periodic plan repeats a
// pattern every Period seconds. In period j the task with start t and shift h runs at j·T + t and works on minibatch j·k + h, where k is
// MinibatchesPerPeriod. A plan with a flush lists one whole minibatch, and shifts are its microbatches. A plan for one device is one stage
// whose ops are the sequence of the step (NewSequence).
//
// A strategy begins with Request.Validate and ends with Finish, so that no plan leaves the planner unchecked. Rules stand at the heads of
// synchronization.go, stageops.go and transfers.go:
//
//	pipeline/partition     layers to devices: balance, pipedream, contiguous, madpipe
//	pipeline/ilp           stages and schedule at once, by integer programs
//	pipeline/recompute     recomputation inside a stage
//	pipeline/loadline      stages that recompute and offload inside
//	pipeline/joint         stages, replicas and recomputation together
//	pipeline/periodic      orders without a flush: 1f1b, 1f1b*, k-periodic, list, milp, eager
//	pipeline/flush         orders with a flush; ampnet and pipemare, which never empty
//	pipeline/events        the clock of schedules that are made by running them
//	pipeline/interop       schedules of other tools
//	pipeline/pipelinetest  random plans, and the independent checker as a judge
package pipeline
