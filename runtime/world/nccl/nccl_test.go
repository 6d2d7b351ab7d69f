//go:build cuda && linux && amd64

package nccl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/internal/freeport/freeporttest"
	device "plimsoll/runtime"
	"plimsoll/runtime/cuda/cudatest"
	"plimsoll/runtime/cuda/driver"
	"plimsoll/runtime/null"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/nccl/fake"
)

// scenario names what a process does that a test has started; see TestMain.
const scenario = "PLIMSOLL_NCCL_SCENARIO"

// scenarios maps names to functions that each process of a world runs, with its fabric and its GPU.
var scenarios = map[string]func(w *world.World, f *fabric, g *gpu) error{
	"order": order, "few": few, "killed": killed, "closed": closed, "sizes": sizes, "again": again, "lists": lists, "memory": memory, "crossed": crossed,
	"sums": sums, "some sums": someSums, "other sums": otherSums, "other groups": otherGroups, "killed sums": killedSums,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(scenario); name != "" {
		os.Exit(cudatest.Judge(play(name)))
	}
	os.Exit(m.Run())
}

// limit is how long what never happens is waited for. Where it is a fault that is waited for, it is short.
var limit = 30 * time.Second

const short = "PLIMSOLL_NCCL_SHORT"

// play is a process of a world.
func play(name string) int {
	if err := join(name); err != nil {
		fmt.Println("rank", os.Getenv("RANK"), "ends:", err)
		return 1
	}
	return 0
}

func join(name string) error {
	if os.Getenv(short) != "" {
		limit = 4 * time.Second
	}
	create, err := Load()
	if err != nil {
		return err
	}
	g, err := newGPU()
	if err != nil {
		return err
	}
	id, ok, err := world.Identify(world.Identity{Rank: -1, LocalRank: -1}, os.Getenv)
	if err != nil || !ok {
		return fmt.Errorf("no identity: %w", err)
	}
	w, err := world.Join(context.Background(), world.Options{Identity: id, Timeout: limit, Heartbeat: limit / 8, Patience: limit})
	if err != nil {
		return err
	}
	f := create(w).(*fabric)
	if err := scenarios[name](w, f, g); err != nil {
		w.Fail(err)
		return errors.Join(err, f.Close())
	}
	if err := w.Leave(context.Background()); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// gpu is the first one, with memory that is given out and not taken back.
type gpu struct {
	device.Device
	context cu.CUContext
}

func newGPU() (*gpu, error) {
	if s := driver.Load(); s.Err != nil {
		return nil, s.Err
	}
	d, err := cu.GetDevice(0)
	if err != nil {
		return nil, err
	}
	context, err := d.RetainPrimaryCtx()
	return &gpu{context: context}, err
}

// run does what needs the context.
func (g *gpu) run(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(g.context); err != nil {
		return err
	}
	return do()
}

// Run, Free and Enqueue implement runtime.Enqueuer. A span's offset is an address.
func (g *gpu) Run(do func() error) error { return g.run(do) }

func (g *gpu) Free() (bytes int64, err error) {
	return bytes, g.run(func() error { bytes, _, err = cu.MemInfo(); return err })
}

func (g *gpu) Enqueue(name string, s device.Span, do func(address, stream uintptr) error) (device.Launch, error) {
	return enqueued{name, uintptr(s.Offset), do}, nil
}

type enqueued struct {
	name    string
	address uintptr
	do      func(address, stream uintptr) error
}

func (l enqueued) Kernel() string { return l.name }

// launch launches on the stream.
func (q queue) launch(l device.Launch, err error) error {
	if err != nil {
		return err
	}
	return q.run(func() error { return l.(enqueued).do(l.(enqueued).address, q.handle()) })
}

// spanOf is memory of the GPU.
func spanOf(p cu.DevicePtr, offset, bytes int) device.Span {
	return device.Span{Offset: int64(p) + int64(offset), Bytes: int64(bytes)}
}

// on returns ways whose ends are on the GPU.
func (g *gpu) on(ways []world.Way) (all []world.Way) {
	for _, x := range ways {
		x.Device = g
		all = append(all, x)
	}
	return all
}

// adding returns lines with the GPU.
func (g *gpu) adding(lines []world.Line) (all []world.Line) {
	for _, x := range lines {
		x.Device = g
		all = append(all, x)
	}
	return all
}

// queue is a stream, and what it moves.
type queue struct {
	*gpu
	cu.Stream
}

func (g *gpu) queue() (q queue, err error) {
	q.gpu = g
	err = g.run(func() error { q.Stream, err = cu.MakeStream(cu.NonBlocking); return err })
	return q, err
}

func (q queue) handle() uintptr { return *(*uintptr)(unsafe.Pointer(&q.Stream)) }

// memory is n bytes of the GPU's, with content if there is some.
func (g *gpu) memory(n int, content []byte) (p cu.DevicePtr, err error) {
	err = g.run(func() error {
		if p, err = cu.MemAlloc(int64(max(n, 1))); err == nil && len(content) > 0 {
			err = cu.MemcpyHtoD(p, unsafe.Pointer(&content[0]), int64(n))
		}
		return err
	})
	return p, err
}

// wait waits until the stream is idle, and says when the world has ended meanwhile.
func (q queue) wait(w *world.World, patience time.Duration) error {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		err := q.run(q.Query)
		if !errors.Is(driver.Of(err), driver.NotReady) {
			return errors.Join(err, context.Cause(w.Context()))
		}
	}
	return fmt.Errorf("a message has not come within %v", patience)
}

