package devicetest

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"plimsoll/runtime"
)

// Suite says how to test one kind of device.
type Suite struct {
	// Open returns n fresh devices, peers of each other. Their memory is limited, to no less than 1 MiB each, and
	// their streams hold at least 8 commands before issuing blocks. The suite closes them.
	Open func(t testing.TB, n int) []runtime.Device
	// Mix returns a launch on two spans of d's arena: dst[i] = 31*dst[i] + src[i] modulo 256, byte by byte. For a
	// simulated device it is any launch of d's kind.
	Mix func(d runtime.Device, dst, src runtime.Span) runtime.Launch
	// Gate returns a launch that runs until open is called, once; nil when the device cannot be held up.
	Gate func(d runtime.Device) (l runtime.Launch, open func())
	// Fail returns a launch that fails because of cause; nil when launches of the device cannot fail.
	Fail func(d runtime.Device, cause error) runtime.Launch
}

// need is a capability that a case cannot do without.
type need uint8

const (
	needData need = 1 << iota // launches and copies move real bytes
	needGate
	needFail
)

func (n need) String() string {
	text := ""
	for i, name := range []string{"real data", "a launch that can be held up", "a launch that fails"} {
		if n&(1<<i) == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += name
	}
	return text
}

// testCase is a property of devices. Its name says what holds when it passes.
type testCase struct {
	name    string
	needs   need
	devices int
	check   func(k *kit)
}

// kit holds the test, the suite and the devices of a case.
type kit struct {
	testing.TB
	suite   Suite
	devices []runtime.Device
}

const space = 1 << 20 // bytes of each arena and of each host space, unless a case reserves for itself

func newKit(t testing.TB, s Suite, devices int) *kit {
	k := &kit{TB: t, suite: s, devices: s.Open(t, devices)}
	t.Cleanup(func() {
		for _, d := range k.devices {
			if err := d.Close(); err != nil && !errors.Is(err, runtime.ErrClosed) {
				t.Errorf("close: %v", err)
			}
		}
	})
	return k
}

// patience is how long soon waits before it calls a case hung. No result depends on it.
const patience = time.Minute

func (k *kit) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *kit) wantIs(err, target error, call string) {
	k.Helper()
	if !errors.Is(err, target) {
		k.Errorf("%s: got error %v, want %v", call, err, target)
	}
}

// device returns the first device, with memory.
func (k *kit) device() runtime.Device { return k.reserved()[0] }

// reserved returns all devices, with memory.
func (k *kit) reserved() []runtime.Device {
	k.Helper()
	for _, d := range k.devices {
		k.must(d.Reserve(space, space))
	}
	return k.devices
}

func (k *kit) stream(d runtime.Device, name string) runtime.Stream {
	k.Helper()
	s, err := d.NewStream(name)
	k.must(err)
	return s
}

func (k *kit) event(d runtime.Device) runtime.Event {
	k.Helper()
	e, err := d.NewEvent()
	k.must(err)
	return e
}

// gate returns a launch that holds its stream up, and the way to open it, which happens at the end of the case if
// not before.
func (k *kit) gate(d runtime.Device) (runtime.Launch, func()) {
	l, release := k.suite.Gate(d)
	opened := false
	open := func() {
		if !opened {
			opened = true
			release()
		}
	}
	k.Cleanup(open)
	return l, open
}

// soon fails the case when f does not return at all.
func (k *kit) soon(what string, f func() error) {
	k.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		k.must(err)
	case <-time.After(patience):
		k.Fatalf("%s does not end\n%s", what, k.dump())
	}
}

func (k *kit) dump() string {
	text := ""
	for _, d := range k.devices {
		if d, ok := d.(interface{ Dump() string }); ok {
			text += d.Dump()
		}
	}
	return text
}

// write puts bytes into the arena, through the last part of the host space.
func (k *kit) write(d runtime.Device, s runtime.Stream, to runtime.Span, data []byte) {
	k.Helper()
	through := host(space-to.Bytes, to.Bytes)
	b, err := d.HostBytes(through)
	k.must(err)
	copy(b, data)
	k.must(s.Copy(to, through))
	k.must(s.Synchronize())
}

// read gets bytes of the arena, through the last part of the host space.
func (k *kit) read(d runtime.Device, s runtime.Stream, from runtime.Span) []byte {
	k.Helper()
	through := host(space-from.Bytes, from.Bytes)
	k.must(s.Copy(through, from))
	k.must(s.Synchronize())
	b, err := d.HostBytes(through)
	k.must(err)
	return append([]byte(nil), b...)
}

func arena(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: runtime.Arena, Offset: offset, Bytes: bytes}
}

func host(offset, bytes int64) runtime.Span {
	return runtime.Span{Space: runtime.Host, Offset: offset, Bytes: bytes}
}

// pattern returns n bytes that differ by place and by seed.
func pattern(n int64, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ seed
	}
	return b
}

// mix computes the result of Suite.Mix.
func mix(dst, src []byte) {
	for i := range dst {
		dst[i] = 31*dst[i] + src[i]
	}
}

func (k *kit) wantBytes(d runtime.Device, s runtime.Stream, at runtime.Span, want []byte) {
	k.Helper()
	if got := k.read(d, s, at); !bytes.Equal(got, want) {
		k.Errorf("%v of %s differs from what it should be", at, d.Info().Name)
	}
}

// wantAfter asserts that wait returns after open was called.
func (k *kit) wantAfter(open func(), wait func() error) {
	k.Helper()
	var opened atomic.Bool
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		opened.Store(true)
		open()
	}()
	k.soon("waiting", func() error {
		err := wait()
		if !opened.Load() {
			k.Error("it did not wait")
		}
		return err
	})
	<-finished
}
