package train

import (
	"context"
	"math"
)

// largestOf bounds batches and steps of images.
const largestOf = 1 << 24

// largestWithin returns the largest n that needs at most limit bytes, 0 if there is none. Needs grow nearly in proportion to a power of
// n: each guess is on the line through two sizes, but between one that fits and one that does not every third halves what is left.
func largestWithin(ctx context.Context, limit int64, start int, power float64, need func(n int) (int64, error)) (int, error) {
	low, high := bracket{}, bracket{n: start}
	for tried := 0; high.bytes == 0 || high.n-low.n > 1; tried++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := high.n
		switch {
		case high.bytes == 0: // not tried yet
		case high.bytes == math.MaxInt64 || tried%3 == 2:
			n = (low.n + high.n) / 2
		default:
			n = min(low.towards(high, limit, power), high.n-1)
		}
		bytes, err := need(n)
		if err != nil || bytes <= limit && n >= largestOf {
			return n, err
		}
		here := bracket{n, bytes}
		switch {
		case bytes > limit:
			high = here
		case high.bytes == 0:
			low, high = here, bracket{n: min(max(low.towards(here, limit, power), n+1<<tried), largestOf)}
		default:
			low = here
		}
	}
	return low.n, nil
}

// bracket is an end of a search.
type bracket struct {
	n     int
	bytes int64
}

// towards guesses, by two sizes, where bytes are reached; above the smaller one.
func (b bracket) towards(high bracket, bytes int64, power float64) int {
	share := float64(bytes-b.bytes) / float64(max(high.bytes-b.bytes, 1))
	from, to := math.Pow(float64(b.n), power), math.Pow(float64(high.n), power)
	return max(int(min(math.Pow(from+share*(to-from), 1/power), largestOf)), b.n+1)
}
