package timeline

import (
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/bench/trace"
	"plimsoll/planner/pipeline"
)

// Trace returns the timeline of a pipeline as a trace: a process for each device and each link. A device has one track; so has a
// link, unless messages were under way at once, as in its two directions between processes.
func Trace(t *pipeline.Timeline) *trace.Trace {
	out := &trace.Trace{Meta: map[string]string{"plan": t.Title}}
	for _, lane := range t.Lanes {
		process := trace.Process{Name: lane.Name, Tracks: []trace.Track{{Name: "compute"}}}
		if lane.Link {
			process.Tracks[0].Name = "communication"
		}
		for _, s := range lane.Slices {
			track := trackOf(&process, lane.Link, s.Start, t.End)
			track.Slices = append(track.Slices, trace.Slice{
				Name: s.Name(), Category: s.Work(), Start: s.Start, End: s.End,
				Args: map[string]any{"stage": s.Stage, "minibatch": s.Minibatch, "task": s.Task},
			})
		}
		out.Processes = append(out.Processes, process)
	}
	return out
}

// trackOf returns the track that a slice goes to: the first one, of a link the first one that is free by then.
func trackOf(p *trace.Process, link bool, start, all float64) *trace.Track {
	for i := range p.Tracks {
		slices := p.Tracks[i].Slices
		if len(slices) == 0 {
			return &p.Tracks[i]
		}
		last := &slices[len(slices)-1]
		if last.End = touching(last.Start, last.End, start, all); last.End <= start || !link {
			return &p.Tracks[i]
		}
	}
	p.Tracks = append(p.Tracks, trace.Track{Name: fmt.Sprintf("%s %d", p.Tracks[0].Name, len(p.Tracks)+1)})
	return &p.Tracks[len(p.Tracks)-1]
}

// touching returns the end of a slice, moved to the start of the next one where only rounding put it behind that.
func touching(start, end, next, all float64) float64 {
	if end > next && end-next <= 1e-9*all {
		return max(start, next)
	}
	return end
}

// Panel returns the timeline of a pipeline for a picture.
func Panel(name string, t *pipeline.Timeline) report.Panel {
	p := report.Panel{Name: name}
	for _, lane := range t.Lanes {
		l := report.Lane{Name: lane.Name}
		for _, s := range lane.Slices {
			l.Bars = append(l.Bars, report.Bar{Kind: workOf(s), Start: s.Start, End: s.End, Label: fmt.Sprint(s.Minibatch), Name: s.Name()})
		}
		p.Lanes = append(p.Lanes, l)
	}
	return p
}

// workOf returns the class of a slice in pictures.
func workOf(s pipeline.Slice) report.Work {
	if s.Sync != nil {
		return report.Synchronization
	}
	return works[s.Kind]
}

// works are the kinds of tasks as pictures have them.
var works = [...]report.Work{
	pipeline.F: report.Forward, pipeline.B: report.Backward, pipeline.W: report.BackwardWeights,
	pipeline.CF: report.SendActivation, pipeline.CB: report.SendGradient,
}