func content(way, k, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(way*31 + k*7 + i)
	}
	return p
}

// send sends messages of some lengths on streams by turns.
func (g *gpu) send(w *world.World, f *fabric, way int, lengths []int) error {
	q, err := g.queues(2)
	if err != nil {
		return err
	}
	for k, n := range lengths {
		p, err := g.memory(n, content(way, k, n))
		if err != nil {
			return err
		}
		if err := q[k%2].launch(f.Send(way, spanOf(p, 0, n))); err != nil {
			return err
		}
	}
	return errors.Join(q[0].wait(w, time.Minute), q[1].wait(w, time.Minute))
}

// receive takes them, and looks at them when all have come.
func (g *gpu) receive(w *world.World, f *fabric, way int, lengths []int, patience time.Duration) error {
	q, err := g.queues(2)
	if err != nil {
		return err
	}
	places := make([]cu.DevicePtr, len(lengths))
	for k, n := range lengths {
		if places[k], err = g.memory(n, nil); err != nil {
			return err
		}
		if err := q[k%2].launch(f.Receive(way, spanOf(places[k], 0, n))); err != nil {
			return err
		}
	}
	if err := errors.Join(q[0].wait(w, patience), q[1].wait(w, patience)); err != nil {
		return fmt.Errorf("way %d: %w", way, err)
	}
	for k, n := range lengths {
		got := make([]byte, n)
		if n > 0 {
			if err := g.run(func() error { return cu.MemcpyDtoH(unsafe.Pointer(&got[0]), places[k], int64(n)) }); err != nil {
				return err
			}
		}
		if !bytes.Equal(got, content(way, k, n)) {
			return fmt.Errorf("message %d of way %d has other bytes", k, way)
		}
	}
	return nil
}

func (g *gpu) queues(n int) ([]queue, error) {
	all := make([]queue, n)
	for i := range all {
		q, err := g.queue()
		if err != nil {
			return nil, err
		}
		all[i] = q
	}
	return all, nil
}

// needEmulator skips a test where there is a real GPU, on which NCCL is not played by the fake.
func needEmulator(t testing.TB) {
	t.Helper()
	if s := driver.Load(); s.Err != nil || !cudatest.Emulated() {
		t.Skip("needs the emulated driver: make emulator, and LD_LIBRARY_PATH=out/emulator")
	}
}

