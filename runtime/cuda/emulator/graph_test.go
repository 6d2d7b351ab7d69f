//go:build cuda

package emulator

import "testing"

// A diamond over two streams, captured once and launched three times under chaos.
func TestGraphReplays(t *testing.T) {
	g := start(t, true, "CHAOS=11")
	s, u := g.stream(), g.stream()
	fork, join := g.event(), g.event()
	a, b, c := g.alloc(4*planes), g.alloc(4*planes), g.alloc(4*planes)
	g.upload(a, ramp(planes))
	g.function("scale")

	g.ok("cuStreamBeginCapture_v2", s, 0)
	g.launch(s, "scale", planeShape, scaleArgs{a, a, 1, 1, planes}.bytes())
	g.ok("cuEventRecord", fork, s)
	g.ok("cuStreamWaitEvent", u, fork, 0)
	g.launch(u, "scale", planeShape, scaleArgs{b, a, 2, 0, planes}.bytes())
	g.launch(s, "scale", planeShape, scaleArgs{c, a, 3, 0, planes}.bytes())
	g.ok("cuEventRecord", join, u)
	g.ok("cuStreamWaitEvent", s, join, 0)
	g.launch(s, "scale", planeShape, scaleArgs{a, b, 0.5, 1, planes}.bytes())
	graph := g.endCapture(s)
	g.ok("cuStreamIsCapturing", u, g.out.Address())
	if Elements[int32](g.out)[0] != 0 {
		t.Error("a stream still captures behind the end")
	}
	exec := g.create("cuGraphInstantiateWithFlags", graph, 0)
	if got := g.download(a, 1)[0]; got != 0 {
		t.Errorf("capturing ran the work: %v", got)
	}
	g.want(capturedEvent, "cuEventSynchronize", join) // its latest record was part of the capture
	for range 3 {
		g.ok("cuGraphLaunch", exec, s)
	}
	g.ok("cuStreamSynchronize", s)
	for i, v := range g.download(a, planes) {
		if v != float32(i)+6 {
			t.Fatalf("element %d is %v, want %v", i, v, float32(i)+6)
		}
	}
	g.ok("cuGraphExecDestroy", exec)
	g.ok("cuGraphDestroy", graph)
	g.destroy()
	g.wantNoFinding()
}

// Branches of a graph that nothing orders are unordered in every launch.
func TestGraphMissingDependency(t *testing.T) {
	g := start(t, true)
	s, u := g.stream(), g.stream()
	fork, join := g.event(), g.event()
	a, b := g.alloc(4*planes), g.alloc(4*planes)
	g.upload(a, ramp(planes))
	g.function("scale")
	g.ok("cuStreamBeginCapture_v2", s, 0)
	g.ok("cuEventRecord", fork, s)
	g.ok("cuStreamWaitEvent", u, fork, 0)
	g.launch(u, "scale", planeShape, scaleArgs{b, a, 2, 0, planes}.bytes())
	g.launch(s, "scale", planeShape, scaleArgs{b, a, 3, 0, planes}.bytes())
	g.ok("cuEventRecord", join, u)
	g.ok("cuStreamWaitEvent", s, join, 0)
	exec := g.create("cuGraphInstantiateWithFlags", g.endCapture(s), 0)
	g.ok("cuGraphLaunch", exec, s)
	g.ok("cuStreamSynchronize", s)
	g.wantFinding("unordered", "kernel scale on executable graph 2, lane")
}

// An external record is work of the graph: it happens in every launch, and others can wait for it.
func TestExternalRecord(t *testing.T) {
	g := start(t, false)
	s, e, f := g.stream(), g.event(), g.event()
	at := g.alloc(4)
	g.function("spin")
	g.ok("cuStreamBeginCapture_v2", s, 0)
	g.ok("cuEventRecordWithFlags", e, s, 1)
	g.launch(s, "spin", shape{1, 1, 0}, scaleArgs{at, 0, 1, 0, 1_000_000}.bytes())
	g.ok("cuEventRecordWithFlags", f, s, 1)
	exec := g.create("cuGraphInstantiateWithFlags", g.endCapture(s), 0)
	g.want(invalidHandle, "cuEventElapsedTime", g.out.Address(), e, f)
	g.ok("cuGraphLaunch", exec, s)
	g.ok("cuEventSynchronize", f)
	g.ok("cuEventElapsedTime", g.out.Address(), e, f)
	if ms := Elements[float32](g.out)[0]; ms <= 0 {
		t.Errorf("%v ms", ms)
	}
}

