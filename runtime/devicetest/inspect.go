package devicetest

import (
	"bytes"
	"testing"

	"plimsoll/runtime"
)

// Inspect checks a device that is a runtime.Inspector, with at least 4 KiB reserved in both spaces. Fill must reach a
// span and nothing beside it, and have ended when it returns. Peek must show the span, and refuse a buffer of another
// length.
func Inspect(t *testing.T, d runtime.Device) {
	t.Helper()
	i, ok := d.(runtime.Inspector)
	if !ok {
		t.Fatalf("%s cannot be looked at", d.Info().Name)
	}
	for _, space := range []runtime.Space{runtime.Arena, runtime.Host} {
		for _, bytes := range []int64{0, 1, 64, 100, 1000} {
			inspectSpan(t, i, runtime.Span{Space: space, Offset: 128, Bytes: bytes})
		}
		inspectFromStream(t, d, i, space)
		if err := i.Peek(runtime.Span{Space: space, Bytes: 8}, make([]byte, 7)); err == nil {
			t.Errorf("8 bytes of the %v were read into 7", space)
		}
		if err := i.Fill(runtime.Span{Space: space, Offset: 1 << 40, Bytes: 1}, 1); err == nil {
			t.Errorf("a byte behind the %v was filled", space)
		}
	}
}

func inspectSpan(t *testing.T, i runtime.Inspector, s runtime.Span) {
	t.Helper()
	whole := runtime.Span{Space: s.Space, Bytes: 1 << 12}
	want := bytes.Repeat([]byte{7}, int(whole.Bytes))
	copy(want[s.Offset:s.End()], bytes.Repeat([]byte{9}, int(s.Bytes)))
	got := make([]byte, whole.Bytes)
	for _, err := range []error{i.Fill(whole, 7), i.Fill(s, 9), i.Peek(whole, got)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("filling %v reached something else", s)
	}
}

// inspectFromStream copies what has just been filled, on a stream.
func inspectFromStream(t *testing.T, d runtime.Device, i runtime.Inspector, space runtime.Space) {
	t.Helper()
	s, err := d.NewStream("reader")
	if err != nil {
		t.Fatal(err)
	}
	filled, copied := runtime.Span{Space: space, Bytes: 1 << 11}, runtime.Span{Space: runtime.Host, Offset: 1 << 11, Bytes: 1 << 11}
	got := make([]byte, copied.Bytes)
	for value := range byte(20) {
		for _, err := range []error{i.Fill(copied, 99), i.Fill(filled, value), s.Copy(copied, filled), s.Synchronize(), i.Peek(copied, got)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{value}, len(got))) {
			t.Fatalf("a copy behind a fill of the %v with %d brought %d ...", space, value, got[0])
		}
	}
}
