package auto

import (
	"cmp"
	"fmt"
	"math"

	"plimsoll/internal/units"
	"plimsoll/planner/bound"
	"plimsoll/planner/schedule"
)

// Report holds the plan that auto chose, and why.
type Report struct {
	Candidates []Candidate // every member, in the order of Members
	// Winner is the member with the best result, from which the sequence was made; of equally fast results the one
	// with the lower peak wins, then the first.
	Winner string
	// Start is the member whose result the local moves made the sequence from, "" when they made none better.
	Start    string
	Steps    int               // simulations of the local moves and random changes
	Sequence schedule.Sequence // the best of all
	Makespan float64           // seconds
	Peak     int64             // bytes
	Bound    float64           // seconds: no sequence is faster (package bound)
	Transfer float64           // as in Candidate
	// Passed is the fastest sequence, when another one was taken that has less to transfer, by Tolerance and Contention as the problem
	// has them.
	Passed                *Candidate
	Tolerance, Contention float64
}

// Made is the member that the sequence was made from.
func (r *Report) Made() string { return cmp.Or(r.Start, r.Winner) }

// Why says on one line why the sequence was chosen.
func (r *Report) Why() string {
	ran := 0
	for _, c := range r.Candidates {
		if c.Sequence != nil {
			ran++
		}
	}
	if p := r.Passed; p != nil {
		why := fmt.Sprintf("chose %s, with %s of transfers\nthe fastest of %d plans, %s, is %.2f%% faster but transfers %s (auto.tolerance=%s)",
			r.Winner, units.Seconds(r.Transfer), ran, p.Strategy, 100*(r.Makespan/p.Makespan-1), units.Seconds(p.Transfer), units.Percent(r.Tolerance))
		if r.Contention > 0 {
			why += fmt.Sprintf("\ncopies slow ops down by %s of their own time", units.Percent(math.Round(1000*r.Contention)/1000))
		}
		return why
	}
	why := fmt.Sprintf("chose %s, the best of %s", r.Winner, units.Count(ran, "plan"))
	if gap := bound.Gap(r.Makespan, r.Bound); gap == 0 {
		why += "; no plan is faster"
	} else if r.Start != "" {
		why += fmt.Sprintf("; local moves on %s made it better", r.Start)
	}
	return why
}
