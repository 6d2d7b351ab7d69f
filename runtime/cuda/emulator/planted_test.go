//go:build cuda

package emulator

import "testing"

// planted runs a program twice: with its fault there must be a finding with these texts, without it none.
func planted(t *testing.T, program func(g *gpu, fault bool), texts ...string) {
	t.Run("fault", func(t *testing.T) {
		g := start(t, true, "CHAOS=3")
		program(g, true)
		g.wantFinding(texts...)
	})
	t.Run("without", func(t *testing.T) {
		g := start(t, true, "CHAOS=3")
		program(g, false)
		g.wantNoFinding()
	})
}

const planes = 512 // elements of the buffers here

var planeShape = shape{2, 256, 0}

func TestPlantedMissingEvent(t *testing.T) {
	planted(t, func(g *gpu, fault bool) {
		copies, compute, ready := g.stream(), g.stream(), g.event()
		_, host := pinned[float32](g, planes)
		in, out := g.alloc(4*planes), g.alloc(4*planes)
		scale := scaleArgs{out, in, 2, 0, planes}.bytes()
		g.function("scale") // whose first loading waits for the context
		g.ok("cuMemcpyHtoDAsync_v2", in, host, 4*planes, copies)
		g.ok("cuEventRecord", ready, copies)
		if !fault {
			g.ok("cuStreamWaitEvent", compute, ready, 0)
		}
		g.launch(compute, "scale", planeShape, scale)
		g.ok("cuCtxSynchronize")
	}, "unordered", "kernel scale on stream 2", "copy of 2048 bytes on stream 1")
}

// The buffer's offload still reads it when the next kernel writes there: a wait for the kernel alone is not enough.
func TestPlantedBufferReusedTooEarly(t *testing.T) {
	planted(t, func(g *gpu, fault bool) {
		compute, copies := g.stream(), g.stream()
		made, saved := g.event(), g.event()
		_, host := pinned[float32](g, planes)
		in, buffer := g.alloc(4*planes), g.alloc(4*planes)
		g.upload(in, ramp(planes))
		first, second := scaleArgs{buffer, in, 2, 0, planes}.bytes(), scaleArgs{buffer, in, 3, 0, planes}.bytes()
		g.launch(compute, "scale", planeShape, first)
		g.ok("cuEventRecord", made, compute)
		g.ok("cuStreamWaitEvent", copies, made, 0)
		g.ok("cuMemcpyDtoHAsync_v2", host, buffer, 4*planes, copies)
		g.ok("cuEventRecord", saved, copies)
		if !fault {
			g.ok("cuStreamWaitEvent", compute, saved, 0)
		}
		g.launch(compute, "scale", planeShape, second)
		g.ok("cuCtxSynchronize")
	}, "unordered", "kernel scale on stream 1", "copy of 2048 bytes on stream 2", "of emulated device 0")
}

func TestPlantedWriteOutOfBounds(t *testing.T) {
	planted(t, func(g *gpu, fault bool) {
		in, out := g.alloc(4*planes), g.alloc(4*planes-4)
		g.upload(in, ramp(planes))
		if fault {
			g.launch(0, "scale_all", planeShape, scaleArgs{out, in, 2, 0, planes - 1}.bytes())
			g.want(illegalAddress, "cuCtxSynchronize")
			return
		}
		g.launch(0, "scale", planeShape, scaleArgs{out, in, 2, 0, planes - 1}.bytes())
		g.ok("cuCtxSynchronize")
	}, "out of bounds", "kernel scale_all", "thread (255,0,0) of block (1,0,0)", "0 bytes behind the end of allocation 1 (2044 bytes)")
}

func TestPlantedMissingBarrier(t *testing.T) {
	planted(t, func(g *gpu, fault bool) {
		in, out := g.alloc(4*planes), g.alloc(4*planes)
		g.upload(in, ramp(planes))
		kernel := "block_sum"
		if fault {
			kernel = "block_sum_unsynchronized"
		}
		g.launch(0, kernel, planeShape, scaleArgs{out, in, 1, 0, planes}.bytes())
		g.ok("cuCtxSynchronize")
	}, "race in a block", "kernel block_sum_unsynchronized", "shared memory", "without a barrier between")
}

