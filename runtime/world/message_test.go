package world

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"
)

// everyKind is a message of each kind, as members and the hub send them.
func everyKind() []*message {
	failure := &RankError{Rank: 1, Host: "b", Status: "device 1: F3", Why: Failed, Text: "no space"}
	return []*message{
		{Kind: hello, Hello: &introduction{Protocol: protocol, Rank: 1, Size: 3, Host: "b", Process: 7, Agree: map[string]string{"seed": "1"}, Proof: []byte("proof")}},
		{Kind: waiting, Missing: []int{1, 2}},
		{Kind: refused, Refusal: &refusal{Refused: &RefusalError{Duplicate, "two"}}},
		{Kind: refused, Refusal: &refusal{Missing: &MissingError{Missing: []int{1}, Size: 2}}},
		{Kind: refused, Refusal: &refusal{Disagree: &DisagreementError{What: "seed"}}},
		{Kind: refused, Refusal: &refusal{Failed: failure}},
		{Kind: welcome, Welcome: &start{Epoch: "e", Key: make([]byte, keyBytes), Hosts: []string{"a", "b", "c"}}},
		{Kind: gather, Round: 0, What: "AllGather", Data: []byte("part")},
		{Kind: gathered, Round: 0, Parts: [][]byte{[]byte("a"), nil, []byte("c")}},
		{Kind: post, Topic: "log", From: 2, Data: []byte("{}")},
		{Kind: beat, Sent: 17, Status: "device 1: B2"},
		{Kind: beaten, Sent: 17, Now: 18, Statuses: []string{"x", "y", "z"}},
		{Kind: fail, Failure: failure},
		{Kind: leave}, {Kind: left}, {Kind: "unknown"}, {},
	}
}

func frames(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, m := range everyKind() {
		frame, err := encode(m, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, frame)
	}
	return all
}

// A message that was written is read as it was, and nothing behind it.
func TestMessagesComeBack(t *testing.T) {
	t.Parallel()
	stream := &bytes.Buffer{}
	for _, frame := range frames(t) {
		stream.Write(frame)
	}
	for _, want := range everyKind() {
		got, err := decode(stream, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		if b, _ := json.Marshal(want); !bytes.Equal(a, b) {
			t.Errorf("%s, want %s", a, b)
		}
	}
	if _, err := decode(stream, 1<<20); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := encode(&message{Data: make([]byte, 100)}, 100); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}

// drained is a connection whose other side reads everything and says nothing.
func drained() net.Conn {
	near, far := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, far)
		_ = far.Close()
	}()
	return near
}

// startedHub is a hub whose world of three has started, with members that never say anything.
func startedHub() *hub {
	h := newHub(Options{Identity: Identity{Size: 3}, Heartbeat: time.Second, Patience: time.Hour, Longest: 1 << 20}, nil)
	h.started = true
	for rank := range h.peers {
		h.peers[rank] = &peer{introduction: &introduction{Rank: rank, Host: "h"}, link: newLink(drained(), 4<<20)}
	}
	return h
}

// startedWorld is a member of such a world.
func startedWorld() *World {
	w := &World{o: Options{Identity: Identity{Rank: 1, Size: 3}, Heartbeat: time.Hour, Patience: time.Hour, Longest: 1 << 20}}
	w.start.Hosts = []string{"a", "b", "c"}
	w.link = newLink(drained(), 4<<20)
	w.prepare()
	w.Handle("log", func(int, []byte) {})
	return w
}

// mutate changes a frame as chance and malice do.
func mutate(r *rand.Rand, frame []byte) []byte {
	p := bytes.Clone(frame)
	for range 1 + r.IntN(4) {
		switch at := r.IntN(len(p)); r.IntN(7) {
		case 0:
			p[at] ^= 1 << r.IntN(8)
		case 1:
			p[at] = byte(r.IntN(256))
		case 2:
			p = p[:at+1]
		case 3:
			p = append(p[:at:at], append(bytes.Repeat(p[at:at+1], r.IntN(40)), p[at:]...)...)
		case 4: // a number grows
			p = bytes.Replace(p, []byte("1"), []byte("-9223372036854775808"), 1)
		case 5:
			p = bytes.Replace(p, []byte("["), []byte("[[[null,"), 1)
		case 6: // the length is right again, so that JSON is wrong, not the frame
			if len(p) >= 4 {
				binary.BigEndian.PutUint32(p, uint32(len(p)-4))
			}
		}
	}
	if r.IntN(2) == 0 && len(p) >= 4 {
		binary.BigEndian.PutUint32(p, uint32(len(p)-4))
	}
	return p
}

