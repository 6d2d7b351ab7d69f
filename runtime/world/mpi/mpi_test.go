//go:build cgo && unix

package mpi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"plimsoll/internal/freeport/freeporttest"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/tcp"
)

// scenario names what a process does that mpiexec has started; see TestMain.
const scenario = "PLIMSOLL_MPI_SCENARIO"

// scenarios holds functions that the processes of a world run, each process with its fabric.
var scenarios = map[string]func(w *world.World, f *world.HostBytes) error{
	"order": order, "one thread": order, "sizes": sizes, "huge": huge, "closed": closed, "lost": lost, "speed": speed, "lists": lists, "ends": ends, "memory": memory,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(scenario); name != "" {
		Exit(play(name))
	}
	os.Exit(m.Run())
}

// play is a process of a world.
func play(name string) int {
	err := func() error {
		if name == "one thread" {
			level = 1024 // MPI_THREAD_FUNNELED
		}
		create, err := Load()
		if err != nil {
			return err
		}
		id, ok, err := world.Identify(world.Identity{Rank: -1, LocalRank: -1}, os.Getenv)
		if err != nil || !ok {
			return fmt.Errorf("no identity: %w", err)
		}
		if os.Getenv("REVERSED") != "" { // MPI's ranks are others
			id.Rank = id.Size - 1 - id.Rank
		}
		w, err := world.Join(context.Background(), world.Options{Identity: id, Timeout: 20 * time.Second, Patience: 5 * time.Second})
		if err != nil {
			return err
		}
		f := create(w).(*world.HostBytes)
		if err := scenarios[name](w, f); err != nil {
			w.Fail(err)
			return err
		}
		if err := w.Leave(context.Background()); err != nil {
			return err
		}
		err = f.Close()
		if name == "ends" {
			time.Sleep(time.Duration(w.Size()-w.Rank()) * 20 * time.Millisecond) // the launcher sees one after the other
		}
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mpiexec returns the path of mpiexec of the library for tests. Without a library, tests are skipped; make test-mpi gets one.
func mpiexec(t testing.TB) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skip("no MPI: give the path of a libmpi_abi.so.1 in $" + variable + ", with mpiexec in ../bin, or use make test-mpi")
	}
	program := filepath.Join(filepath.Dir(path), "..", "bin", "mpiexec")
	if _, err := os.Stat(program); err != nil {
		t.Fatal(err)
	}
	return program
}

