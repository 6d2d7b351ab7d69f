package main

import "path/filepath"

// fault is a change that tests must find.
type fault struct {
	what  string // is wrong then
	suite        // whose
	tests string // find it: a regular expression
	edits []edit
}

// suite is the tests of a folder, on the emulated driver; strict: on the build that watches every access.
type suite struct {
	folder string
	strict bool
}

var (
	calls         = suite{folder: "kernels/cuda"}
	watchedCalls  = suite{folder: "kernels/cuda", strict: true}
	device        = suite{folder: "runtime/cuda"}
	watchedDevice = suite{folder: "runtime/cuda", strict: true}
)

// edit replaces a text that a file has once.
type edit struct{ file, old, new string }

// inKernels reports whether the fault is in the sources of kernels.
func (f fault) inKernels() bool {
	switch filepath.Ext(f.edits[0].file) {
	case ".cu", ".cuh", ".h":
		return true
	}
	return false
}

var faults = []fault{
	{"asynchronous copies are not waited for", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cu", `		multiply(sum, f[0]);
		wait_groups<STAGES - 2>();
`, `		multiply(sum, f[0]);
`}}},
	{"asynchronous copies are waited for one slab late", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cu", `		multiply(sum, f[0]);
		wait_groups<STAGES - 2>();`, `		multiply(sum, f[0]);
		wait_groups<STAGES - 1>();`}}},
	{"a group of asynchronous copies is not closed", calls, "RandomCalls|LargeCalls", []edit{{"kernels/cuda/src/mma.cu", `		fetch(s.first + k, k);
		end_group();
`, `		fetch(s.first + k, k);
`}}},
	{"asynchronous copies of what is outside bring values, not zeros", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "int bytes = zero ? 0 : 16;", "int bytes = 16;"}}},
	{"two registers of A are swapped in mma", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}", "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%6,%5,%7}"}}},
	{"the registers of B are swapped in mma", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}", "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%9,%8}"}}},
	{"the sums of two rows are swapped in mma", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}", "bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%2,%3,%0,%1}"}}},
	{"two registers are swapped in ldmatrix", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "x4.shared.b16 {%0,%1,%2,%3}", "x4.shared.b16 {%0,%2,%1,%3}"}}},
	{"two registers are swapped in the transposed ldmatrix", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "trans.shared.b16 {%0,%1,%2,%3}", "trans.shared.b16 {%0,%2,%1,%3}"}}},
	{"ldmatrix does not transpose", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"}}},
	{"an instruction gets a generic address for one of shared memory", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "unsigned at = (unsigned)__cvta_generic_to_shared(to);", "unsigned at = (unsigned)(u64)to;"}}},
	{"mma adds to registers that are only written", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", `OPERAND("+f", c[0])`, `OPERAND("=f", c[0])`}}},
	{"shared memory of window products is one stage short", calls, "RandomCalls", []edit{{"kernels/cuda/engine.go", "return stages * (t.m + t.n) *", "return (stages - 1) * (t.m + t.n) *"}}},
	{"shared memory of pixel products is one stage short", calls, "RandomCalls", []edit{{"kernels/cuda/engine.go", "return stages * e.slab *", "return (stages - 1) * e.slab *"}}},
	{"more than 48 KiB of shared memory are not asked for", calls, "EveryTile", []edit{{"runtime/cuda/kernel.go", `	return callError("cuFuncSetAttribute", driver.SetDynamicShared(k.function, int(k.shared)))`, `	return callError("cuFuncSetAttribute", driver.SetDynamicShared(k.function, 0))`}}},
	{"no barrier between a slab's arrival and its product", watchedCalls, "EveryTile", []edit{{"kernels/cuda/src/mma.cu", `		wait_groups<STAGES - 2>();
		__syncthreads();
		load`, `		wait_groups<STAGES - 2>();
		load`}}},
	{"no barrier between slabs of window products in registers", watchedCalls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cu", `			left.keep(p.a[now]);
			right.keep(p.b[now]);
		}
		__syncthreads();
	}
	i64 base = (i64)v.group`, `			left.keep(p.a[now]);
			right.keep(p.b[now]);
		}
	}
	i64 base = (i64)v.group`}}},
	{"no barrier before the moments of a chunk are merged", watchedCalls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", `= rest < 0 ? 0 : rest; // a NaN stays one
	}
	__syncthreads();`, `= rest < 0 ? 0 : rest; // a NaN stays one
	}`}}},
	{"moments are sums of values, not of what they are above the first", calls, "MomentsFar", []edit{{"kernels/cuda/src/norm.cu", "if (mine > 0) load(first, GLOBAL(const T, a.x) + from);", ""}, {"kernels/cuda/src/norm.cu", "for (i64 i = 1; i < mine; i++) {", "for (i64 i = 0; i < mine; i++) {"}}},
	{"a row of an odd number is left out of BatchNorm", calls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", "if (left == 0) return;", "return;"}}},
	{"the gradient of BatchNorm leaves its mean out", calls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", "(norm_mean(a, c) * slope - off)", "(norm_mean(a, c) * slope)"}}},
	{"no barrier in the halving of a sum of squares", watchedCalls, "Guard", []edit{{"kernels/cuda/src/update.cu", `sums[threadIdx.x + half];
		__syncthreads();`, "sums[threadIdx.x + half];"}}},
	{"columns are stored together where they are not aligned", watchedCalls, "RandomCalls", []edit{{"kernels/cuda/src/tile.cuh", "group * columns + column, columns % 4 == 0)", "group * columns + column, true)"}}},
	{"wide loads where the channels of a tap are no whole vectors", calls, "RandomCalls", []edit{{"kernels/cuda/conv.go", "m.engine(p.image | p.inner)", "m.engine(0)"}}},
	{"one channel too many is read", calls, "NaNs", []edit{{"kernels/cuda/src/conv.cuh", "s.e + k < v.inner & (unsigned)(p.y", "s.e + k <= v.inner & (unsigned)(p.y"}}},
	{"the gradient of pixels behind the last one is read", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cu", "(bool)(p < end & o + k < width)", "o + k < width"}}},
	{"32 bits for the offset of an image that is read", calls, "Beyond32", []edit{{"kernels/cuda/src/conv.cuh", "(i64)(p.line + s.y) * v.row + x", "(i64)((p.line + s.y) * v.row + x)"}}},
	{"32 bits for the offset of an image of a weight gradient", calls, "Beyond32", []edit{{"kernels/cuda/src/conv.cuh", "(i64)(p.line + y) * row + x", "(i64)((p.line + y) * row + x)"}}},
	{"32 bits for the offset of an image that is written", calls, "Beyond32", []edit{{"kernels/cuda/src/conv.cuh", "return (((i64)n * g.h + y * v.h.spread + v.h.rest) * g.w + x * v.w.spread + v.w.rest) * v.channels", "return (i64)(((n * g.h + y * v.h.spread + v.h.rest) * g.w + x * v.w.spread + v.w.rest) * v.channels)"}}},
	{"rows above an image are read", calls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cuh", "(unsigned)(p.y + s.y) < (unsigned)v.height", "p.y + s.y < v.height"}}},
	{"dilation is ignored forward", calls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cuh", "return axis{out, in, stride, -pad, dilation, kernel", "return axis{out, in, stride, -pad, 1, kernel"}}},
	{"a class of strides begins at the wrong tap", calls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cuh", "x.off = (rest + pad - x.first * dilation) / stride", "x.off = (rest + pad - t * dilation) / stride"}}},
	{"splits overlap by a slab", calls, "LargeCalls", []edit{{"kernels/cuda/src/conv.cuh", "(int)((i64)slabs * (split + 1) / splits)", "(int)((i64)slabs * (split + 1) / splits) + (split + 1 < splits)"}}},
	{"partial results: the last one is left out", calls, "LargeCalls", []edit{{"kernels/cuda/src/pack.cu", "for (int s = 1; s < a.splits; s++)", "for (int s = 1; s + 1 < a.splits; s++)"}}},
	{"a row behind the end of a tile is written", calls, "RandomCalls", []edit{{"kernels/cuda/src/tile.cuh", "row0 + r < rows ? at(row0 + r) : -1", "at(row0 + r)"}}},
	{"the second group gets the first one's columns", calls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cuh", "v.group = v.panel % g.groups", "v.group = 0"}}},
	{"a grid of tiles is rounded down", calls, "EveryTile", []edit{{"kernels/cuda/engine.go", "return dim{ceil(rows, t.m), ceil(columns, t.n), z}", "return dim{max(rows/t.m, 1), ceil(columns, t.n), z}"}}},
	{"partial results share their memory with packed weights", calls, "LargeCalls", []edit{{"kernels/cuda/builder.go", `	at := b.used
