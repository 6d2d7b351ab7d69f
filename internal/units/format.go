package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// Bytes prints a size with four digits: "1.500 GiB", "512 B".
func Bytes(n int64) string {
	if n < 0 {
		return "-" + magnitude(-uint64(n))
	}
	return magnitude(uint64(n))
}

func magnitude(n uint64) string {
	if n < 1<<10 {
		return strconv.FormatUint(n, 10) + " B"
	}
	return humanize.IBytesN(n, 4)
}

// ExactBytes prints a size to the byte, digits grouped: "1,610,612,736 B".
func ExactBytes(n int64) string { return humanize.Comma(n) + " B" }

// Count writes how many there are of what takes an s in the plural: "1 step", "250 steps".
func Count(n int, of string) string {
	if n != 1 {
		of += "s"
	}
	return fmt.Sprintf("%d %s", n, of)
}

// List joins the first names, at most so many, and counts the others: "a, b and 3 more".
func List(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Precise prints a size with four digits and to the byte: "1.500 GiB (1,610,612,736 B)", "512 B".
func Precise(n int64) string {
	if n > -1<<10 && n < 1<<10 {
		return Bytes(n)
	}
	return Bytes(n) + " (" + ExactBytes(n) + ")"
}

// Percent prints a fraction with exactly the digits it has: "40%", "12.5%". ParsePercent reads it back.
func Percent(fraction float64) string {
	if !finite(fraction) {
		return three(fraction) + "%"
	}
	whole, rest, _ := strings.Cut(strconv.FormatFloat(math.Abs(fraction), 'f', -1, 64), ".")
	for len(rest) < 2 {
		rest += "0"
	}
	shown := strings.TrimLeft(whole+rest[:2], "0")
	if shown == "" {
		shown = "0"
	}
	if rest[2:] != "" {
		shown += "." + rest[2:]
	}
	if fraction < 0 {
		shown = "-" + shown
	}
	return shown + "%"
}

// Seconds prints a time with three digits: "4.56 ms", "12.0 s", and from two minutes on "3m05s", "2h10m".
func Seconds(s float64) string {
	if a := math.Abs(s); a >= 120 && a < 1e9 {
		return clock(s)
	}
	return scaled(s, "s", "mµn", 1e-3)
}

// clock prints a time from two minutes on.
func clock(s float64) string {
	if s < 0 {
		return "-" + clock(-s)
	}
	whole := int64(math.Round(s))
	if whole < 3600 {
		return fmt.Sprintf("%dm%02ds", whole/60, whole%60)
	}
	return fmt.Sprintf("%dh%02dm", whole/3600, whole/60%60)
}

// Rate prints how many of something happen per second, with three digits: "312 images/s", "12.0 GB/s". Bytes
// and flops ("B", "flop") get a prefix, other things are written out.
func Rate(perSecond float64, unit string) string {
	if unit == "B" || unit == "flop" {
		return scaled(perSecond, unit+"/s", "kMGTPE", 1e3)
	}
	return three(perSecond) + " " + unit + "/s"
}

// scaled prints x with three digits and a prefix. Each prefix is a factor of step from the one before. The first
// is taken that leaves a number below 1000 (prefixes go up) or from 1 on (prefixes go down).
func scaled(x float64, unit, prefixes string, step float64) string {
	name := ""
	for _, p := range prefixes {
		a := math.Abs(x)
		if x == 0 || !finite(x) || step > 1 && a < 999.5 || step < 1 && a >= 0.9995 {
			break
		}
		x, name = x/step, string(p)
	}
	return three(x) + " " + name + unit
}

// three prints a number with three digits, without an exponent where that is readable.
func three(x float64) string {
	switch a := math.Abs(x); {
	case !finite(x) || a >= 1e9 || a < 0.9995 && a != 0:
		return strconv.FormatFloat(x, 'g', 3, 64)
	case x == 0:
		return "0"
	case a >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
