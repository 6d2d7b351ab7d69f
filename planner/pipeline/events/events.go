// Package events is the simulated time of schedules that are made by running them: what starts is told how long it takes, and what
// ends at one instant ends together.
package events

import "container/heap"

// simultaneous is how far apart, relative to their time, two instants are the same: rounding of sums.
const simultaneous = 1e-12

// Clock ends jobs in the order of time.
type Clock[J any] struct {
	Now     float64 // seconds
	running ends[J]
	started int
	ended   []J
}

// Start lets a job run from now on for so many seconds.
func (c *Clock[J]) Start(job J, seconds float64) {
	heap.Push(&c.running, end[J]{c.Now + seconds, c.started, job})
	c.started++
}

// Next moves to the next instant at which jobs end, and returns these jobs, by their ends and then by their starts. After a job
// that takes no time, that is the present instant again. Next returns none when nothing runs. The slice is valid until the next
// call.
func (c *Clock[J]) Next() []J {
	c.ended = c.ended[:0]
	if len(c.running) == 0 {
		return nil
	}
	for until := c.running[0].at * (1 + simultaneous); len(c.running) > 0 && c.running[0].at <= until; {
		e := heap.Pop(&c.running).(end[J])
		c.Now = e.at // of the last: what starts then has seen all of them end
		c.ended = append(c.ended, e.job)
	}
	return c.ended
}

// end is when a job ends.
type end[J any] struct {
	at     float64
	number int
	job    J
}

type ends[J any] []end[J]

func (e ends[J]) Len() int      { return len(e) }
func (e ends[J]) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e ends[J]) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e *ends[J]) Push(x any) { *e = append(*e, x.(end[J])) }
func (e *ends[J]) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