func TestPlantedIgnoredError(t *testing.T) {
	programs := map[string]struct {
		program func(g *gpu, fault bool)
		texts   []string
	}{
		// The launch was refused, and the stream went on without it.
		"a refused call": {func(g *gpu, fault bool) {
			s := g.stream()
			in, out := g.alloc(4*planes), g.alloc(4*planes)
			g.ok("cuMemsetD32Async", in, 0, planes, s)
			if fault && g.tryLaunch(s, "spin", shape{1, 256, 0}, scaleArgs{out, in, 1, 0, 1}.bytes()) != outOfResources {
				g.Fatal("a block beyond the kernel's bounds is not refused")
			}
			g.ok("cuMemcpyDtoDAsync_v2", out, in, 4*planes, s)
		}, []string{"ignored error", "cuLaunchKernel on stream 1 returned CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "cuMemcpyDtoDAsync"}},
		// The launch failed later, and nobody asked.
		"work that failed": {func(g *gpu, fault bool) {
			s := g.stream()
			g.ok("cuMemsetD32Async", g.alloc(4*planes), 0, planes, s)
			g.ok("cuStreamSynchronize", s)
			g.lib.Call("plimsollEmulatorFail", g.text("fill:1=719"))
			g.ok("cuMemsetD32Async", g.alloc(64), 0, 16, s)
			if !fault {
				g.want(launchFailed, "cuStreamSynchronize", s)
			}
			g.destroy()
		}, []string{"ignored error", "CUDA_ERROR_LAUNCH_FAILED of fill of 64 bytes on stream 1 was never reported"}},
	}
	for name, p := range programs {
		t.Run(name, func(t *testing.T) { planted(t, p.program, p.texts...) })
	}
}

// The host frees what a copy may still read or write, although the driver would wait.
func TestPlantedEarlyRelease(t *testing.T) {
	for call, memory := range map[string]string{"cuMemFreeHost": "pinned host memory", "cuMemFree_v2": "emulated device 0"} {
		t.Run(call, func(t *testing.T) {
			planted(t, func(g *gpu, fault bool) {
				s := g.stream()
				_, host := pinned[float32](g, planes)
				arena := g.alloc(4 * planes)
				g.ok("cuMemcpyHtoDAsync_v2", arena, host, 4*planes, s)
				if !fault {
					g.ok("cuStreamSynchronize", s)
				}
				g.ok(call, map[string]uint64{"cuMemFreeHost": host, "cuMemFree_v2": arena}[call])
			}, "early release", "cuMemFree", "(2048 bytes) of "+memory, "copy of 2048 bytes")
		})
	}
}

func TestPlantedMemoryOfAnotherContext(t *testing.T) {
	planted(t, func(g *gpu, fault bool) {
		portable := uint64(1)
		if fault {
			portable = 0
		}
		host := g.create("cuMemHostAlloc", 4*planes, portable)
		g.create("cuCtxCreate_v2", 0, 0)
		g.ok("cuMemcpyHtoDAsync_v2", g.alloc(4*planes), host, 4*planes, g.stream())
		g.ok("cuCtxSynchronize")
	}, "foreign memory", "allocation 0 (2048 bytes) of pinned host memory is of another context")
}

func TestPlantedLeak(t *testing.T) {
	what := map[string]func(g *gpu){
		"of emulated device 0 was never freed": func(g *gpu) { g.ok("cuMemFree_v2", g.allocated[0]) },
		"pinned host memory was":               func(g *gpu) { g.ok("cuMemFreeHost", g.host) },
		"stream 1 of device 0 was":             func(g *gpu) { g.ok("cuStreamDestroy_v2", g.streams[0]) },
		"event 1 of device 0 was":              func(g *gpu) { g.ok("cuEventDestroy_v2", g.events[0]) },
		"module 1 (scale, ...) of":             func(g *gpu) { g.ok("cuModuleUnload", g.module) },
		"executable graph 2 of device 0":       func(g *gpu) { g.ok("cuGraphExecDestroy", g.exec) },
	}
	for text, release := range what {
		t.Run(text, func(t *testing.T) {
			planted(t, func(g *gpu, fault bool) {
				g.alloc(64)
				_, g.host = pinned[byte](g, 64)
				s := g.stream()
				g.event()
				g.function("scale")
				g.ok("cuStreamBeginCapture_v2", s, 0)
				graph := g.endCapture(s)
				g.exec = g.create("cuGraphInstantiateWithFlags", graph, 0)
				g.ok("cuGraphDestroy", graph)
				for other, release := range what {
					if other != text {
						release(g)
					}
				}
				if !fault {
					release(g)
				}
				g.ok("cuCtxDestroy_v2", g.context)
			}, "leak", text)
		})
	}
}