`, `	at := int64(0)
`}}},
	{"bfloat16: ties are rounded up", calls, "Rounding", []edit{{"kernels/cuda/src/plimsoll.cuh", "(u + 0x7fffu + ((u >> 16) & 1u)) >> 16", "(u + 0x8000u) >> 16"}}},
	{"bfloat16: a NaN may become infinity", calls, "Rounding", []edit{{"kernels/cuda/src/plimsoll.cuh", `	if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
`, ""}}},
	{"a gradient overwrites where it should add", calls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cuh", "return deposit(to, x, 4, a.add)", "return deposit(to, x, 4, 0)"}}},
	{"neighbouring columns get the first one's bias", calls, "RandomCalls", []edit{{"kernels/cuda/src/conv.cuh", "GLOBAL(const float, a.bias)[column + k]", "GLOBAL(const float, a.bias)[column]"}}},
	{"TF32: factors are cut off, not rounded", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", `INSTRUCTION("cvt.rna.tf32.f32 %0, %1;", (OPERAND("=r", bits)), (OPERAND("f", v)));`, `bits = __float_as_uint(v);`}}},
	{"TF32: factors from the image are not rounded", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", `	for (int i = 0; i < 4; i++) f.r[i] = rounded_bits(f.r[i]);
`, ""}}},
	{"TF32: two registers of A are swapped in mma", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}", "tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%6,%5,%7}"}}},
	{"TF32: the inner halves of B are swapped in a weight gradient", calls, "RandomCalls", []edit{{"kernels/cuda/src/mma.cuh", "slab[(lane % 4 + i % 2 * 4) * width", "slab[(lane % 4 + (1 - i % 2) * 4) * width"}}},
	{"TF32: ties go towards zero without tensor cores", calls, "TF32Rounding", []edit{{"kernels/cuda/src/plimsoll.cuh", "u | 0x400000u : u + 0x1000u", "u | 0x400000u : u + 0xfffu"}}},
	{"TF32: weights are packed as they are", calls, "RandomCalls", []edit{{"kernels/cuda/multiplication.go", "kernels.TF32: C.TO_TF32}", "kernels.TF32: C.EXACT}"}}},
	{"running variance divides by n", calls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", "double rest = m.n > 1 ? m.n - 1 : 1;", "double rest = m.n;"}}},
	{"of the parameters that are updated at once the last one of a launch is left out", calls, "Updates", []edit{{"kernels/cuda/update.go", "dim{int64(args.first[args.count]), 1, 1}", "dim{int64(max(args.first[args.count-1], 1)), 1, 1}"}}},
	{"blocks of an update begin one parameter late", calls, "Updates", []edit{{"kernels/cuda/src/update.cu", "if (first[middle] <= block) low = middle;", "if (first[middle] < block) low = middle;"}}},
	{"Adam's bias correction is a step late", calls, "Updates", []edit{{"kernels/cuda/src/update.cu", "u64 number = s.update + a.earlier[t] + 1;", "u64 number = s.update + a.earlier[t] + 2;"}}},
	{"a product and a sum of an update are one operation", calls, "HostUpdates", []edit{{"kernels/cuda/src/update.cu", "\n#define NO_CONTRACTION\n", "\n"}}},
	{"Muon's momentum is not Nesterov's", calls, "Muon", []edit{{"kernels/cuda/src/update.cu", "x.v[k] = d + beta * (v.v[k] - d);", "x.v[k] = v.v[k];"}}},
	{"Muon moves the momentum in a step that is skipped", calls, "Muon", []edit{{"kernels/cuda/src/update.cu", `		if (!s.skip) {
			load_either(g, a.grad, a.narrow != 0, i, left);
			load_some(v, GLOBAL(const float, a.momentum) + i, left);`, `		{
			load_either(g, a.grad, a.narrow != 0, i, left);
			load_some(v, GLOBAL(const float, a.momentum) + i, left);`}}},
	{"Muon moves the weights in a step that is skipped", calls, "Muon", []edit{{"kernels/cuda/src/update.cu", `	if (s.skip) return;
	float shrink = (float)(1 - (double)s.lr * a.weight_decay), size`, `	float shrink = (float)(1 - (double)s.lr * a.weight_decay), size`}}},
	{"Muon's norm leaves the last chunk out", calls, "Muon", []edit{{"kernels/cuda/src/update.cu", "for (i64 i = 0; i < a.parts; i++) squares +=", "for (i64 i = 0; i < a.parts - (a.parts > 1); i++) squares +="}}},
	{"Muon's polynomial has its constant beside the diagonal", calls, "Muon", []edit{{"kernels/cuda/src/update.cu", "(i + k) % (a.side + 1) == 0 ? f0 : 0", "(i + k) % a.side == 0 ? f0 : 0"}}},
	{"no barrier before Muon's norm is read", watchedCalls, "Muon", []edit{{"kernels/cuda/src/update.cu", `	__syncthreads();
	float factor = formed;`, `	float factor = formed;`}}},
	{"what products of Muon's iteration need lies over the matrix", calls, "Muon", []edit{{"kernels/cuda/muon.go", "		b.used = rest\n", "		b.used = min(rest, 0)\n"}}},
	{"Muon's norm reads bfloat16 as float32", calls, "Muon", []edit{{"kernels/cuda/src/update.cu", "squares_of(a.x, a.half != 0, from, left)", "squares_of(a.x, false, from, left)"}}},
	{"Muon multiplies what A of a tall matrix in bfloat16 was before", calls, "Muon", []edit{{"kernels/muon.go", "multiply(ofX, s.X, s.X, s.Again)", "multiply(ofX, s.X, s.X, s.Square)"}}},
	{"columns beside aligned ones replace the gradient in TF32", calls, "WrongEdges", []edit{{"kernels/cuda/matrix.go", "o.out+image, j > 0 || m.adds())", "o.out+image, m.adds())"}}},
	{"a class of rows begins at its first column in TF32", calls, "WrongEdges", []edit{{"kernels/cuda/matrix.go", "C.u64(4*(k.first*m.out+from))", "C.u64(4*k.first*m.out)"}}},
	{"a label out of range counts as a right one", calls, "BadLabel", []edit{{"kernels/cuda/src/loss.cu", `(double)__uint_as_float(0x7fc00000u);
		GLOBAL`, `0.0;
		GLOBAL`}}},
	{"a row that is ignored counts", calls, "RandomCalls", []edit{{"kernels/cuda/src/loss.cu", "counted += right >= 0;", "counted++;"}}},
	{"memory is freed before the streams are drained", device, "Conformance", []edit{{"runtime/cuda/close.go", `	streams, visitors := d.users()
	for _, s := range streams {
		s.drain()
	}
	for _, s := range visitors {
		s.drain()
	}
`, `	_, _ = d.users()
`}, {"runtime/cuda/close.go", `	for _, s := range d.streams {
		d.lost = d.lost || s.stream.Synchronize() != nil // reported by Stream.Synchronize
	}
`, `	_ = d.memory.free()
`}}},
	{"a stream does not wait for the message that it receives", device, "Staging", []edit{{"runtime/cuda/staging.go", `		if err := m.wait(s, n); err != nil || m.span.Bytes == 0 {
			return err
		}
`, ""}}},
	{"a message is copied into the staging before the last one has left it", device, "Staging", []edit{{"runtime/cuda/staging.go", `	if err := m.wait(s, n-1); err != nil {
		return err
	}
`, ""}}},
	{"a message is handed over before the stream has come to it", device, "Staging", []edit{{"runtime/cuda/staging.go", "for come < c.number && c.err == nil {", "for false {"}}},
	{"the contexts of a peer copy are swapped", device, "Conformance", []edit{{"runtime/cuda/stream.go", "cu.MemcpyPeerAsync(to, p.context, from, d.context,", "cu.MemcpyPeerAsync(to, d.context, from, p.context,"}}},
	{"page-locked memory is of one context alone", device, "HostMemoryIsForEveryGPU", []edit{{"runtime/cuda/driver/calls.go", "C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE)", "C.size_t(bytes), 0)"}}},
	{"a graph does not wait for a record outside", device, "AGraphWaitsForRecordsOutside", []edit{{"runtime/cuda/graph.go", `	return callError("cuStreamWaitEvent", s.stream.Wait(e.event, driver.WaitExternal))
`, `	return nil
`}}},
	{"a stream does not wait for an event", device, "Conformance", []edit{{"runtime/cuda/stream.go", `	if err == nil && recorded {`, `	if err == nil && recorded && false {`}}},
	{"a graph does not wait for its streams", device, "AGraph", []edit{{"runtime/cuda/graph.go", `		if err := order(g.before[i], t.stream, s); err != nil {
			return err
		}
	}
	if err := g.exec`, `		_ = i
	}
	if err := g.exec`}}},
	{"streams do not wait for a graph", device, "AGraph", []edit{{"runtime/cuda/graph.go", `		if t.stream == s {
			continue
		}`, `		if true {
			continue
		}`}}},
	{"the arena is not cleared", device, "Conformance", []edit{{"runtime/cuda/reserve.go", "cu.MemsetD8(m.arena, 0, arena)", "cu.MemsetD8(m.arena, 0, 1)"}}},
	{"nobody waits for the clearing of the arena", watchedDevice, "Conformance", []edit{{"runtime/cuda/reserve.go", `		if err := cu.Synchronize(); err != nil {
			return m, d.wrap("reserve", callError("cuCtxSynchronize", err))
		}
`, ""}}},
	{"calls do not make the device's context current", device, "Conformance", []edit{{"runtime/cuda/device.go", `	if err := cu.SetCurrentContext(d.context); err != nil {
		return d.wrap("", callError("cuCtxSetCurrent", err))
	}
	return f()`, `	return f()`}}},
	{"a device closes while peers copy into its arena", watchedDevice, "Conformance", []edit{{"runtime/cuda/close.go", `	for _, s := range visitors {
		s.drain()
	}
`, `	_ = visitors
`}}},
	{"the PTX is of other sources", calls, "PTXIsFresh", []edit{{"kernels/cuda/src/mma.cu", "STAGES = 4", "STAGES = 3"}}},
	{"rows beyond the grid are left out: loss", calls, "RowsBeyond", []edit{{"kernels/cuda/src/loss.cu", "row += gridDim.x, turn ^= 1)", "row += a.rows, turn ^= 1)"}}},
	{"rows beyond the grid are left out: gradient of the loss", calls, "RowsBeyond", []edit{{"kernels/cuda/src/loss.cu", `row += gridDim.x) {
		const float *saved`, `row += a.rows) {
		const float *saved`}}},
	{"rows beyond the grid are left out: layer norm", calls, "RowsBeyond", []edit{{"kernels/cuda/src/sequence.cu", `r += gridDim.x) {
		const T *x = GLOBAL(const T, a.x) + r * a.channels;`, `r += a.rows) {
		const T *x = GLOBAL(const T, a.x) + r * a.channels;`}}},
	{"rows beyond the grid are left out: gradient of the layer norm", calls, "RowsBeyond", []edit{{"kernels/cuda/src/sequence.cu", `r += gridDim.x) {
		const T *x = GLOBAL(const T, a.x) + r * a.channels, *dy`, `r += a.rows) {
		const T *x = GLOBAL(const T, a.x) + r * a.channels, *dy`}}},
	{"rows beyond the grid are left out: rotary positions", calls, "RowsBeyond", []edit{{"kernels/cuda/src/sequence.cu", `r += gridDim.x) {
		const T *in`, `r += a.rows) {
		const T *in`}}},
	{"rows beyond the grid are left out: embedding", calls, "TokensBeyond", []edit{{"kernels/cuda/src/sequence.cu", "r < a.tokens; r += gridDim.x)", "r < a.tokens; r += a.tokens)"}}},
	{"rows beyond the grid are left out: gradient of the embedding", calls, "TokensBeyond", []edit{{"kernels/cuda/src/sequence.cu", "token < a.vocabulary; token += (i64)gridDim.y * blockDim.y)", "token < a.vocabulary; token += a.vocabulary)"}}},
	{"rows beyond the grid are left out: gradient of positions", calls, "TokensBeyond", []edit{{"kernels/cuda/src/sequence.cu", "p < a.positions; p += (i64)gridDim.y * blockDim.y)", "p < a.positions; p += a.positions)"}}},
	{"rows beyond the grid are left out: images of pools", calls, "RowsBeyond", []edit{{"kernels/cuda/src/pool.cu", "image < (images); image += gridDim.z)", "image < (images); image += (images))"}}},
	{"rows beyond the grid are left out: rows of images of pools", calls, "RowsBeyond", []edit{{"kernels/cuda/src/pool.cu", "row < (rows); row += gridDim.y)", "row < (rows); row += (rows))"}}},
	{"slabs beyond the grid are not packed", calls, "ManySlabs", []edit{{"kernels/cuda/src/pack.cu", "slab < slabs; slab += gridDim.y)", "slab < slabs; slab += slabs)"}}},
	{"a grid of 65,536 blocks along y", calls, "GridsWithin", []edit{
		{"kernels/cuda/pool.go", "const maxImages = 1<<16 - 1", "const maxImages = 1 << 16"},
		{"kernels/cuda/grid.go", "var maxGrid = dim{1<<31 - 1, 1<<16 - 1, 1<<16 - 1}", "var maxGrid = dim{1<<31 - 1, 1 << 16, 1 << 16}"},
	}},
	{"32 bits for the offset of a row: loss", calls, "LossBeyond32", []edit{{"kernels/cuda/src/loss.cu", `i64 base = (i64)row * a.classes;
		exponentials`, `i64 base = (i64)(row * a.classes);
		exponentials`}}},
	{"32 bits for the offset of a row: gradient of the loss", calls, "LossBeyond32", []edit{{"kernels/cuda/src/loss.cu", `i64 base = (i64)row * a.classes;
		stretch`, `i64 base = (i64)(row * a.classes);
		stretch`}}},
	{"32 bits for the offset of a row: attention", calls, "AttentionBeyond32", []edit{{"kernels/cuda/src/attention.cu", "return (n * a.length + t) * a.channels + (i64)column", "return (int)((n * a.length + t) * a.channels) + (i64)column"}}},
	{"32 bits for the offset of a row: result of attention", calls, "AttentionBeyond32", []edit{{"kernels/cuda/src/attention.cu", "return ((n * a.length + t) * a.heads + query) * a.dim;", "return (int)(((n * a.length + t) * a.heads + query) * a.dim);"}}},
	{"32 bits for the offset of a row: moments of BatchNorm", calls, "NormBeyond32", []edit{{"kernels/cuda/src/norm.cu", "i64 from = (p.r0 + threadIdx.y) * a.channels + p.c;", "i64 from = (int)((p.r0 + threadIdx.y) * a.channels + p.c);"}}},
	{"32 bits for the offset of a row: BatchNorm", calls, "NormBeyond32", []edit{{"kernels/cuda/src/norm.cu", "at = (p.r0 + threadIdx.y) * channels + p.c;", "at = (int)((p.r0 + threadIdx.y) * channels + p.c);"}}},
	{"32 bits for the offset of a row: gradient of BatchNorm", calls, "NormBeyond32", []edit{{"kernels/cuda/src/norm.cu", `(slope.v[k] * row.x.v[k] + rest.v[k]);
			deposit(GLOBAL(T, a.dx) + at,`, `(slope.v[k] * row.x.v[k] + rest.v[k]);
			deposit(GLOBAL(T, a.dx) + (int)at,`}}},
	{"a negative token has an embedding", calls, "UnknownTokens", []edit{{"kernels/cuda/src/sequence.cu", "bool known = token >= 0 && token < a.vocabulary;", "bool known = token < a.vocabulary;"}}},
	{"a negative token has a gradient", calls, "UnknownTokens", []edit{{"kernels/cuda/src/sequence.cu", "return token >= 0 && token < a.vocabulary ? token : a.vocabulary;", "return token < a.vocabulary ? token < 0 ? 0 : token : a.vocabulary;"}}},
	{"the sort of tokens knows no second digit", calls, "GradientsOfTokens", []edit{{"kernels/cuda/sequence.go", "shift := 0; vocabulary>>shift > 0; shift += sortBits", "shift := 0; shift == 0; shift += sortBits"}}},
	{"the sort of tokens is not stable", calls, "GradientsOfTokens", []edit{{"kernels/cuda/src/sequence.cu", "int to = places[warp][s.digit] + __popc(s.below);", "int to = places[warp][s.digit] + __popc(s.same & ~s.below) - 1;"}}},
	{"no barrier between places of tokens and the rows put there", watchedCalls, "GradientsOfTokens", []edit{{"kernels/cuda/src/sequence.cu", `		place += n;
	}
	__syncthreads();`, `		place += n;
	}`}}},
	{"no barrier between a row's logits and those of other warps", watchedCalls, "UnusualLogits", []edit{{"kernels/cuda/src/loss.cu", `sums[at + threadIdx.x / 32] = p.sum;
	__syncthreads();`, `sums[at + threadIdx.x / 32] = p.sum;`}}},
	{"rows of the loss do not take turns", watchedCalls, "RowsBeyond", []edit{{"kernels/cuda/src/loss.cu", "row += gridDim.x, turn ^= 1)", "row += gridDim.x)"}}},
	{"attention on tensor cores does not wait for a tile", calls, "FlashForward", []edit{{"kernels/cuda/src/flashforward.cuh", `		wait_groups<0>();
		round_rows<DIM, T::KEYS>(stage);`, `		round_rows<DIM, T::KEYS>(stage);`}}},
	{"attention on tensor cores shows a query the key behind it", calls, "FlashForward", []edit{{"kernels/cuda/src/flashforward.cuh", "> first + m * 16 + lane / 4 + k / 2 * 8)", "> first + m * 16 + lane / 4 + k / 2 * 8 + 1)"}}},
	{"gradients of attention do not wait for a stage", calls, "AttentionGradients", []edit{{"kernels/cuda/src/flashbackward.cuh", `	wait_groups<0>();
	round_rows`, `	round_rows`}}},
	{"no barrier between stages of the gradients of attention", watchedCalls, "AttentionGradients", []edit{{"kernels/cuda/src/flashbackward.cuh", `(p.moving[stage][1][0]);
	__syncthreads();`, `(p.moving[stage][1][0]);`}}},
	{"attention in TF32 rounds three of four channels", calls, "AttentionRounds", []edit{{"kernels/cuda/src/flash.cuh", "rounded_bits(u.z), rounded_bits(u.w)", "rounded_bits(u.z), u.w"}}},
	{"attention in TF32 cuts its weights off", calls, "AttentionRounds", []edit{{"kernels/cuda/src/flash.cuh", "rounded_bits(__float_as_uint(sums[0][i % 2 * 2 + i / 2]))", "__float_as_uint(sums[0][i % 2 * 2 + i / 2])"}}},
	{"attention in TF32 takes two keys for one another", calls, "FlashForward", []edit{{"kernels/cuda/src/flash.cuh", "sums[0][i % 2 * 2 + i / 2]", "sums[0][i % 2 * 2 + 1 - i / 2]"}}},
	{"attention in TF32 writes channels in the order of fragments", calls, "FlashForward", []edit{{"kernels/cuda/src/flash.cuh", "f(n + 1, x.y, y.y);\n\t\tf(n + 2, x.z, y.z);", "f(n + 1, x.z, y.z);\n\t\tf(n + 2, x.y, y.y);"}}},
	{"attention sees one key behind the end of a sample", calls, "AnyAttention", []edit{{"kernels/cuda/src/flashforward.cuh", "k % 2 >= a.length) s[j][k]", "k % 2 > a.length) s[j][k]"}}},
	{"two scores have one number of a mask", calls, "AnyAttention", []edit{{"kernels/cuda/src/terms.cuh", "v[j][k] += mask[where(j, k)]", "v[j][k] += mask[where(j, k & 2)]"}}},
	{"a sample has the masks of the next one", calls, "AnyAttention", []edit{{"kernels/cuda/src/terms.cuh", "(int)(n % a.masks)", "(int)((n + 1) % a.masks)"}}},
	{"heads have the table's first column", calls, "AnyAttention", []edit{{"kernels/cuda/src/terms.cuh", "GLOBAL(const float, a.bias) + head,", "GLOBAL(const float, a.bias),"}}},
	{"gradients of queries see keys behind the end of a sample", calls, "FarBelowZero", []edit{{"kernels/cuda/src/flashbackward.cuh", "(KEYS || !causal ? moving < a.length : true)", "(KEYS ? moving < a.length : true)"}}},
	{"gradients of keys take a query and a key for one another in masks", calls, "AnyAttention", []edit{{"kernels/cuda/src/flashbackward.cuh", "KEYS ? terms.at(moving, still)", "false ? terms.at(moving, still)"}}},
	{"a part of the sums of a table's gradients has its first sample alone", calls, "AnyAttention", []edit{{"kernels/cuda/src/flashbackward.cuh", "end = (int)(a.samples * (part + 1) / a.parts);", "end = first + 1;"}}},
	{"a table's gradients are those of the first part", calls, "AnyAttention", []edit{{"kernels/cuda/src/attention.cu", "part < a.parts; part++) sum", "part < 1; part++) sum"}}},
	{"values of wide heads have no gradients", calls, "AttentionGradients", []edit{{"kernels/cuda/sequence.go", "if flash.head > 128 {", "if flash.head > 256 {"}}},
	{"gradients of attention read another query's sum", calls, "AttentionGradients", []edit{{"kernels/cuda/src/flashbackward.cuh", "*p.number(stage, 0, moving)", "*p.number(stage, 0, moving ^ 1)"}}},
	{"gradients of attention write each head's over the first one's", calls, "AttentionGradients", []edit{{"kernels/cuda/src/flashbackward.cuh", "const int head = blockIdx.x / parts % heads", "const int head = 0"}}},
	{"edges of rows are looked for one column late", calls, "VendorCalls", []edit{{"kernels/cuda/src/pack.cu", "e < head + tail ? o - tail + e - head : -1", "e < head + tail ? o - tail + e - head - 1 : -1"}}},
	{"a bias as weights lacks its second part", calls, "BiasAsWeights", []edit{{"kernels/cuda/src/pack.cu", "x.v[1] = finite ? high(bias - x.v[0]) : 0;", "x.v[1] = 0;"}}},
	{"Muon divides by a norm of zero", calls, "MuonOfNothing", []edit{{"kernels/cuda/src/update.cu", "formed = (float)(1 / (norm > a.tiny ? norm : a.tiny));", "formed = (float)(1 / norm);"}}},
	{"running statistics take a batch with a NaN", calls, "NaNsLeave", []edit{{"kernels/cuda/src/norm.cu", "if (!a.update || !is_finite(m.mean) || !is_finite(m.squares)) return;", "if (!a.update) return;"}}},
	{"attention does not take off the largest score", calls, "LargeValues", []edit{{"kernels/cuda/src/attention.cu", "		top = fmaxf(fmaxf(parts[r][0], parts[r][1]), fmaxf(parts[r][2], parts[r][3]));", "		top = 0;"}}},
	{"no barrier between an image of a pool and the block's next one", watchedCalls, "RowsBeyond", []edit{{"kernels/cuda/src/pool.cu", `sum * a.share);
		}
		__syncthreads();`, `sum * a.share);
		}`}}},
	{"no barrier between a row of a norm and the block's next one", watchedCalls, "RowsBeyond", []edit{{"kernels/cuda/src/sequence.cu", `	int t = threadIdx.x;
	__syncthreads();
	sums[t] = v;`, `	int t = threadIdx.x;
	sums[t] = v;`}}},
	{"PTX is handed over without its zero byte", watchedDevice, "PTXEnds", []edit{{"runtime/cuda/driver/calls.go", "C.CBytes(append(image[:len(image):len(image)], 0))", "C.CBytes(image)"}}},
	{"nobody waits for a fill", watchedDevice, "Inspector", []edit{{"runtime/cuda/inspect.go", `return d.wrap("fill", callError("cuStreamSynchronize", cu.Stream{}.Synchronize()))`, "return nil"}}},
	{"the maxima of a pool by vectors lie in another channel", calls, "RandomCalls", []edit{{"kernels/cuda/src/pool.cu", "p.at[k] = i.x, p.at[k + 1] = i.y,", "p.at[k] = i.y, p.at[k + 1] = i.x,"}}},
	{"the gradient of a pool leaves its first window out", calls, "RandomCalls", []edit{{"kernels/cuda/src/pool.cu", "(reach - kernel) / stride + 1;", "(reach - kernel) / stride + 2;"}}},
	{"a mean over a window counts what is outside the image", calls, "RandomCalls", []edit{{"kernels/cuda/src/pool.cu", "return inside ? least(past, size) - most(from, 0) : past - from;", "return past - from;"}}},
	{"a thread of a pool begins at a channel inside another one's vector", calls, "RandomCalls", []edit{{"kernels/cuda/src/pool.cu", "return place{i / vectors, i % vectors * V, i < width * vectors};", "return place{i / vectors, i % vectors, i < width * vectors};"}}},
	{"a folded image has neighbouring pixels in its padding", calls, "FoldedCalls", []edit{{"kernels/cuda/src/pack.cu", "if (x >= 0 && x < a.w && c < a.c)", "if (c < a.c)"}}},
	{"a vector of a folded image stays in its first pixel", calls, "FoldedCalls", []edit{{"kernels/cuda/src/pack.cu", "if (++c == a.pixel) c = 0, x++;", "if (++c == a.pixel) c = 0;"}}},
	{"gradients of folded weights are read without the padding of pixels", calls, "FoldedCalls", []edit{{"kernels/cuda/src/pack.cu", "at / a.fold.channels * a.fold.pixel + at % a.fold.channels;", "at;"}}},
	{"the padding of a folded kernel has weights of the next tap", calls, "FoldedCalls", []edit{{"kernels/cuda/src/conv.cuh", "return tap < f.taps && channel < f.channels ? tap * f.channels + channel : -1;", "return tap < f.taps ? tap * f.channels + channel : -1;"}}},
	{"the second of two rows of BatchNorm is the first one again", calls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", "fetch(second, at + step);", "fetch(second, at);"}}},
	{"threads of BatchNorm with fewer rows count as much as others", calls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", "merge(m, (double)rows_of_thread(p, y),", "merge(m, (double)rows_of_thread(p, 0),"}}},
	{"sums of the gradient of BatchNorm pass what the ReLU stops", calls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", `if (relu.value) mask(row);
