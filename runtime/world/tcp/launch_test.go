package tcp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/null"
	"plimsoll/runtime/world"
)

// memory is a device whose memory the program reaches.
type memory struct {
	runtime.Device
	content []byte
}

func (m memory) Bytes(s runtime.Span) ([]byte, error) { return m.content[s.Offset:s.End()], nil }

// staged is one whose messages are staged.
type staged struct{ memory }

func (s staged) NewStaging(string, int64) (runtime.Staging, error) { return staging(s), nil }

type staging struct{ memory }

func (s staging) Send(src runtime.Span, send func(p []byte) error) (runtime.Launch, error) {
	return host.Func{Name: "staged send", Do: func() error { return send(s.content[src.Offset:src.End()]) }}, nil
}

func (s staging) Receive(dst runtime.Span, receive func(p []byte) error) (runtime.Launch, error) {
	return host.Func{Name: "staged receive", Do: func() error { return receive(s.content[dst.Offset:dst.End()]) }}, nil
}

// launch does what a launch of a transport does.
func launch(l runtime.Launch, err error) error {
	if err != nil {
		return err
	}
	return l.(host.Func).Do()
}

// Launches move spans between memory that the program reaches and memory that it does not. A staged message that fails ends the world.
func TestLaunchesMoveSpans(t *testing.T) {
	t.Parallel()
	worlds := together(t, 2)
	content := [][]byte{[]byte("from rank 0"), make([]byte, 11)}
	devices := []runtime.Device{memory{content: content[0]}, staged{memory{content: content[1]}}}
	f := make([]*fabric, 2)
	each(2, func(rank int) {
		f[rank] = newFabric(worlds[rank])
		f[rank].patience = time.Millisecond
		ways := []world.Way{{Name: "there", From: 0, To: 1, Bytes: 8, Device: devices[rank]}, {Name: "back", From: 1, To: 0, Bytes: 8, Device: devices[rank]}}
		if err := f[rank].Open(ways); err != nil {
			t.Error(err)
		}
	})
	each(2, func(rank int) {
		first, second := f[rank].Send, f[rank].Receive
		if rank == 1 {
			first, second = second, first
		}
		to := runtime.Span{Offset: int64(3 * rank), Bytes: 6}
		if err := errors.Join(launch(first(0, to)), launch(second(1, to))); err != nil {
			t.Error(err)
		}
	})
	if string(content[1]) != "\x00\x00\x00from r\x00\x00" || string(content[0]) != "from rank 0" {
		t.Errorf("%q", content)
	}
	if err := f[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := launch(f[1].Receive(0, runtime.Span{Bytes: 6})); err == nil {
		t.Error("a message comes from who has closed")
	}
	err := context.Cause(worlds[1].Context())
	if e, ok := errors.AsType[*world.RankError](err); !ok || e.Rank != 1 || e.Why != world.Failed || !strings.Contains(e.Text, "way there: the connection from rank 0 is lost") {
		t.Error(err)
	}
}

// A device whose memory the program neither reaches nor stages is refused by name, and so are sums.
func TestDevicesWithoutMessages(t *testing.T) {
	t.Parallel()
	tape, err := null.New(null.Config{Name: "tape"})
	if err != nil {
		t.Fatal(err)
	}
	worlds := together(t, 2)
	each(2, func(rank int) {
		f := New(worlds[rank])
		if err := f.Open([]world.Way{{Name: "a", From: 0, To: 1, Bytes: 8, Device: tape}}); err != nil {
			t.Error(err)
		}
		if _, err := f.Send(0, runtime.Span{Bytes: 8}); !errors.Is(err, world.ErrTransport) || !strings.Contains(err.Error(), "tape is of a kind of device that has no messages") {
			t.Error(err)
		}
		if err := f.OpenSums(nil); !errors.Is(err, world.ErrTransport) || !strings.Contains(err.Error(), "adds up no gradients, NCCL does") {
			t.Error(err)
		}
	})
}