// Each case makes calls while a stream captures, most of them illegal, and states the end of the capture.
func TestIllegalCaptures(t *testing.T) {
	const global, relaxed = 0, 2
	cases := []struct {
		name    string
		mode    uint64
		disturb func(g *gpu, s, u, e uint64)
		end     int
	}{
		{"nothing", global, func(*gpu, uint64, uint64, uint64) {}, success},
		{"a wait of the host for the stream", relaxed, func(g *gpu, s, _, _ uint64) {
			g.want(unsupported, "cuStreamSynchronize", s)
		}, invalidated},
		{"a question about the stream", relaxed, func(g *gpu, s, _, _ uint64) {
			g.want(unsupported, "cuStreamQuery", s)
		}, invalidated},
		{"a wait for everything", relaxed, func(g *gpu, _, _, _ uint64) {
			g.want(unsupported, "cuCtxSynchronize")
		}, invalidated},
		{"an allocation", global, func(g *gpu, _, _, _ uint64) {
			g.want(unsupported, "cuMemAlloc_v2", g.out.Address(), 64)
		}, invalidated},
		{"an allocation, relaxed", relaxed, func(g *gpu, _, _, _ uint64) { g.alloc(64) }, success},
		{"a question about a captured event", global, func(g *gpu, s, _, e uint64) {
			g.ok("cuEventRecord", e, s)
			g.want(capturedEvent, "cuEventQuery", e)
		}, success},
		{"a wait for an event from outside", global, func(g *gpu, s, u, e uint64) {
			g.ok("cuEventRecord", e, u)
			g.want(isolation, "cuStreamWaitEvent", s, e, 0)
		}, invalidated},
		{"a stream that does not come back", global, func(g *gpu, s, u, e uint64) {
			g.ok("cuEventRecord", e, s)
			g.ok("cuStreamWaitEvent", u, e, 0)
			g.ok("cuMemsetD32Async", g.allocated[0], 0, 1, u)
		}, unjoined},
		{"the end in another stream", global, func(g *gpu, s, u, e uint64) {
			g.ok("cuEventRecord", e, s)
			g.ok("cuStreamWaitEvent", u, e, 0)
			g.want(unmatched, "cuStreamEndCapture", u, g.out.Address())
		}, invalidated},
		{"another capture", global, func(g *gpu, s, u, e uint64) {
			g.ok("cuStreamBeginCapture_v2", u, global)
			g.ok("cuEventRecord", e, u)
			g.want(merge, "cuStreamWaitEvent", s, e, 0)
		}, invalidated},
		{"a second beginning", global, func(g *gpu, s, _, _ uint64) {
			g.want(illegalState, "cuStreamBeginCapture_v2", s, global)
		}, success},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := start(t, false)
			g.alloc(64)
			s, u, e := g.stream(), g.stream(), g.event()
			g.ok("cuStreamBeginCapture_v2", s, c.mode)
			g.ok("cuMemsetD32Async", g.allocated[0], 0, 1, s)
			c.disturb(g, s, u, e)
			g.want(c.end, "cuStreamEndCapture", s, g.out.Address())
			g.call("cuStreamEndCapture", u, g.out.Address()) // of the case in which it began another
			g.ok("cuStreamSynchronize", s)                   // the stream is free again
		})
	}
}

func TestDefaultStreamInCapture(t *testing.T) {
	g := start(t, false)
	at := g.alloc(64)
	s := g.create("cuStreamCreate", 0)
	g.want(unsupported, "cuStreamBeginCapture_v2", 0, 0)
	g.ok("cuStreamBeginCapture_v2", s, 0)
	g.want(implicit, "cuMemsetD32_v2", at, 0, 1)
	g.want(invalidated, "cuStreamEndCapture", s, g.out.Address())
}
