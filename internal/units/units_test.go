package units

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"123": 123, "0": 0, "1B": 1, "1 b": 1, "4GiB": 4 << 30, "4 GiB": 4 << 30, " 4gib ": 4 << 30, "4Gi": 4 << 30,
		"512MB": 512e6, "512mb": 512e6, "4G": 4e9, "4E": 4e18, "1.5GiB": 3 << 29, ".5KiB": 512, "1.KiB": 1024,
		"1.5e9": 1.5e9, "2e3KiB": 2048e3, "1e3": 1000, "0.3B": 0, "0.5B": 1, "1.0009kB": 1001,
		"9223372036854775807": math.MaxInt64, "9007199254740993": 9007199254740993, "7EiB": 7 << 60,
		"9007199254740993 kB": 9007199254740993000,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseBandwidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"12GB/s": 12e9, "12 GB/s": 12e9, "12GB": 12e9, "1.5e9": 1.5e9, "1.5e9B/s": 1.5e9, "800MiB/s": 800 << 20,
		"100Gbit/s": 12.5e9, "8bit/s": 1, "12G/s": 12e9, "0.5": 0.5, "1e300": 1e300,
	} {
		if got, err := ParseBandwidth(text); err != nil || got != want {
			t.Errorf("ParseBandwidth(%q) = %g, %v; want %g", text, got, err, want)
		}
	}
}

func TestParsePercent(t *testing.T) {
	t.Parallel()
	const spaced = " 7 % "
	for text, want := range map[string]float64{
		"40%": 0.4, spaced: 0.07, "100%": 1, "250%": 2.5, "0.1%": 0.001, "1e1%": 0.1, "33.3%": 0.333,
	} {
		if got, err := ParsePercent(text); err != nil || got != want {
			t.Errorf("ParsePercent(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

// Nothing that is not a positive finite quantity passes, and the error shows the value and what to write.
func TestRefused(t *testing.T) {
	t.Parallel()
	parsers := map[string]func(string) error{
		"bytes":     func(s string) error { _, err := ParseBytes(s); return err },
		"bandwidth": func(s string) error { _, err := ParseBandwidth(s); return err },
		"percent":   func(s string) error { _, err := ParsePercent(s); return err },
		"size":      func(s string) error { _, err := ParseSize(s); return err },
	}
	everywhere := []string{
		"", " ", "-1", "-4GiB", "-0", "+1", "NaN", "nan", "Inf", "infinity", "1e", "1..5", "0x10", "1_000", "1,5GiB",
		"four", "GiB", "1 2", "4XiB", "4GiBs", "4GBb0", "4iB", "4/s/s", "%", "--1%", "\x00", "４", strings.Repeat("9", 400), "1" + strings.Repeat("0", 70),
	}
	own := map[string][]string{
		"bytes":     {"9223372036854775808", "8EiB", "9.3EB", "1e19", "1e999", "40%", "12GB/s", "1e-5000%"},
		"bandwidth": {"0", "0GB/s", "1e308GB/s", "1e999", "12Gb/s", "12gb/s", "12Gbps", "40%", "1e-400", "5e-324", "1e-101B/s"},
		"percent":   {"40", "0%", "4GiB", "1e999%", "1e-400%", "1e99999999999999999999%"},
		"size":      {"0%", "40%%", "8EiB", "12GB/s"},
	}
	cases := 0
	for name, parse := range parsers {
		for _, text := range append(own[name], everywhere...) {
			cases++
			err := parse(text)
			switch {
			case !errors.Is(err, ErrSyntax):
				t.Errorf("%s accepts %q: %v", name, text, err)
			case !strings.Contains(err.Error(), `"`) || !strings.Contains(err.Error(), "; write "):
				t.Errorf("%s of %q: the error shows no example: %v", name, text, err)
			case len(err.Error()) > 400:
				t.Errorf("%s: error of %d bytes", name, len(err.Error()))
			}
		}
	}
	if want := 4*len(everywhere) + 29; cases != want {
		t.Errorf("%d cases ran, want %d", cases, want)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"4GX":   `bad value "4GX": "GX" is not a unit of size; write bytes as "4GiB", "512MB", "1.5GiB" or "123", or a share as "40%"`,
		"0.4":   `bad value "0.4": it has no unit and is no whole number of bytes; write bytes as "4GiB", "512MB", "1.5GiB" or "123", or a share as "40%"`,
		"40GB%": `bad value "40GB%": it is both a size and a share; write one of them: "40GB" or "40%"`,
		"4X%":   `bad value "4X%": "X%" is not a unit of size; write bytes as "4GiB", "512MB", "1.5GiB" or "123", or a share as "40%"`,
		"40%%":  `bad value "40%%": "%%" is not a unit of size; write bytes as "4GiB", "512MB", "1.5GiB" or "123", or a share as "40%"`,
	} {
		if _, err := ParseSize(text); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 B": Bytes(0), "1023 B": Bytes(1023), "1.000 KiB": Bytes(1024), "1.500 GiB": Bytes(3 << 29), "-2.000 KiB": Bytes(-2048),
		"8.000 EiB": Bytes(math.MaxInt64), "-8.000 EiB": Bytes(math.MinInt64), "1,610,612,736 B": ExactBytes(3 << 29),
		"1.500 GiB (1,610,612,736 B)": Precise(3 << 29), "1022 B": Precise(1022), "1.000 KiB (1,024 B)": Precise(1024), "-1.000 KiB (-1,024 B)": Precise(-1024),
		"40%": Percent(0.4), "7%": Percent(0.07), "12.5%": Percent(0.125), "0.1%": Percent(0.001), "250%": Percent(2.5),
		"0%": Percent(0), "-3%": Percent(-0.03), "NaN%": Percent(math.NaN()),
		"0 s": Seconds(0), "1.00 s": Seconds(1), "4.56 ms": Seconds(0.004561), "1.00 ms": Seconds(0.00099996), "999 µs": Seconds(0.000999),
		"12.0 s": Seconds(12), "119 s": Seconds(119), "2m00s": Seconds(120), "3m05s": Seconds(185.2), "2h10m": Seconds(7800), "-5.00 ns": Seconds(-5e-9),
		"0.5 ns": Seconds(5e-10), "NaN s": Seconds(math.NaN()), "+Inf s": Seconds(math.Inf(1)), "-3m00s": Seconds(-180),
		"312 images/s": Rate(312.4, "images"), "12345 images/s": Rate(12345, "images"), "0.034 images/s": Rate(0.034, "images"),
		"12.0 GB/s": Rate(12e9, "B"), "1.00 kB/s": Rate(999.6, "B"), "999 B/s": Rate(999, "B"), "67.0 Tflop/s": Rate(67e12, "flop"),
		"NaN B/s": Rate(math.NaN(), "B"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSizeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size        Size
		total, want int64
	}{
		{Size{Bytes: 7}, 100, 7}, {Size{Share: 0.4}, 1000, 400}, {Size{Share: 0.4}, 999, 399}, {Size{Share: 2}, 10, 20},
		{Size{Share: 1e300}, 10, math.MaxInt64}, {Size{}, 10, 0},
	} {
		if got := c.size.Of(c.total); got != c.want {
			t.Errorf("%v of %d = %d, want %d", c.size, c.total, got, c.want)
		}
	}
	if !(Size{}).IsZero() || (Size{Share: 0.1}).IsZero() {
		t.Error("IsZero")
	}
}

// Set reads the text that String prints as exactly the same value.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Size{Bytes: rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes") >> rapid.IntRange(0, 62).Draw(t, "shift")}
		if rapid.Bool().Draw(t, "share") {
			want = Size{Share: rapid.Float64Range(1e-9, 1e6).Draw(t, "fraction")}
		}
		var got Size
		if err := got.Set(want.String()); err != nil || got != want {
			t.Fatalf("%+v prints as %q, which is read as %+v, %v", want, want.String(), got, err)
		}
	})
}

// Printed for people, four digits are kept: what is read back is off by half of
// the last of them, and by what whole bytes round away.
func TestPrintedBytesAreClose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<62).Draw(t, "bytes") >> rapid.IntRange(0, 62).Draw(t, "shift")
		got, err := ParseBytes(Bytes(n))
		if err != nil || math.Abs(float64(got)-float64(n)) > 0.0005*float64(n)+0.5 {
			t.Fatalf("%d prints as %q, which is read as %d, %v", n, Bytes(n), got, err)
		}
	})
}

