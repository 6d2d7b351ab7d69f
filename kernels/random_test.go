package kernels

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestPhilox: the known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
func TestPhilox(t *testing.T) {
	t.Parallel()
	ones := uint32(math.MaxUint32)
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := Philox(c.counter, c.key); got != c.want {
			t.Errorf("Philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

// TestDropoutWords: an element's word is its place among the four words of its counter.
func TestDropoutWords(t *testing.T) {
	t.Parallel()
	s := NewDropoutStream(Scalars{Seed: 1, Step: 2, Microbatch: 3}, 4)
	for e := range uint64(12) {
		counter := [4]uint32{uint32(e / 4), 0, uint32(s.High), uint32(s.High >> 32)}
		want := Philox(counter, [2]uint32{uint32(s.Key), uint32(s.Key >> 32)})[e%4]
		if got := s.Word(e); got != want {
			t.Errorf("word %d is %x, want %x", e, got, want)
		}
	}
}

// TestThreshold: P of all words lie below the threshold.
func TestThreshold(t *testing.T) {
	t.Parallel()
	for p, want := range map[float32]uint32{0: 0, 0.5: 1 << 31, 0.25: 1 << 30, math.Nextafter32(1, 0): math.MaxUint32 - 255} {
		if got := (Dropout{P: p}).Threshold(); got != want {
			t.Errorf("threshold of %v is %d, want %d", p, got, want)
		}
	}
}

// TestScalars: what Put writes Get reads, whatever the values.
func TestScalars(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Scalars{
			Seed: rapid.Uint64().Draw(t, "seed"), Step: rapid.Uint64().Draw(t, "step"), Microbatch: rapid.Uint64().Draw(t, "microbatch"),
			LR: rapid.Float32().Draw(t, "lr"), GradScale: rapid.Float32().Draw(t, "scale"), Skip: rapid.Uint32().Draw(t, "skip"), Update: rapid.Uint64().Draw(t, "update"),
		}
		b := make([]byte, ScalarsBytes)
		want.Put(b)
		if got := GetScalars(b); got != want {
			t.Fatalf("read back %+v, want %+v", got, want)
		}
	})
}
