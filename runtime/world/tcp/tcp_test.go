package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"plimsoll/internal/freeport/freeporttest"
	"plimsoll/runtime/world"
)

// together joins the ranks of a world in this process.
func together(t testing.TB, size int) []*world.World {
	t.Helper()
	address := freeporttest.Address(t)
	worlds := make([]*world.World, size)
	each(size, func(rank int) {
		o := world.Options{Identity: world.Identity{Rank: rank, Size: size, Address: address}}
		w, err := world.Join(t.Context(), o)
		if worlds[rank] = w; err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(size, func(rank int) { _ = worlds[rank].Leave(context.Background()) }) })
	return worlds
}

func each(size int, do func(rank int)) {
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() { do(rank) })
	}
	all.Wait()
}

// opened returns open fabrics of several ranks.
func opened(t testing.TB, worlds []*world.World, ways []world.Way) []*fabric {
	t.Helper()
	fabrics := make([]*fabric, len(worlds))
	each(len(worlds), func(rank int) {
		fabrics[rank] = newFabric(worlds[rank])
		if err := fabrics[rank].Open(ways); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
	t.Cleanup(func() { each(len(worlds), func(rank int) { _ = fabrics[rank].Close() }) })
	if t.Failed() {
		t.FailNow()
	}
	return fabrics
}

// Messages of random sizes on random ways, all at once, arrive whole and in order; what was sent is counted to the byte.
func TestMessagesArriveInOrder(t *testing.T) {
	t.Parallel()
	const size, most, messages = 3, 300 << 10, 40
	r := rand.New(rand.NewPCG(1, 2))
	var ways []world.Way
	lengths := [][]int{}
	want := [size]int64{}
	for i := range 12 {
		w := world.Way{Name: fmt.Sprint("w", i), From: r.IntN(size), To: r.IntN(size), Bytes: most}
		ways = append(ways, w)
		var all []int
		for range messages {
			n := r.IntN(1 << r.IntN(19))
			all, want[w.From] = append(all, n), want[w.From]+int64(n)
		}
		lengths = append(lengths, all)
	}
	fabrics := opened(t, together(t, size), ways)
	var all sync.WaitGroup
	for way, w := range ways {
		all.Go(func() {
			for k, n := range lengths[way] {
				if err := fabrics[w.From].SendBytes(way, bytes.Repeat([]byte{byte(way*messages + k)}, n)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for k, n := range lengths[way] {
				p := make([]byte, n)
				if err := fabrics[w.To].ReceiveBytes(way, p); err != nil || !bytes.Equal(p, bytes.Repeat([]byte{byte(way*messages + k)}, n)) {
					t.Errorf("message %d of way %d: %v", k, way, err)
					return
				}
			}
		})
	}
	all.Wait()
	sent := int64(0)
	for rank, f := range fabrics {
		m, b := f.Sent()
		if sent += m; b != want[rank] {
			t.Errorf("rank %d has sent %d bytes, want %d", rank, b, want[rank])
		}
	}
	if sent != int64(len(ways)*messages) {
		t.Errorf("%d messages", sent)
	}
}

// ended calls something that must fail, and returns its error.
func ended(call func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- call() }()
	return c
}

// The ends of a way that have other sizes in mind are told both, and the way is of no more use.
func TestOtherSizes(t *testing.T) {
	t.Parallel()
	ways := []world.Way{{Name: "F 0>1", From: 0, To: 1, Bytes: 100}}
	f := opened(t, together(t, 2), ways)
	if err := f[0].SendBytes(0, make([]byte, 101)); err == nil || !strings.Contains(err.Error(), "101 bytes on way F 0>1, of at most 100") {
		t.Error(err)
	}
	if err := f[0].SendBytes(0, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := f[1].ReceiveBytes(0, make([]byte, 8))
		if e, ok := errors.AsType[*world.SizeError](err); !ok || e.Sent != 7 || e.Expected != 8 || err.Error() != "way F 0>1: rank 0 sent a message of 7 bytes, rank 1 expected 8" {
			t.Error(err)
		}
	}
	for _, err := range []error{f[1].SendBytes(0, nil), f[0].ReceiveBytes(0, nil), f[0].SendBytes(1, nil), f[0].SendBytes(-1, nil)} {
		if err == nil || !strings.Contains(err.Error(), "no open way") {
			t.Error(err)
		}
	}
	if messages, n := f[0].Sent(); messages != 1 || n != 7 {
		t.Errorf("%d messages of %d bytes", messages, n)
	}
}

// Close ends what waits here; a rank that fails ends what waits anywhere, with its error and not with that of a connection.
func TestWhatWaitsEnds(t *testing.T) {
	t.Parallel()
	ways := []world.Way{{Name: "a", From: 0, To: 1, Bytes: 64 << 20}, {Name: "b", From: 1, To: 0, Bytes: 8}, {Name: "c", From: 2, To: 0, Bytes: 8}, {Name: "d", From: 0, To: 1, Bytes: 8}}
	worlds := together(t, 3)
	f := opened(t, worlds, ways)
	sends := ended(func() error { return f[0].SendBytes(0, make([]byte, 64<<20)) })
	receives := ended(func() error { return f[0].ReceiveBytes(1, make([]byte, 8)) })
	_ = f[0].Close()
	for _, c := range []<-chan error{sends, receives} {
		if err := <-c; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	// Rank 1 now finds its connections lost; why, it learns from the world.
	receives = ended(func() error { return f[1].ReceiveBytes(3, make([]byte, 8)) }) // not on a, whose message may have begun to arrive
	worlds[0].Fail(errors.New("device 0: the arena is on fire"))
	for _, err := range []error{<-receives, f[1].SendBytes(1, make([]byte, 8)), f[2].SendBytes(2, make([]byte, 8))} {
		if e, ok := errors.AsType[*world.RankError](err); !ok || e.Rank != 0 || e.Why != world.Failed {
			t.Error(err)
		}
	}
}

// A connection that is lost alone is said to be, with its way and rank, when the world has not ended of it.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	f := opened(t, together(t, 2), []world.Way{{Name: "a", From: 0, To: 1, Bytes: 8}})
	f[1].patience = time.Millisecond
	_ = f[0].outs[0].conn.Close()
	err := f[1].ReceiveBytes(0, make([]byte, 8))
	if e, ok := errors.AsType[*LostError](err); !ok || !strings.HasPrefix(e.Error(), "tcp: way a: the connection from rank 0 is lost") {
		t.Error(err)
	}
}

// Lists that differ are no world's, and neither are ways between ranks that are not there.
func TestOtherWays(t *testing.T) {
	t.Parallel()
	worlds := together(t, 2)
	each(2, func(rank int) {
		err := New(worlds[rank]).Open([]world.Way{{From: 0, To: 1, Bytes: int64(rank)}})
		if e, ok := errors.AsType[*world.DisagreementError](err); !ok || e.Ranks != [2]int{0, 1} {
			t.Error(err)
		}
		if err := New(worlds[rank]).Open([]world.Way{{Name: "x", From: 0, To: 2}}); err == nil || !strings.Contains(err.Error(), "way x") {
			t.Error(err)
		}
	})
}

// Strangers are not let in, whatever they say, and ways open beside them.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	worlds := together(t, 2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := newFabric(worlds[0])
	o := &opening{fabric: f, ctx: ctx, key: worlds[0].Key("tcp"), arrived: make(chan arrival)}
	if n := o.prepare([]world.Way{{Name: "a", From: 1, To: 0, Bytes: 8}, {Name: "b", From: 0, To: 1, Bytes: 8}}); n != 2 {
		t.Fatal(n)
	}
	lobby := world.NewLobby(ctx, 4)
	o.tasks.Go(func() { lobby.Accept(l, &o.tasks, o.welcome) })
	stranger := &opening{fabric: f, ctx: ctx, key: make([]byte, 32)}
	for _, c := range []struct {
		name string
		who  *opening
		way  int
	}{{"another key", stranger, 0}, {"a way that begins there", o, 1}, {"no way", o, 2}, {"a negative way", o, -1}} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.who.ask(conn, c.way); err == nil {
			t.Errorf("%s is let in", c.name)
		}
		_ = conn.Close()
	}
	for _, text := range []string{"", "x", strings.Repeat("y", 72+32), strings.Repeat("z", 1<<20)} { // and one who listens but cannot prove it
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		if len(text) > 72 {
			if n, _ := io.Copy(io.Discard, conn); n > nonceBytes {
				t.Errorf("a stranger is told %d bytes", n)
			}
		}
		_ = conn.Close()
	}
	near, far := net.Pipe()
	go func() {
		_, _ = far.Write(make([]byte, 32))
		_, _ = io.CopyN(io.Discard, far, 72)
		_, _ = far.Write(make([]byte, 32))
	}()
	if err := o.ask(near, 0); !errors.Is(err, ErrStranger) {
		t.Errorf("a listener who proves nothing: %v", err)
	}
	for range 50 { // which say nothing, and stay: more than the lobby holds
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = o.ask(conn, 0) }()
	if a := <-o.arrived; a.err != nil || *a.end != o.ins[0] {
		t.Errorf("%+v", a)
	}
	cancel()
	_ = l.Close()
	o.tasks.Wait()
}

// A message takes no memory.
func TestMessagesTakeNoMemory(t *testing.T) {
	// Serial: it counts allocations.
	f := opened(t, together(t, 2), []world.Way{{Name: "a", From: 0, To: 1, Bytes: 4096}})
	p, q := make([]byte, 4096), make([]byte, 4096)
	n := testing.AllocsPerRun(200, func() {
		if err := errors.Join(f[0].SendBytes(0, p), f[1].ReceiveBytes(0, q)); err != nil {
			t.Error(err)
		}
	})
	if n > 0.5 { // beats take some
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkThroughput sends one way; BenchmarkLatency there and back.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			f := opened(b, together(b, 2), []world.Way{{Name: "a", From: 0, To: 1, Bytes: int64(size)}})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			each(2, func(rank int) {
				p := make([]byte, size)
				for range b.N {
					do := []func(int, []byte) error{f[0].SendBytes, f[1].ReceiveBytes}[rank]
					if err := do(0, p); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkLatency(b *testing.B) {
	f := opened(b, together(b, 2), []world.Way{{Name: "there", From: 0, To: 1, Bytes: 8}, {Name: "back", From: 1, To: 0, Bytes: 8}})
	b.ResetTimer()
	each(2, func(rank int) {
		var p [8]byte
		first, second := f[rank].SendBytes, f[rank].ReceiveBytes
		if rank == 1 {
			first, second = second, first
		}
		for range b.N {
			if err := errors.Join(first(0, p[:]), second(1, p[:])); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
