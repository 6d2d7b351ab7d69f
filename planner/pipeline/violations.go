package pipeline

import (
	"fmt"
	"slices"
	"strings"
)

// Rule names what a plan can break.
type Rule string

// The rules, in the order in which Check looks at them. The first that a plan breaks, up to RuleSynchronization, hides those
// after it.
const (
	RuleStages   Rule = "stages"   // stages cover the layers in order, on devices that exist
	RuleTasks    Rule = "tasks"    // every task is one of a stage, on one of its devices, at a time within the period
	RuleOnce     Rule = "once"     // every task appears once for each microbatch or residue
	RuleReplica  Rule = "replica"  // F, B and W of a minibatch are on one device
	RuleBoundary Rule = "boundary" // communications join different devices that a link joins
	// RuleSynchronization: there is no message between replicas, or each that adds up their gradients, in each round, once.
	RuleSynchronization Rule = "synchronization"
	RuleDuration        Rule = "duration"   // a duration that is said agrees with the chain
	RuleDependency      Rule = "dependency" // a task starts when what it needs has ended
	RuleResource        Rule = "resource"   // a device or link does one thing at a time
	RuleMemory          Rule = "memory"     // a device needs no more than it has
)

// None is the position of no task, and the number of no device.
const None = -1

// Violation is one broken rule. Task is the offending task's position in the plan, as in Span, and Other that of the task that it
// waits for or collides with; None when there is none.
type Violation struct {
	Rule          Rule
	Task, Other   int
	Device        int   // for RuleMemory, else None
	Needed, Limit int64 // bytes, for RuleMemory
	Reason        string
}

func (v Violation) String() string { return v.Reason }

// InvalidError lists what a plan breaks, at most 20 violations. The first is that of the earliest task of the first rule.
type InvalidError struct{ Violations []Violation }

func (e *InvalidError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", ErrInvalid, e.Violations[0].Reason)
	if more := len(e.Violations) - 1; more > 0 {
		fmt.Fprintf(&b, " (and %d more)", more)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// OnlyMemory reports whether the plan could run if its devices had more memory.
func (e *InvalidError) OnlyMemory() bool { return violations(e.Violations).onlyMemory() }

type violations []Violation

// onlyMemory reports whether all violations, if there are any, are of the rule of memory.
func (v violations) onlyMemory() bool {
	return !slices.ContainsFunc(v, func(v Violation) bool { return v.Rule != RuleMemory })
}

const mostViolations = 20

func (v *violations) add(rule Rule, task, other int, format string, args ...any) {
	v.put(Violation{Rule: rule, Task: task, Other: other, Device: None, Reason: fmt.Sprintf(format, args...)})
}

func (v *violations) put(x Violation) {
	if len(*v) < mostViolations {
		*v = append(*v, x)
	}
}

func (v *violations) stage(format string, args ...any) {
	v.add(RuleStages, None, None, format, args...)
}

func (v violations) err() error {
	if len(v) == 0 {
		return nil
	}
	return &InvalidError{Violations: v}
}
