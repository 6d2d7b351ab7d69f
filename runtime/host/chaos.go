package host

import (
	"math/rand/v2"
	goruntime "runtime"
	"time"
)

// chaos delays one stream at random. A nil chaos does not.
type chaos struct{ random *rand.Rand }

func newChaos(seed uint64, stream int) *chaos {
	if seed == 0 {
		return nil
	}
	return &chaos{rand.New(rand.NewPCG(seed, uint64(stream)))}
}

// delay does nothing, gives way to other goroutines, or naps.
func (c *chaos) delay() {
	if c == nil {
		return
	}
	switch length := c.next(); {
	case length > 0:
		nap(length)
	case length == 0:
		goruntime.Gosched()
	}
}

// next draws a delay: 0 to 0.2 ms in one of eight cases, just giving way (0) in two, none (-1) in the others.
func (c *chaos) next() time.Duration {
	switch c.random.IntN(8) {
	case 0:
		return time.Duration(c.random.IntN(200)) * time.Microsecond
	case 1, 2:
		return 0
	}
	return -1
}
