// Package units reads and prints the units that people write: sizes, bandwidths, shares and times. Everything
// inside the program is in bytes, bytes per second, fractions and seconds.
//
// Prefixes with an i are powers of 1024, those without are powers of 1000: 1 KiB = 1024 bytes, 1 kB = 1000.
package units

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// ErrSyntax is wrapped by every error of this package.
var ErrSyntax = errors.New("bad value")

const (
	sizeExamples      = `write bytes as "4GiB", "512MB", "1.5GiB" or "123"`
	percentExamples   = `write a share as "40%"`
	bandwidthExamples = `write bytes per second as "12GB/s", "800MiB/s", "100Gbit/s" or "1.5e9"`
	maxLength         = 64
)

func bad(text, reason, examples string) error {
	if len(text) > maxLength {
		text = text[:maxLength] + "..."
	}
	return fmt.Errorf("%w %q: %s; %s", ErrSyntax, text, reason, examples)
}

// number splits "1.5e3 KiB/s" into digits, exponent and unit.
var number = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*([a-zA-Z/%]*)$`)

// split returns the number and the unit of a text; the reason is empty when it has that form.
func split(text string) (digits, unit, reason string) {
	text = strings.TrimSpace(text)
	parts := number.FindStringSubmatch(text)
	switch {
	case text == "":
		return "", "", "it is empty"
	case strings.HasPrefix(text, "-"):
		return "", "", "it is negative"
	case len(text) > maxLength:
		return "", "", "it is too long"
	case parts == nil:
		return "", "", "it is not a number with a unit"
	}
	return parts[1] + parts[2], parts[3], ""
}

// prefixes maps what stands before B to a factor; the spelling is that of lower case.
var prefixes = map[string]int64{
	"":  1,
	"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18,
	"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40, "pi": 1 << 50, "ei": 1 << 60,
}

// prefixFactor returns the factor of a prefix in any case. A lone e is none: "1e" is rather half a number than an
// exabyte.
func prefixFactor(name string) (factor int64, ok bool) {
	factor, ok = prefixes[strings.ToLower(name)]
	return factor, ok && name != "e"
}

// sizeFactor returns the bytes of a unit of size.
func sizeFactor(unit string) (factor int64, ok bool) {
	return prefixFactor(strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "b"))
}

// ParseBytes reads a size in bytes: "4GiB", "512 MB", "4G", "1.5e9", "123". Case does not matter. A fraction of a
// byte is rounded to the nearest whole one. Sizes that do not fit in an int64 are errors.
func ParseBytes(text string) (int64, error) {
	digits, unit, reason := split(text)
	if reason != "" {
		return 0, bad(text, reason, sizeExamples)
	}
	factor, ok := sizeFactor(unit)
	if !ok {
		return 0, bad(text, fmt.Sprintf("%q is not a unit of size", unit), sizeExamples)
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n <= math.MaxInt64/factor {
		return n * factor, nil
	}
	x, err := strconv.ParseFloat(digits, 64)
	if unit == "" && x != math.Trunc(x) {
		return 0, bad(text, "it has no unit and is no whole number of bytes", sizeExamples)
	}
	if bytes := math.Round(x * float64(factor)); err == nil && bytes < 1<<63 {
		return int64(bytes), nil
	}
	return 0, bad(text, "it is more than 2^63 bytes", sizeExamples)
}

// ParseBandwidth reads bytes per second: "12GB/s", "1.5e9", or bits as in "100Gbit/s". The bandwidth is positive
// and finite. A lower-case b behind an upper-case prefix ("12Gb/s") could be either and is an error.
func ParseBandwidth(text string) (float64, error) {
	digits, unit, reason := split(text)
	if reason != "" {
		return 0, bad(text, reason, bandwidthExamples)
	}
	factor, reason := rateFactor(unit)
	if reason != "" {
		return 0, bad(text, reason, bandwidthExamples)
	}
	x, err := strconv.ParseFloat(digits, 64)
	switch x *= factor; {
	case err != nil || math.IsInf(x, 0):
		return 0, bad(text, "it is too large", bandwidthExamples)
	case x == 0:
		return 0, bad(text, "it is zero", bandwidthExamples)
	case x < slowest:
		return 0, bad(text, "it is next to nothing: times would be too long for numbers", bandwidthExamples)
	}
	return x, nil
}

// slowest is the least bandwidth, bytes/s, at which sums of the times of any transfers are numbers.
const slowest = 1e-100

// rateFactor returns the bytes per second of a unit.
func rateFactor(unit string) (factor float64, reason string) {
	size := strings.TrimSuffix(unit, "/s")
	bits := 1.0
	switch {
	case strings.HasSuffix(size, "bit"):
		size, bits = strings.TrimSuffix(size, "bit"), 8
	case strings.HasSuffix(size, "b"):
		return 0, fmt.Sprintf("%q could be bits or bytes: write B for bytes, bit for bits", unit)
	default:
		size = strings.TrimSuffix(size, "B")
	}
	prefix, ok := prefixFactor(size)
	if !ok {
		return 0, fmt.Sprintf("%q is not a unit of bandwidth", unit)
	}
	return float64(prefix) / bits, ""
}

// ParsePercent reads a share as "40%" and returns it as a fraction, 0.4. The share is positive and finite; it may
// be above 100 %.
func ParsePercent(text string) (float64, error) {
	digits, unit, reason := split(text)
	if reason == "" && unit != "%" {
		reason = "it does not end in %"
	}
	if reason != "" {
		return 0, bad(text, reason, percentExamples)
	}
	x, err := strconv.ParseFloat(hundredth(digits), 64)
	switch {
	case err != nil:
		return 0, bad(text, "it is too large", percentExamples)
	case x == 0:
		return 0, bad(text, "it is zero", percentExamples)
	}
	return x, nil
}

// hundredth divides a decimal by 100 in its text, where no digit is lost.
func hundredth(digits string) string {
	mantissa, exponent, found := strings.Cut(strings.ToLower(digits), "e")
	if !found {
		return digits + "e-2"
	}
	e, err := strconv.Atoi(exponent)
	if err != nil {
		return digits // an exponent that ParseFloat refuses, or takes as zero, as well
	}
	return mantissa + "e" + strconv.Itoa(e-2)
}
