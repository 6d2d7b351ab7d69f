package executor

import "plimsoll/runtime"

// Streams and events of a step, as the order check numbers them.
const (
	streamCompute = iota
	streamToDevice
	streamToHost
	streams
)

const (
	eventReady = iota
	eventDone
	eventReturned
	events
)

// checkOrder proves that the step, repeated, reuses memory only after its last reader. It describes what issue
// does; two rounds show the hazards from one step to the next. The caller's own accesses to the host slab are
// ordered by the wait at the end of a step.
func (e *Executor) checkOrder() error {
	var all []action
	for range 2 {
		all = append(all, e.actions()...)
	}
	return checkOrder(all, streams, events)
}

// actions lists one step in issue order.
func (e *Executor) actions() []action {
	var list []action
	add := func(stream int, name string, reads, writes []runtime.Span) {
		list = append(list, action{name: name, stream: stream, reads: reads, writes: writes, record: none, wait: none})
	}
	signal := func(from, event, to int) {
		list = append(list, action{name: "record", stream: from, record: event, wait: none})
		list = append(list, action{name: "wait", stream: to, record: none, wait: event})
	}
	list = append(list, action{name: "wait", stream: streamToDevice, record: none, wait: eventReturned})
	for _, u := range e.uploads {
		add(streamToDevice, "upload", []runtime.Span{u.src}, []runtime.Span{u.dst})
	}
	signal(streamToDevice, eventReady, streamCompute)
	for i := range e.step.tape.seq {
		for _, u := range e.step.uses[e.step.start[i]:e.step.start[i+1]] {
			add(streamCompute, u.name, u.reads, u.writes)
		}
		if i == e.loss {
			add(streamCompute, "copy of the loss", []runtime.Span{e.lossSpan}, []runtime.Span{e.static.result})
		}
	}
	var grads []runtime.Span
	for l := range e.static.layers {
		grads = append(grads, e.static.layers[l].grads)
	}
	add(streamCompute, "guard", grads, []runtime.Span{e.static.partials, e.static.result, e.static.scalars})
	for l := range e.static.layers {
		st := &e.static.layers[l]
		add(streamCompute, "update", []runtime.Span{st.grads, e.static.scalars}, append([]runtime.Span{st.params}, st.states...))
	}
	signal(streamCompute, eventDone, streamToHost)
	add(streamToHost, "return of the loss", []runtime.Span{e.static.result}, []runtime.Span{e.host.result})
	return append(list, action{name: "record", stream: streamToHost, record: eventReturned, wait: none})
}