// processes plays a scenario with n processes, of which each has what environment gives it, and returns what each prints.
func processes(t testing.TB, n int, name string, environment func(rank int) []string) (out []string, ok bool) {
	t.Helper()
	needEmulator(t)
	_, port, _ := net.SplitHostPort(freeporttest.Address(t))
	library := fake.Build(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, ok = make([]string, n), true
	var all sync.WaitGroup
	var mu sync.Mutex
	for rank := range n {
		all.Go(func() {
			c := exec.CommandContext(ctx, os.Args[0])
			c.Env = append(os.Environ(), scenario+"="+name, variable+"="+library, "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "RANK="+strconv.Itoa(rank),
				"WORLD_SIZE="+strconv.Itoa(n), "PLIMSOLL_EMULATOR_CHAOS=1", "PLIMSOLL_EMULATOR_POISON=1", "PLIMSOLL_EMULATOR_MEMORY=134217728")
			if environment != nil {
				c.Env = append(c.Env, environment(rank)...)
			}
			text, err := c.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			out[rank], ok = string(text), ok && err == nil
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Errorf("%s: processes hang", name)
	}
	if text := strings.Join(out, ""); strings.Contains(text, "fake NCCL: ") || strings.Contains(text, "panic") {
		t.Errorf("%s: %s", name, text)
	}
	return out, ok
}

// Messages of random sizes on random ways, all at once and each way's on two streams, arrive whole and in order; what was sent is
// counted to the byte. A second list of ways is opened beside the first.
func TestMessagesArriveInOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4} {
		if out, ok := processes(t, n, "order", nil); !ok || strings.Count(strings.Join(out, ""), "all in order\n") != n {
			t.Errorf("%d processes: %s", n, out)
		}
	}
}

func order(w *world.World, f *fabric, g *gpu) error {
	const most, messages = 300 << 10, 24
	r := rand.New(rand.NewPCG(1, 2))
	var ways []world.Way
	lengths := [][]int{}
	sent, count := int64(0), int64(0)
	for i := range 8 {
		from := r.IntN(w.Size())
		x := world.Way{Name: fmt.Sprint("w", i), From: from, To: (from + 1 + r.IntN(w.Size()-1)) % w.Size(), Bytes: most}
		ways = append(ways, x)
		var all []int
		for range messages {
			n := r.IntN(1 << r.IntN(19))
			if all = append(all, n); x.From == w.Rank() {
				sent, count = sent+int64(n), count+1
			}
		}
		lengths = append(lengths, all)
	}
	for range 2 {
		if err := f.Open(g.on(ways)); err != nil {
			return err
		}
		var all sync.WaitGroup
		errs := make([]error, len(ways))
		for way, x := range ways {
			switch w.Rank() {
			case x.From:
				all.Go(func() { errs[way] = g.send(w, f, way, lengths[way]) })
			case x.To:
				all.Go(func() { errs[way] = g.receive(w, f, way, lengths[way], time.Minute) })
			}
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	if m, b := f.Sent(); m != 2*count || b != 2*sent {
		return fmt.Errorf("sent %d messages of %d bytes, want %d of %d", m, b, 2*count, 2*sent)
	}
	fmt.Println("all in order")
	return nil
}

// Messages are given to the GPU without waiting for the other end's process: two processes that turn to their ways in opposite orders
// do not wait for each other.
func TestProcessesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	if out, ok := processes(t, 2, "crossed", nil); !ok {
		t.Error(out)
	}
}

func crossed(w *world.World, f *fabric, g *gpu) error {
	ways := []world.Way{{Name: "a", To: 1, Bytes: 9}, {Name: "b", To: 1, Bytes: 9}, {Name: "c", To: 1, Bytes: 9}}
	if err := f.Open(g.on(ways)); err != nil {
		return err
	}
	by, order := f.send, []int{0, 1, 2}
	if w.Rank() == 1 {
		by, order = f.receive, []int{2, 1, 0}
	}
	var errs []error
	p, err := g.memory(9, nil)
	for _, way := range order {
		q, failed := g.queue()
		errs = append(errs, err, failed, g.run(func() error { return by(way, uintptr(p), 9, q.handle()) }))
		defer func() { _ = q.wait(w, limit) }()
	}
	_, err = w.AllGather(context.Background(), nil)
	return errors.Join(append(errs, err)...)
}

// one is a way with messages of a few bytes.
var one = []world.Way{{Name: "there", To: 1, Bytes: 4 << 10}}

// few sends six messages, which do not all come where there is a fault.
func few(w *world.World, f *fabric, g *gpu) error {
	if err := f.Open(g.on(one)); err != nil {
		return err
	}
	lengths := []int{2000, 2000, 2000, 2000, 2000, 2000}
	var err error
	if w.Rank() == 0 {
		err = g.send(w, f, 0, lengths)
	} else {
		err = g.receive(w, f, 0, lengths, limit)
	}
	if _, gather := w.AllGather(context.Background(), nil); err == nil { // the other has seen everything
		err = gather
	}
	return err
}

// Faults of NCCL are found, by NCCL's words or by the bits, and end all processes.
func TestFaultsAreFound(t *testing.T) {
	everybody := func(fault string) func(int) []string {
		return func(int) []string { return []string{short + "=1", fake.Variable + "=" + fault} }
	}
	second := func(fault string) func(int) []string {
		return func(rank int) []string {
			return []string{short + "=1", fake.Variable + "=" + strings.Repeat(fault, rank)}
		}
	}
	for name, c := range map[string]struct {
		environment func(rank int) []string
		want        string
	}{
		"lost":            {everybody("lost=3"), `a message has not come within 4s`},
		"first lost":      {everybody("lost=0"), `way there: the first message waits for rank [01]`},
		"swapped":         {everybody("swapped=2"), `message 1 of way 0 has other bytes`},
		"flipped":         {everybody("flipped=6"), `message 5 of way 0 has other bytes`},
		"async, sender":   {everybody("async=4"), `way there at rank [01], with rank [01] on \S+: nccl: (a message|ncclSend|ncclRecv): unhandled system error: a planted error of the network`},
		"async, receiver": {second("async=2"), `way there at rank 1, with rank 0 on \S+: nccl: (a message|ncclRecv): unhandled system error: a planted error of the network`},
		"never ready":     {everybody("init"), `way there: ncclCommInitRankConfig waits for rank [01] on \S+: it has not come within 4s`},
		"one never ready": {second("init"), `way there: ncclCommInitRankConfig waits for rank [01] on \S+: it has not come within 4s`},
		"shared GPU":      {everybody("duplicate"), `two ranks use one GPU: give each rank one of its own, or set NCCL_MULTI_RANK_GPU_ENABLE=1 for all ranks with NCCL 2.30 or later \(this is 2\.32\.3\)`},
		"another version": {second("version=22703"), `differ in NCCL's version: 2\.32\.3 and 2\.27\.3`},
		"too old":         {everybody("version=21705"), `is NCCL 2\.17\.5, and 2\.18 or later is needed`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, ok := processes(t, 2, "few", c.environment)
			if text := strings.Join(out, ""); ok || !regexp.MustCompile(c.want).MatchString(text) {
				t.Errorf("no %q in %s", c.want, text)
			}
			for rank, text := range out {
				if !strings.Contains(text, "ends: ") {
					t.Errorf("rank %d goes on: %s", rank, text)
				}
			}
		})
	}
	if out, ok := processes(t, 2, "few", nil); !ok {
		t.Errorf("without a fault: %s", out)
	}
}

// Who waits for a rank that dies is told which, and its streams end.
func TestDeathEndsWhatWaits(t *testing.T) {
	t.Parallel()
	for range 3 {
		out, _ := processes(t, 2, "killed", nil)
		if !regexp.MustCompile(`ended: .*rank 1 on \S+ died: its connection was lost`).MatchString(out[0]) {
			t.Error(out)
		}
	}
}

func killed(w *world.World, f *fabric, g *gpu) error {
	if err := f.Open(g.on([]world.Way{{Name: "silent", From: 1, To: 0, Bytes: 9}})); err != nil {
		return err
	}
	if _, err := w.AllGather(context.Background(), nil); err != nil { // both have opened it
		return err
	}
	if w.Rank() == 1 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err := g.receive(w, f, 0, []int{9, 9}, 30*time.Second)
	fmt.Println("ended:", strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	return err
}

// Close ends streams that wait, and what comes later is refused.
func TestCloseEndsWhatWaits(t *testing.T) {
	t.Parallel()
	out, _ := processes(t, 2, "closed", nil)
	if text := strings.Join(out, ""); strings.Count(text, "idle: <nil>, later: nccl: the fabric is closed\n") != 2 {
		t.Error(text)
	}
}

func closed(w *world.World, f *fabric, g *gpu) error {
	ways := []world.Way{{Name: "never taken", To: 1, Bytes: 16 << 20}, {Name: "never sent", To: 1, Bytes: 9}}
	if err := f.Open(g.on(ways)); err != nil {
		return err
	}
	q, err := g.queue()
	if err != nil {
		return err
	}
	p, err := g.memory(16<<20, nil)
	if err != nil {
		return err
	}
	move := func() error {
		if w.Rank() == 0 {
			return f.send(0, uintptr(p), 16<<20, q.handle())
		}
		return f.receive(1, uintptr(p), 9, q.handle())
	}
	if err := g.run(move); err != nil {
		return err
	}
	if _, err := w.AllGather(context.Background(), nil); err != nil { // both have begun
		return err
	}
	err = f.Close()
	fmt.Printf("idle: %v, later: %v\n", q.wait(w, 30*time.Second), g.run(move))
	_, _ = w.AllGather(context.Background(), nil)
	return errors.Join(err, errors.New("no good end"))
}

// Messages that are too long, and ways that are not here, are refused at once; where the ends differ otherwise, the failure of either
// ends both.
func TestSizes(t *testing.T) {
	t.Parallel()
	out, _ := processes(t, 2, "sizes", nil)
	for _, want := range []string{
		"a message of 101 bytes on way narrow, of at most 100", "a message of -1 bytes on way narrow", "nccl: no open way 0 ends at rank 0",
		"nccl: no open way 1 begins at rank 0", "rank 1 ends: rank 0 on",
	} {
		if text := strings.Join(out, ""); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

func sizes(w *world.World, f *fabric, g *gpu) error {
	if err := f.Open(g.on([]world.Way{{Name: "narrow", To: 1, Bytes: 100}})); err != nil {
		return err
	}
	q, err := g.queue()
	if err != nil {
		return err
	}
	p, err := g.memory(100, nil)
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		err := g.run(func() error { return f.receive(0, uintptr(p), 8, q.handle()) })
		_, _ = w.AllGather(context.Background(), nil)
		<-w.Context().Done()
		return errors.Join(context.Cause(w.Context()), err, q.wait(w, 30*time.Second))
	}
	err = g.run(func() error {
		return errors.Join(f.send(0, uintptr(p), 101, 0), f.send(0, uintptr(p), -1, 0), f.receive(0, uintptr(p), 1, 0), f.send(1, uintptr(p), 1, 0), f.send(0, uintptr(p), 12, q.handle()))
	})
	_, _ = w.AllGather(context.Background(), nil)
	return err
}

// Ways within a process, of devices that are no GPUs, and lists that differ, are refused.
func TestWaysThatCannotBe(t *testing.T) {
	t.Parallel()
	out, _ := processes(t, 2, "again", nil)
	if text := strings.Join(out, ""); strings.Count(text, "way home begins and ends at rank 1: the GPUs of one process copy to each other without NCCL") < 2 {
		t.Error(text)
	}
	if text := strings.Join(out, ""); strings.Count(text, "tape is no GPU, and NCCL moves messages between GPUs") < 2 {
		t.Error(text)
	}
	out, _ = processes(t, 2, "lists", nil)
	if text := strings.Join(out, ""); strings.Count(text, "differ in the list of ways: 1 ways ") < 2 {
		t.Error(text)
	}
}

func again(_ *world.World, f *fabric, g *gpu) error {
	tape, err := null.New(null.Config{Name: "tape"})
	return errors.Join(err, f.Open(g.on([]world.Way{{Name: "home", From: 1, To: 1}})), f.Open([]world.Way{{Name: "there", To: 1, Device: tape}}))
}

func lists(w *world.World, f *fabric, g *gpu) error {
	return f.Open(g.on(one[:1-w.Rank()]))
}

// A message takes no memory of Go's.
func TestMessagesTakeNoMemory(t *testing.T) {
	t.Parallel()
	if out, ok := processes(t, 2, "memory", nil); !ok {
		t.Error(out)
	}
}

func memory(w *world.World, f *fabric, g *gpu) error {
	if err := f.Open(g.on(one)); err != nil {
		return err
	}
	q, err := g.queue()
	if err != nil {
		return err
	}
	p, err := g.memory(100, nil)
	if err != nil {
		return err
	}
	by := map[int]func(int, uintptr, int64, uintptr) error{0: f.send, 1: f.receive}[w.Rank()]
	err = g.run(func() error {
		var failed error
		allocations := testing.AllocsPerRun(300, func() {
			if err := by(0, uintptr(p), 8, q.handle()); err != nil {
				failed = err
			}
		})
		if failed == nil && allocations > 0.5 { // beats take some
			failed = fmt.Errorf("%v allocations", allocations)
		}
		return failed
	})
	return errors.Join(err, q.wait(w, 30*time.Second))
}
