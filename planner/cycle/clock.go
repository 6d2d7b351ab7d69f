package cycle

// Time: compute ops (F, B, U) run one at a time. Copies run in their order on each direction of the link, or all on one link. Host updates
// run on a stream of their own. An op starts when its stream is free, its inputs have arrived, and its memory fits. An op that does not
// compute also waits for every compute op before it. U also waits for Ow and Os, and H for Pw and Ps, of the data that it writes. Pw and Ps
// wait for the copies and updates that wrote the host's data. A drop (Dw, Ds) takes no time: its bytes are free when the compute op before
// it and the item's copies have ended. At one instant ops end, then memory is freed, then ops start, the first in the sequence first.
//
// Steps run on until their state repeats: the running ops, their remaining times, and the bytes in use. The period is the mean over the
// steps of one repetition. Times are whole ticks, so that states are equal or not (see clock). If the chain says how much ops, copies and
// host updates slow each other, they are slower while they overlap (chain.Contention). States that differ by less than a millionth of a
// step are then equal.

import (
	"math"
	"math/big"
	"strconv"
)

// mostTicks bounds the sum of all durations of a chain, in ticks: thousands of steps of thousands of ops are then a number.
const mostTicks = 1 << 46

// clock counts time in ticks. A time of a chain is the decimal number that its file has, and a copy takes the exact quotient of bytes and
// bandwidth. If all are multiples of a tick, and their sum is at most mostTicks of it, that is the tick. Otherwise the tick is the
// shortest power of two of a second with such a sum, and durations are rounded to it.
type clock struct {
	perSecond *big.Rat
	rate      float64 // perSecond, rounded
}

// newClock makes the clock of some durations, in seconds.
func newClock(durations []*big.Rat) clock {
	total := 0.0
	common := big.NewInt(1)
	for _, d := range durations {
		if d == nil {
			continue
		}
		x, _ := d.Float64()
		total += x
		if common.BitLen() < 64 {
			gcd := new(big.Int).GCD(nil, nil, common, d.Denom())
			common.Mul(common, gcd.Quo(d.Denom(), gcd))
		}
	}
	exact, _ := new(big.Float).SetInt(common).Float64()
	rate := new(big.Rat).SetInt(common)
	if exact*total > mostTicks {
		return roundedClock(total, mostTicks)
	}
	f, _ := rate.Float64()
	return clock{rate, f}
}

// contendedTicks bounds the sum of all durations where ops slow each other: by a thousand times, in a thousand steps, it is a number too.
const contendedTicks = 1 << 41

// fineClock makes a clock whose ticks are the shortest power of two of a second with which the sum of some durations, in seconds, is at most
// contendedTicks.
func fineClock(durations []*big.Rat) clock {
	total := 0.0
	for _, d := range durations {
		if d != nil {
			x, _ := d.Float64()
			total += x
		}
	}
	return roundedClock(total, contendedTicks)
}

// roundedClock makes the clock of durations that add up to a total, in seconds, of at most so many ticks.
func roundedClock(total, ticks float64) clock {
	_, exponent := math.Frexp(total) // total < 2^exponent
	rate := new(big.Rat).SetFloat64(math.Ldexp(ticks, -exponent))
	f, _ := rate.Float64()
	return clock{rate, f}
}

// ticks rounds a duration, in seconds, to ticks.
func (k clock) ticks(d *big.Rat) int64 {
	t := new(big.Rat).Mul(d, k.perSecond)
	if t.IsInt() {
		return t.Num().Int64()
	}
	t.Add(t, big.NewRat(1, 2))
	return new(big.Int).Quo(t.Num(), t.Denom()).Int64()
}

// seconds is the inverse of ticks.
func (k clock) seconds(ticks int64) float64 { return float64(ticks) / k.rate }

// exact returns the seconds of a part of so many ticks.
func (k clock) exact(ticks int64, parts int) *big.Rat {
	return new(big.Rat).Quo(big.NewRat(ticks, int64(parts)), k.perSecond)
}

// decimal returns the shortest decimal number that reads as x.
func decimal(x float64) *big.Rat {
	d, _ := new(big.Rat).SetString(strconv.FormatFloat(x, 'g', -1, 64))
	return d
}