// processes plays a scenario with n processes, and returns what they print.
func processes(t testing.TB, n int, name string, env ...string) (out string, err error) {
	t.Helper()
	_, port, _ := net.SplitHostPort(freeporttest.Address(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := []string{"-n", strconv.Itoa(n), os.Args[0]}
	if name != "ends" { // all say what they have to, whoever fails first
		args = append([]string{"-disable-auto-cleanup"}, args...)
	}
	c := exec.CommandContext(ctx, mpiexec(t), args...)
	c.Env = append(os.Environ(), scenario+"="+name, "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
	c.Env = append(c.Env, env...)
	text, err := c.CombinedOutput()
	return string(text), err
}

// Messages of random sizes on random ways, all at once, arrive whole and in order; what was sent is counted to the byte. MPI's ranks may be
// others than the world's, and the library may let in a single thread.
func TestMessagesArriveInOrder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"order", "one thread"} {
		for _, reversed := range []string{"", "1"} {
			if out, err := processes(t, 3, name, "REVERSED="+reversed); err != nil || strings.Count(out, "all in order\n") != 3 {
				t.Errorf("%s, reversed %q: %v: %s", name, reversed, err, out)
			}
		}
	}
}

func order(w *world.World, f *world.HostBytes) error {
	const most, messages = 300 << 10, 40
	r := rand.New(rand.NewPCG(1, 2))
	var ways []world.Way
	lengths := [][]int{}
	sent, count := int64(0), int64(0)
	for i := range 12 {
		x := world.Way{Name: fmt.Sprint("w", i), From: r.IntN(w.Size()), To: r.IntN(w.Size()), Bytes: most}
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
	for range 2 { // the second list's tags are others
		if err := f.Open(ways); err != nil {
			return err
		}
		if err := exchange(w.Rank(), f, ways, lengths); err != nil {
			return err
		}
	}
	if m, b := f.Sent(); m != 2*count || b != 2*sent {
		return fmt.Errorf("sent %d messages of %d bytes, want %d of %d", m, b, 2*count, 2*sent)
	}
	fmt.Println("all in order")
	return nil
}

// exchange sends and receives on all ways at once.
func exchange(rank int, f *world.HostBytes, ways []world.Way, lengths [][]int) error {
	var all sync.WaitGroup
	errs := make([]error, 2*len(ways))
	content := func(way, k, n int) []byte { return bytes.Repeat([]byte{byte(way*7 + k)}, n) }
	for way, x := range ways {
		if x.From == rank {
			all.Go(func() {
				for k, n := range lengths[way] {
					errs[2*way] = errors.Join(errs[2*way], f.SendBytes(way, content(way, k, n)))
				}
			})
		}
		if x.To == rank {
			all.Go(func() {
				for k, n := range lengths[way] {
					p := make([]byte, n)
					if err := f.ReceiveBytes(way, p); err != nil || !bytes.Equal(p, content(way, k, n)) {
						errs[2*way+1] = fmt.Errorf("message %d of way %d: %w", k, way, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// Processes that end well are seen to by the launcher: MPI_Finalize is followed by C's exit.
func TestGoodEnds(t *testing.T) {
	t.Parallel()
	for range 10 {
		if out, err := processes(t, 4, "ends"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func ends(_ *world.World, f *world.HostBytes) error { return f.Open(nil) }

// A message of another size than expected is an error with both, and the fabric moves nothing more on that way.
func TestSizes(t *testing.T) {
	t.Parallel()
	out, _ := processes(t, 2, "sizes")
	for _, want := range []string{
		"way wide: rank 0 sent a message of 12 bytes, rank 1 expected 8", "way narrow: rank 0 sent a message of 5 bytes, rank 1 expected 8",
		"a message of 101 bytes on way narrow, of at most 100", "mpi: no open way 1 ends at rank 0",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

func sizes(w *world.World, f *world.HostBytes) error {
	ways := []world.Way{{Name: "wide", To: 1, Bytes: 100}, {Name: "narrow", To: 1, Bytes: 100}}
	if err := f.Open(ways); err != nil {
		return err
	}
	if w.Rank() == 0 {
		err := errors.Join(f.SendBytes(0, make([]byte, 12)), f.SendBytes(1, make([]byte, 5)), f.ReceiveBytes(1, nil), f.SendBytes(1, make([]byte, 101)))
		_, _ = w.AllGather(context.Background(), nil)
		return err
	}
	err := errors.Join(f.ReceiveBytes(0, make([]byte, 8)), f.ReceiveBytes(1, make([]byte, 8)))
	fmt.Println(err)
	if again := f.ReceiveBytes(0, make([]byte, 12)); again == nil {
		fmt.Println("the way goes on")
	}
	_, _ = w.AllGather(context.Background(), nil)
	return err
}

// A message longer than an int counts arrives.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	out, err := processes(t, 2, "huge")
	if err != nil || strings.Count(out, "3221225475 bytes\n") != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

func huge(w *world.World, f *world.HostBytes) error {
	const length, window = 3<<30 + 3, 16 << 20
	p, err := mirrored(length, window)
	if err != nil {
		return err
	}
	if err := f.Open([]world.Way{{Name: "long", To: 1, Bytes: length}}); err != nil {
		return err
	}
	if w.Rank() == 0 {
		copy(p[length%window-3:], "end")
		err = f.SendBytes(0, p)
	} else if err = f.ReceiveBytes(0, p); err == nil && string(p[length-3:]) != "end" {
		err = fmt.Errorf("it ends with %q", p[length-3:])
	}
	if err == nil {
		fmt.Println(len(p), "bytes")
	}
	return err
}

// mirrored returns memory of a length that takes that of a window, which it shows again and again.
func mirrored(length, window int) ([]byte, error) {
	file, err := os.CreateTemp("", "window")
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = os.Remove(file.Name()), file.Close() }() // the memory stays
	if err := file.Truncate(int64(window)); err != nil {
		return nil, err
	}
	whole := (length + window - 1) / window * window
	p, err := unix.Mmap(-1, 0, whole, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	for at := 0; at < whole && err == nil; at += window {
		_, err = unix.MmapPtr(int(file.Fd()), 0, unsafe.Pointer(&p[at]), uintptr(window), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	}
	if err != nil {
		return nil, err
	}
	return p[:length], nil
}

// A message takes no memory of Go's.
func TestMessagesTakeNoMemory(t *testing.T) {
	t.Parallel()
	if out, err := processes(t, 2, "memory"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func memory(w *world.World, f *world.HostBytes) error {
	const most = 1 << 20
	if err := f.Open([]world.Way{{Name: "there", To: 1, Bytes: most}, {Name: "back", From: 1, To: 0, Bytes: most}}); err != nil {
		return err
	}
	for _, n := range []int{0, 8, most} {
		p, errs := make([]byte, n), error(nil)
		allocations := testing.AllocsPerRun(500, func() { errs = cmp.Or(errs, pingPong(w.Rank(), f, p)) })
		if errs != nil || allocations > 0.5 { // beats take some
			return fmt.Errorf("%d bytes: %v allocations, %w", n, allocations, errs)
		}
	}
	return nil
}

// Close ends what waits, though MPI has begun it.
func TestCloseEndsWhatWaits(t *testing.T) {
	t.Parallel()
	if out, _ := processes(t, 2, "closed"); strings.Count(out, "ended: mpi: the fabric is closed\n") != 2 {
		t.Error(out)
	}
}

func closed(w *world.World, f *world.HostBytes) error {
	if err := f.Open([]world.Way{{Name: "never taken", To: 1, Bytes: 64 << 20}, {Name: "never sent", To: 1, Bytes: 9}}); err != nil {
		return err
	}
	ended := make(chan error)
	go func() {
		if w.Rank() == 0 {
			ended <- f.SendBytes(0, make([]byte, 64<<20))
		} else {
			ended <- f.ReceiveBytes(1, make([]byte, 9))
		}
	}()
	time.Sleep(50 * time.Millisecond) // it has begun, on most machines
	err := f.Close()
	fmt.Println("ended:", <-ended)
	_, _ = w.AllGather(context.Background(), nil)
	return errors.Join(err, errors.New("no good end"))
}

// Who waits for a rank that fails is told which, and why.
func TestWorldEndsWhatWaits(t *testing.T) {
	t.Parallel()
	if out, _ := processes(t, 2, "lost"); !regexp.MustCompile(`waited: rank 1 on \S+ failed: the disk is full`).MatchString(out) {
		t.Error(out)
	}
}

func lost(w *world.World, f *world.HostBytes) error {
	if err := f.Open([]world.Way{{Name: "silent", From: 1, To: 0, Bytes: 9}}); err != nil || w.Rank() == 1 {
		return errors.Join(err, errors.New("the disk is full"))
	}
	err := f.ReceiveBytes(0, make([]byte, 9))
	fmt.Println("waited:", err)
	return err
}

// Processes that differ in their lists of ways, or that no mpiexec has started together, are told so.
func TestProcessesThatDoNotMatch(t *testing.T) {
	t.Parallel()
	if out, _ := processes(t, 2, "lists"); strings.Count(out, "differ in the list of ways: 1 ways ") != 2 {
		t.Error(out)
	}
	mpiexec(t)
	var all sync.WaitGroup
	for rank := range 2 {
		all.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), scenario+"=closed", "RANK="+strconv.Itoa(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29533")
			out, err := c.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "the world has 2 processes, MPI_COMM_WORLD 1: start all with the mpiexec of MPICH") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
}

func lists(w *world.World, f *world.HostBytes) error {
	return f.Open(make([]world.Way, 1+w.Rank()))
}

// A file that is no library of the ABI is refused by one clear line.
func TestLibraries(t *testing.T) {
	// Serial: it sets environment variables.
	folder := t.TempDir()
	text := filepath.Join(folder, "text.so.1")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		filepath.Join(folder, "missing.so.1"): "missing.so.1: cannot open shared object file",
		text:                                  "text.so.1: ",
		fake(t, "none", "int MPI_Init(void) { return 0; }"):                                       "has no MPI_Abi_get_version: it is no library of MPI's standard ABI",
		fake(t, "later", "int MPI_Abi_get_version(int *a, int *b) { *a = 2; *b = 1; return 0; }"): "has version 2.1 of MPI's standard ABI, and 1 is needed",
	}
	if path := os.Getenv(variable); path != "" {
		cases[filepath.Join(filepath.Dir(path), "libmpi.so.12")] = "has version -1.-1 of MPI's standard ABI, and 1 is needed"
	}
	for path, want := range cases {
		t.Setenv(variable, path)
		_, err := Load()
		if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "in $"+variable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// fake makes a library with one function of its own, and others that do nothing.
func fake(t *testing.T, name, code string) string {
	t.Helper()
	for _, symbol := range []string{
		"Get_library_version", "Init_thread", "Finalize", "Error_string", "Comm_set_errhandler", "Comm_rank", "Comm_size", "Comm_get_attr",
		"Isend_c", "Improbe", "Get_count_c", "Imrecv_c", "Test",
	} {
		code += "\nint MPI_" + symbol + "(void) { return 0; }"
	}
	path := filepath.Join(t.TempDir(), name+".so.1")
	c := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", path)
	c.Stdin = strings.NewReader(code)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// BenchmarkTransports says how long a message takes there and back, and how fast long ones go, over MPI and over TCP.
func BenchmarkTransports(b *testing.B) {
	out, err := processes(b, 2, "speed")
	if err != nil {
		b.Fatal(err, out)
	}
	b.Log("\n" + out)
}

func speed(w *world.World, f *world.HostBytes) error {
	const most = 16 << 20
	over := tcp.New(w).(*world.HostBytes)
	for _, x := range []*world.HostBytes{f, over} {
		if err := x.Open([]world.Way{{Name: "there", To: 1, Bytes: most}, {Name: "back", From: 1, To: 0, Bytes: most}}); err != nil {
			return err
		}
	}
	for size := 8; size <= most; size *= 8 {
		rounds := max(20, min(2000, (256<<20)/size))
		each := map[*world.HostBytes][]time.Duration{}
		p := make([]byte, size)
		for range 5 {
			for _, x := range []*world.HostBytes{f, over} {
				began := time.Now()
				for range rounds {
					if err := pingPong(w.Rank(), x, p); err != nil {
						return err
					}
				}
				each[x] = append(each[x], time.Since(began)/time.Duration(2*rounds))
			}
		}
		if w.Rank() == 0 {
			slices.Sort(each[f])
			slices.Sort(each[over])
			a, b := each[f][2], each[over][2]
			fmt.Printf("%9d bytes: mpi %9.1f us %6.2f GB/s, tcp %9.1f us %6.2f GB/s\n", size, a.Seconds()*1e6, float64(size)/a.Seconds()/1e9, b.Seconds()*1e6, float64(size)/b.Seconds()/1e9)
		}
	}
	return over.Close()
}

func pingPong(rank int, f *world.HostBytes, p []byte) error {
	if rank == 0 {
		return errors.Join(f.SendBytes(0, p), f.ReceiveBytes(1, p))
	}
	return errors.Join(f.ReceiveBytes(0, p), f.SendBytes(1, p))
}
