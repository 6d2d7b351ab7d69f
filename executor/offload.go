package executor

import (
	"fmt"
	"slices"
)

// Streams of other copies, of offloaded state first, beside those of a sequence.
const (
	streamStateIn = streams + iota
	streamStateOut
	streamBatch // of the batch of the next step
	allStreams
)

// numberState gives events to the windows.
func (e *Executor) numberState(s *script) {
	if e.Offloading() == OffloadNothing {
		return
	}
	x := &e.pass
	for _, slots := range [][]int{x.arrived[:], x.updated[:], x.left[:], x.loaded[:], x.free[:]} {
		for i := range slots {
			slots[i] = s.events
			s.events++
		}
	}
	x.stored, x.returned = s.events, s.events+1
	s.events += 2
}

// tick marks a moment of the compute stream when the step is timed.
func (e *Executor) tick(s *script) int {
	if !s.timed {
		return none
	}
	s.events++
	s.record(streamCompute, s.events-1)
	return s.events - 1
}

// arrival records that something has arrived on the device.
func (s *script) arrival(event int) {
	s.record(streamStateIn, event)
	s.sent++
	if s.number == nil {
		s.number = map[int]int{}
	}
	s.number[event] = s.sent
}

// meet makes compute wait for what was last to arrive with an event, unless it has waited for a later arrival.
func (e *Executor) meet(s *script, event int) (after int) {
	if s.number[event] <= s.met {
		return e.tick(s)
	}
	s.met = s.number[event]
	return e.await(s, event)
}

// await makes compute wait for an event of the windows, and marks for how long.
func (e *Executor) await(s *script, event int) (after int) {
	before := e.tick(s)
	s.wait(streamCompute, event)
	after = e.tick(s)
	if after != none {
		e.pass.waits = append(e.pass.waits, [2]int{before, after})
	}
	return after
}

// ran marks that kernels of the update ran since a moment.
func (e *Executor) ran(s *script, since int) {
	if now := e.tick(s); now != none {
		e.pass.kernels = append(e.pass.kernels, [2]int{since, now})
	}
}

// writeFirst starts what can arrive before the first op.
func (e *Executor) writeFirst(s *script) {
	if e.Offloading() == OffloadNothing {
		return
	}
	s.wait(streamStateIn, eventBegin)
	for _, a := range e.step.fetches.first {
		e.writeWeights(s, a)
	}
	for i := range min(stateSlots, len(e.pass.list)) {
		e.writeArrival(s, i)
	}
}

// writeArrival copies a slice of the state to the arena.
func (e *Executor) writeArrival(s *script, i int) {
	x := &e.pass.list[i]
	for k := range x.at {
		s.copy(streamStateIn, fmt.Sprintf("arrival of slice %d of state %d", i, k), x.at[k], x.host[k])
	}
	s.arrival(e.pass.arrived[x.slot])
}

// writeStateSlice updates a slice when it has arrived; it leaves when it is updated, and the next one in its slot arrives
// when it has left.
func (e *Executor) writeStateSlice(s *script, i int) {
	x := &e.pass.list[i]
	since := e.meet(s, e.pass.arrived[x.slot])
	if x.update != nil {
		s.launch(streamCompute, x.update, x.use)
	}
	e.ran(s, since)
	s.signal(streamCompute, e.pass.updated[x.slot], streamStateOut)
	for k := range x.at {
		s.copy(streamStateOut, fmt.Sprintf("return of slice %d of state %d", i, k), x.host[k], x.at[k])
	}
	s.record(streamStateOut, e.pass.left[x.slot])
	if next := i + stateSlots; next < len(e.pass.list) {
		s.wait(streamStateIn, e.pass.left[x.slot])
		e.writeArrival(s, next)
	}
}

// writeWeights copies a layer's weights to a slot.
func (e *Executor) writeWeights(s *script, a weightFetch) {
	dst, src := e.static.hostState.copyOf(a, e.Layers[a.layer-1].GradBytes)
	s.copy(streamStateIn, fmt.Sprintf("arrival of the weights of layer %d", a.layer), dst, src)
	s.arrival(e.pass.loaded[a.slot])
}

