package cycle

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add("Pw1 Fall1.1 Fck2.1 F3 O1.2 P1.2 B3 Dw1 Og1' H1' Pg2 U2 Ps2 Os2 Ds2 Ow1")
	f.Add("B0 F F99999999999999999999 Xx1 F1. F1.1' U1.1 ' .1 \x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(seq.String())
		if err != nil || !reflect.DeepEqual(seq, again) {
			t.Fatalf("%q reads as %s, which reads as %s, %v", text, seq, again, err)
		}
		data, err := json.Marshal(seq)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &again); err != nil || !reflect.DeepEqual(seq, again) {
			t.Fatalf("%q is written as %s, which reads as %s, %v", text, data, again, err)
		}
	})
}

// FuzzSimulate judges any sequence on any small chain: errors are of the documented types, and peaks are within the limits.
func FuzzSimulate(f *testing.F) {
	f.Add(uint64(1), int64(20), int64(50), 1.0, 2.0, false, false, "Fall1 Fall2 Fall3 B3 B2 B1")
	for seed := range uint64(40) {
		k := randomTrial(rand.New(rand.NewPCG(seed, 30)))
		f.Add(seed, k.limits().Memory, k.limits().Host, k.Up, k.Down, k.Duplex, k.Clip, k.Seq)
	}
	f.Fuzz(func(t *testing.T, seed uint64, memory, host int64, up, down float64, duplex, clip bool, text string) {
		seq, err := Parse(strings.ToValidUTF8(text, ""))
		if err != nil {
			return
		}
		c := randomChain(rand.New(rand.NewPCG(seed, 30)))
		limits := Limits{Memory: memory, Host: host, UpdatesLast: clip}
		s, err := NewSimulator(c, Link{up, down, duplex})
		if errors.Is(err, ErrBandwidth) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(seq, limits)
		if err != nil {
			checkError(t, err)
			return
		}
		if r.Peak > memory || r.HostPeak > host || r.Period < 0 || r.Repeats < 1 || r.Resident > r.Peak {
			t.Fatalf("%+v within %+v", r, limits)
		}
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	var memory *MemoryError
	switch {
	case errors.As(err, &memory):
		if memory.Needed <= memory.Limit || memory.InUse > memory.Needed {
			t.Fatalf("%+v", memory)
		}
	case errors.As(err, new(*RuleError)), errors.As(err, new(*LinkError)), errors.As(err, new(*HostMemoryError)), errors.Is(err, ErrNoSteadyState):
	default:
		t.Fatalf("undocumented: %v", err)
	}
}
