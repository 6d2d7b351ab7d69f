package devicetest

import (
	"bytes"
	"testing"

	"plimsoll/runtime"
)

// Inspect checks a device that is a runtime.Inspector, with at least 4 KiB reserved in both spaces: Fill reaches a span
// and nothing beside it; Peek shows it, and refuses a buffer of another length.
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