func TestBandwidthFlag(t *testing.T) {
	t.Parallel()
	var b Bandwidth
	if b.String() != "" || b.Type() == "" {
		t.Errorf("no bandwidth prints as %q of type %q", b.String(), b.Type())
	}
	if err := b.Set("12GB/s"); err != nil || b != 12e9 || b.String() != "12.0 GB/s" {
		t.Errorf("Set(12GB/s) = %v, prints as %q", err, b.String())
	}
	if err := b.Set("fast"); err == nil || b != 12e9 {
		t.Errorf("a bad value: %v, leaves %v", err, float64(b))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"4GiB", "1.5e9", "40%", "12GB/s", "-1", "1e999", "0.1 Mbit/s", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); err == nil && n < 0 || err != nil && n != 0 {
			t.Errorf("ParseBytes(%q) = %d, %v", s, n, err)
		}
		if x, err := ParseBandwidth(s); err == nil && !(x > 0 && finite(x)) || err != nil && x != 0 {
			t.Errorf("ParseBandwidth(%q) = %g, %v", s, x, err)
		}
		if x, err := ParsePercent(s); err == nil && !(x > 0 && finite(x)) || err != nil && x != 0 {
			t.Errorf("ParsePercent(%q) = %g, %v", s, x, err)
		}
		size, err := ParseSize(s)
		if err != nil {
			return
		}
		if again, err := ParseSize(size.String()); len(size.String()) < maxLength && (err != nil || again != size) {
			t.Errorf("ParseSize(%q) = %+v; printed and read again it is %+v, %v", s, size, again, err)
		}
	})
}

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 steps", 1: "1 step", 2: "2 steps"} {
		if got := Count(n, "step"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
