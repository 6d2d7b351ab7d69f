package pipeline

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// exact returns the decimal that a number is written as: a file that says 0.1 means a tenth, not the float nearest to it.
func exact(x float64) *big.Rat {
	r, ok := new(big.Rat).SetString(decimal(x))
	if !ok {
		panic("BUG: " + decimal(x) + " is no number")
	}
	return r
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'e', -1, 64) }

// digits returns how many decimal places the number has when it is written in full.
func digits(x float64) int {
	mantissa, exponent, _ := strings.Cut(decimal(x), "e")
	e, err := strconv.Atoi(exponent)
	if err != nil {
		panic("BUG: " + decimal(x) + " has no exponent")
	}
	_, places, _ := strings.Cut(mantissa, ".")
	return max(0, len(places)-e)
}

// ticks are times as whole numbers of a unit that all times of a plan are multiples of, so that sums and comparisons are
// exact and cheap.
type ticks = *big.Int

func add(x, y ticks) ticks         { return new(big.Int).Add(x, y) }
func sub(x, y ticks) ticks         { return new(big.Int).Sub(x, y) }
func less(x, y ticks) bool         { return x.Cmp(y) < 0 }
func modulo(x, period ticks) ticks { return new(big.Int).Mod(x, period) }

// periods returns how many whole periods x is long.
func periods(x, period ticks) *big.Int { return new(big.Int).Div(x, period) }

// ceil returns the least whole number that is not below x, at most the largest int64.
func ceil(x *big.Rat) int64 {
	n := new(big.Int).Neg(x.Num())
	n.Neg(n.Div(n, x.Denom()))
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// times returns a number of bytes.
func times(copies float64, size int64) *big.Rat {
	x := exact(copies)
	return x.Mul(x, new(big.Rat).SetInt64(size))
}

func modulus(x, n int) int { return (x%n + n) % n }

// tolerance is the part of the period or makespan that is forgiven: the rounding of whoever made the plan.
var tolerance = big.NewInt(1e9)