// Whatever a member or a hub is sent: an error at most, and what was taken for it is given back.
func TestMutatedMessagesDoNoHarm(t *testing.T) {
	// Serial: it counts allocations.
	r := rand.New(rand.NewPCG(15, 5000))
	valid := frames(t)
	var h *hub
	var w *World
	hubs, worlds, read := 0, 0, 0
	before := heap()
	for range 5000 {
		if h == nil || h.ctx.Err() != nil {
			h, hubs = renew(h), hubs+1
		}
		if w == nil || w.ctx.Err() != nil {
			w, worlds = renewWorld(w), worlds+1
		}
		frame := mutate(r, valid[r.IntN(len(valid))])
		for _, take := range []func(m *message){
			func(m *message) { h.take(h.peers[r.IntN(3)], m) },
			func(m *message) { w.take(m) },
			func(m *message) { _ = m.Refusal.error().Error() },
			func(m *message) {
				if m.Hello != nil {
					_ = newHub(Options{Identity: Identity{Size: 3}}, nil).contradiction(m.Hello)
				}
			},
		} {
			m, err := decode(bytes.NewReader(frame), 1<<20)
			if err == nil {
				read++
				take(m)
			}
		}
	}
	if hubs < 20 || worlds < 20 || read < 2000 {
		t.Errorf("only %d hubs and %d worlds ended, and %d messages were read", hubs, worlds, read)
	}
	renew(h).conclude(&message{Kind: left})
	w = renewWorld(w)
	w.end(ErrLeft, func() {})
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d KiB are held", grown>>10)
	}
}

// renew ends a hub and returns another.
func renew(h *hub) *hub {
	if h != nil {
		h.mu.Lock()
		h.conclude(&message{Kind: left})
		h.mu.Unlock()
		for _, p := range h.peers {
			p.link.close()
		}
	}
	return startedHub()
}

func renewWorld(w *World) *World {
	if w != nil {
		w.end(ErrLeft, func() {})
		w.link.close()
		w.tasks.Wait()
	}
	w = startedWorld()
	w.tasks.Go(w.handle)
	return w
}

// heap is how many bytes are held.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A length alone takes no memory.
func TestLengthsAreNotBelieved(t *testing.T) {
	// Serial: it counts allocations.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 1000
	for range times {
		if _, err := decode(bytes.NewReader([]byte{3, 255, 255, 255, '{'}), 64<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if _, err := decode(bytes.NewReader([]byte{4, 0, 0, 1, '{'}), 64<<20); !errors.Is(err, ErrTooLong) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 16<<10 {
		t.Errorf("%d bytes are taken for a message that does not come", each)
	}
}

// A rank bounds the messages that it keeps of another rank: messages of a topic that nobody handles, and rounds of a rank that runs ahead.
func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, "topic", func(t *testing.T, n *network) {
		worlds := n.world(t, 2, func(_ int, o *Options) { o.Longest = 64 << 10 })
		worlds[1].Handle("other", func(int, []byte) {})
		var err error
		for range 1000 {
			if err = worlds[1].Post("nobody's", make([]byte, 32<<10)); err != nil {
				break
			}
		}
		if e, ok := errors.AsType[*RankError](err); !ok || e.Why != Failed {
			t.Errorf("%v", err)
		}
		ended(worlds...)
	})
	h := startedHub()
	for round := range 2 * mostAhead {
		h.take(h.peers[1], &message{Kind: gather, Round: round, What: "AllGather"})
	}
	if len(h.rounds) > mostAhead+1 || h.ctx.Err() == nil {
		t.Errorf("%d rounds", len(h.rounds))
	}
	renew(h)
}

func FuzzDecode(f *testing.F) {
	for _, frame := range frames(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, err := decode(bytes.NewReader(frame), 1<<16)
		if err != nil {
			return
		}
		again, err := encode(m, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(bytes.NewReader(again), 1<<20); err != nil {
			t.Errorf("%q: %v", again, err)
		}
	})
}