// writeFetch makes op p of a sequence wait for its weights.
func (e *Executor) writeFetch(s *script, v *weightFetches, p int) {
	if v.wait[p] {
		e.meet(s, e.pass.loaded[v.slot[p]])
	}
}

// writeAtOnce updates the layer of a backward, whose gradients are used for nothing else, and sends its weights back to the host.
func (e *Executor) writeAtOnce(s *script, p int) {
	x, known := e.pass.atOnce[p]
	if !known {
		return
	}
	since := e.tick(s)
	s.launch(streamCompute, x.guard, x.use)
	e.ran(s, since)
	for i := x.from; i < x.to; i++ {
		e.writeStateSlice(s, i)
	}
	layer := e.step.layout.seq[p].Layer
	slot, host := e.static.hostState.copyOf(weightFetch{layer, e.step.fetches.slot[p]}, e.Layers[layer-1].GradBytes)
	s.copy(streamStateOut, fmt.Sprintf("return of the weights of layer %d", layer), host, slot)
	s.record(streamStateOut, e.pass.stored)
	s.leaving[e.step.fetches.slot[p]] = p + 1
}

// writeNext starts the arrivals in slots that op p was the last to use: in one whose weights go back to the host when they are there. (So
// a forward behind the backward of its layer, of no use but allowed, takes the updated weights: they left a slot before.)
func (e *Executor) writeNext(s *script, v *weightFetches, p int) {
	for _, a := range v.then[p] {
		if s.leaving[a.slot] != p+1 {
			s.signal(streamCompute, e.pass.free[a.slot], streamStateIn)
		}
		if s.leaving[a.slot] > 0 {
			s.wait(streamStateIn, e.pass.stored)
		}
		e.writeWeights(s, a)
	}
}

// writeUpdates updates all that is left to update when the sequence has ended, and waits until everything is back.
func (e *Executor) writeUpdates(s *script) {
	since := e.tick(s)
	for i, u := range e.updates {
		s.launch(streamCompute, u, e.updateUses[i])
	}
	if e.Offloading() == OffloadNothing {
		return
	}
	if e.Offloading() == OffloadOptimizer {
		e.ran(s, since)
		for i := range e.pass.list {
			e.writeStateSlice(s, i)
		}
	}
	s.record(streamStateOut, e.pass.returned)
	e.await(s, e.pass.returned)
}

// writeEval writes an evaluation.
func (e *Executor) writeEval() error {
	s, v := &e.evalScript, e.eval.fetches
	s.events = e.script.events
	if len(v.first) > 0 {
		s.signal(streamCompute, eventFork, streamStateIn)
	}
	for _, a := range v.first {
		e.writeWeights(s, a)
	}
	for p := range e.eval.layout.seq {
		e.writeFetch(s, v, p)
		for i := e.eval.start[p]; i < e.eval.start[p+1]; i++ {
			s.launch(streamCompute, e.eval.calls[i].launch, e.eval.calls[i].use)
		}
		e.writeNext(s, v, p)
	}
	return ordered(slices.Repeat(slices.Concat(e.stages[0], e.eval.take, s.list), 2), s.events)
}

// bring copies the weights of op p to where a bound forward finds them, in the order of the compute stream.
func (e *Executor) bring(b *bound, p int) error {
	if !b.fetches.wait[p] {
		return nil
	}
	layer := b.layout.seq[p].Layer
	dst, src := e.static.hostState.copyOf(weightFetch{layer, b.fetches.slot[p]}, e.Layers[layer-1].GradBytes)
	return e.compute.Copy(dst, src)
}

// collectState reads how long the update's kernels ran, and how long compute waited for state.
func (e *Executor) collectState() (err error) {
	r := &e.result
	if e.Offloading() == OffloadNothing {
		r.UpdateKernels = r.Update
		return nil
	}
	if r.UpdateKernels, err = e.sum(e.pass.kernels); err != nil {
		return err
	}
	r.StateWait, err = e.sum(e.pass.waits)
	return err
}

// sum adds the times between pairs of events.
func (e *Executor) sum(pairs [][2]int) (total float64, err error) {
	for _, x := range pairs {
		seconds, err := e.seconds(x[1], x[0])
		if err != nil {
			return 0, err
		}
		total += seconds
	}
	return total, nil
}