#pragma unroll`, "#pragma unroll"}}},
	{"no barrier before sums of BatchNorm's threads are read", watchedCalls, "RandomCalls", []edit{{"kernels/cuda/src/norm.cu", `threadIdx.x * V + k] = mine[k];
	__syncthreads();`, "threadIdx.x * V + k] = mine[k];"}}},
	{"logits behind a row's last vector are left out of the loss", calls, "RandomCalls", []edit{{"kernels/cuda/src/loss.cu", `	if (t < a.classes - s.tail) take_one<T>(p, logits, s.tail + t);
`, ""}}},
	{"logits before a row's first vector have no gradient", calls, "RandomCalls", []edit{{"kernels/cuda/src/loss.cu", `		if (t < s.head) gradient_of_one<T>(a, g, base, t);
`, ""}}},
	{"the sum of exponentials keeps an earlier, smaller top", calls, "RandomCalls", []edit{{"kernels/cuda/src/loss.cu", `	p.sum = rescaled(p.sum, p.top.v, most);
`, ""}}},
	{"sums of lanes are added as if they had one top", calls, "RandomCalls", []edit{{"kernels/cuda/src/loss.cu", "double sum = rescaled(p.sum, p.top.v, top.v);", "double sum = p.sum;"}}},
	{"attention on tensor cores scales half of its earlier results", calls, "FlashForward", []edit{{"kernels/cuda/src/flashforward.cuh", "r.o[n][2 * i] *= factor, r.o[n][2 * i + 1] *= factor;", "r.o[n][2 * i] *= factor;"}}},
	{"attention on tensor cores keeps the sum of an earlier top", calls, "FlashForward|FlashLarge", []edit{{"kernels/cuda/src/flashforward.cuh", "r.sum[i] = r.sum[i] * factor + sum;", "r.sum[i] = r.sum[i] + sum;"}}},
	{"a value that is not finite reaches queries ahead of it", calls, "FlashNonFinite", []edit{{"kernels/cuda/src/flashforward.cuh", "if (!apart) return add_values", "if (true) return add_values"}}},
	{"a key has no gradient from its own query", calls, "AttentionGradients", []edit{{"kernels/cuda/src/flashbackward.cuh", "(KEYS ? moving < still : still < moving);", "(KEYS ? moving <= still : still < moving);"}}},
	{"32 bits for the offset of a row: layer norm of a warp", calls, "RowNormBeyond32", []edit{{"kernels/cuda/src/sequence.cu", "if (c < a.channels) load(x[j], GLOBAL(const T, a.x) + r * a.channels + c);", "if (c < a.channels) load(x[j], GLOBAL(const T, a.x) + (int)(r * a.channels + c));"}}},
	{"32 bits for the offset of a row: gradient of the layer norm of a warp", calls, "RowNormBeyond32", []edit{{"kernels/cuda/src/sequence.cu", `if (c >= a.channels) continue;
			load(x[j], GLOBAL(const T, a.x) + r * a.channels + c);`, `if (c >= a.channels) continue;
			load(x[j], GLOBAL(const T, a.x) + (int)(r * a.channels + c));`}}},
	{"rows beyond the grid are left out: layer norm of a warp", calls, "RowsBeyond", []edit{{"kernels/cuda/src/sequence.cu", `r += (i64)gridDim.x * ROW_WARPS) {
		values<V> x[N];`, `r += a.rows) {
		values<V> x[N];`}}},
	{"32 bits for the offset of a pixel of a pool", calls, "PoolsBeyond32", []edit{{"kernels/cuda/src/pool.cu", "return (((i64)n * h + y) * w + x) * channels + c; }", "return (int)((((i64)n * h + y) * w + x) * channels + c); }"}}},
	{"32 bits for the row of a folded image", calls, "FoldedBeyond32", []edit{{"kernels/cuda/src/pack.cu", "a.n <= 0xffffffffll ? (unsigned)i / (unsigned)a.width : i / a.width;", "(unsigned)i / (unsigned)a.width;"}}},
	{"a max pool passes NaNs over", calls, "MaximaOf", []edit{{"kernels/cuda/src/pool.cu", "|| v.v[k] > best.v[k] || v.v[k] != v.v[k])", "|| v.v[k] > best.v[k])"}}},
	{"wgmma: copies to shared memory are not shown to it", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `		show_copies();
`, ``}}},
	{"wgmma: copies are shown to it before they are waited for", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `		wait_groups<AHEAD - 1>();
		show_copies();
`, `		show_copies();
		wait_groups<AHEAD - 1>();
`}}},
	{"wgmma: copies are waited for one slab late", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `wait_groups<AHEAD - 1>();`, `wait_groups<AHEAD>();`}}},
	{"wgmma: products are waited for one slab late", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `wait_products<1>();`, `wait_products<2>();`}}},
	{"wgmma: the last products are not waited for", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `	wait_products<0>();
`, ``}}},
	{"wgmma: sums are written before products without a fence", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `	begin_products();
`, ``}}},
	{"wgmma: copies go to a stage whose products are under way", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `stage < 2 ? stage + AHEAD : stage - 2`, `stage < 1 ? stage + AHEAD + 1 : stage - 1`}}},
	{"wgmma: no barrier between a slab's arrival and its products", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `		show_copies();
		__syncthreads();
`, `		show_copies();
`}}},
	{"wgmma: vectors lie without the swizzle", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `(lane ^ line % LANES) * 16`, `lane * 16`}}},
	{"wgmma: a descriptor has the swizzle of 64 bytes", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cuh", `(u64)(ATOM >> 4) << 32 | 1ull << 62`, `(u64)(ATOM >> 4) << 32 | 2ull << 62`}}},
	{"wgmma: the offsets of a descriptor are swapped", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cuh", `(u64)(apart >> 4) << 16 | (u64)(ATOM >> 4) << 32`, `(u64)(apart >> 4) << 32 | (u64)(ATOM >> 4) << 16`}}},
	{"wgmma: stages begin where shared memory begins", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cuh", `	return memory + (ATOM - at % ATOM) % ATOM;`, `	return memory + at % 1;`}}},
	{"wgmma: both groups of warps multiply the first one's rows", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", ` + threadIdx.x / GROUP * 64 * LINE`, ``}}},
	{"wgmma: steps of a slab are half as far apart", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `STEP * LINE : STEP * 2`, `STEP * LINE : STEP`}}},
	{"wgmma: a weight gradient is multiplied as if its lines were rows", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `run<true>`, `run<false>`}}},
	{"wgmma: columns of a weight gradient are taken from the first 64", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cu", `in(memory, DEEP * LINE)`, `in(memory, 0)`}}},
	{"wgmma: shared memory has no room for its alignment", calls, "RandomWarpgroup", []edit{{"kernels/cuda/engine.go", "slices.Index(e.tiles, t)] + atomBytes", "slices.Index(e.tiles, t)]"}}},
	{"wgmma: channels are no whole vectors", calls, "WarpgroupsAreChosen", []edit{{"kernels/cuda/candidates.go", "counts%warpgroups.vector == 0", "counts > 0"}}},
	{"wgmma: it adds to registers that are only written", calls, "RandomWarpgroup", []edit{{"kernels/cuda/src/wgmma.cuh", `OPERAND("+f", (c)[0])`, `OPERAND("=f", (c)[0])`}}},
}
