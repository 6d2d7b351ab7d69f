package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is an amount of memory as a person gives it: bytes, or a share of a total that is not known yet. It is a
// value of a command-line flag (pflag.Value). The zero Size means that none was given.
type Size struct {
	Bytes int64
	Share float64 // a fraction of the total; 0 when Bytes counts
}

// ParseSize reads a size ("4GiB") or a share ("40%").
func ParseSize(text string) (Size, error) {
	digits, unit, _ := split(text)
	of, share := strings.CutSuffix(unit, "%")
	_, sized := sizeFactor(of)
	switch {
	case share && of == "":
		fraction, err := ParsePercent(text)
		return Size{Share: fraction}, err
	case share && sized:
		return Size{}, bad(text, "it is both a size and a share", fmt.Sprintf("write one of them: %q or %q", digits+of, digits+"%"))
	}
	bytes, err := ParseBytes(text)
	if err != nil {
		return Size{}, fmt.Errorf(`%w, or a share as "40%%"`, err)
	}
	return Size{Bytes: bytes}, nil
}

// Of returns the bytes of the size, a share rounded down.
func (s Size) Of(total int64) int64 {
	if s.Share == 0 {
		return s.Bytes
	}
	x := math.Floor(s.Share * float64(total))
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(x)
}

// IsZero reports whether no size was given, or one of 0 bytes.
func (s Size) IsZero() bool { return s == Size{} }

// String returns a text that ParseSize reads as exactly this size.
func (s Size) String() string {
	if s.Share != 0 {
		return Percent(s.Share)
	}
	for _, unit := range []string{"EiB", "PiB", "TiB", "GiB", "MiB", "KiB"} {
		factor := prefixes[strings.ToLower(unit[:2])]
		if s.Bytes != 0 && s.Bytes%factor == 0 {
			return strconv.FormatInt(s.Bytes/factor, 10) + unit
		}
	}
	return strconv.FormatInt(s.Bytes, 10)
}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	size, err := ParseSize(text)
	if err == nil {
		*s = size
	}
	return err
}

// Type implements pflag.Value; help texts show it.
func (s *Size) Type() string { return "size" }

// Bandwidth is bytes per second, a value of a command-line flag (pflag.Value). 0 means that none was given.
type Bandwidth float64

// String returns the bandwidth in human units, "" when there is none.
func (b Bandwidth) String() string {
	if b == 0 {
		return ""
	}
	return Rate(float64(b), "B")
}

// Set implements pflag.Value.
func (b *Bandwidth) Set(text string) error {
	x, err := ParseBandwidth(text)
	if err == nil {
		*b = Bandwidth(x)
	}
	return err
}

// Type implements pflag.Value; help texts show it.
func (b *Bandwidth) Type() string { return "bandwidth" }
