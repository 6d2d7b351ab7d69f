package pipeline

import (
	"math/big"
	"slices"
)

// arrivals are the reduces of a stage that come to one replica from another.
type arrivals struct {
	largest int64       // bytes
	rounds  map[int]int // messages, by the first residue of the round
	stays   []stay      // of parts: when each is there
}

// receives returns the bytes of the blocks of device d in which gradients of a stage arrive from its other replicas. From each that
// sends some there are two blocks, so that one is added up while the next one comes, or one where a round has one message alone. Parts
// are added up in the order of the devices. There are as many blocks as parts are there at one time. A part is there from the start of
// a message until it is added up (addedAt). A block has the bytes of the largest message. Where
// gradients are divided, all stages of the device have these blocks together, as many as are needed at one time. They count with the first one.
func (c account) receives(s, d int) (bytes int64) {
	if c.platform.NoBuffers {
		return 0
	}
	if c.plan.Zero.dividesGradients() && s != c.firstOn(d) {
		return 0
	}
	from := map[int]*arrivals{}
	var rounding ticks
	for _, x := range c.sums {
		for _, j := range x.reduces {
			if x.stage != s && !c.plan.Zero.dividesGradients() || j == nil || j.to != d {
				continue
			}
			a := from[j.from]
			if a == nil {
				a = &arrivals{rounds: map[int]int{}}
				from[j.from] = a
			}
			a.largest = max(a.largest, PartBytes(weights(c.chain, x.first, x.last), x.part, len(x.line)))
			a.rounds[x.round[0]]++
			if x.part > 0 && rounding == nil {
				rounding = new(big.Int).Div(c.span(), tolerance)
			}
			if x.part > 0 {
				a.stays = append(a.stays, c.unowned(x, j, rounding))
			}
		}
	}
	for _, a := range from {
		blocks := highest(a.stays, nil, 0).bytes.Int64()
		for _, messages := range a.rounds {
			if !c.plan.Zero.dividesGradients() {
				blocks = max(blocks, int64(min(messages, 2)))
			}
		}
		bytes += blocks * a.largest
	}
	return bytes
}

// firstOn returns the first stage that is on a device.
func (c account) firstOn(d int) int {
	return slices.IndexFunc(c.plan.Stages, func(st Stage) bool { return slices.Contains(st.Devices, d) })
}

// unowned returns when gradients of a part are there that are not yet added up. Times that differ by the rounding are the same.
func (c account) unowned(x *sum, j *job, rounding ticks) stay {
	return stay{hold{1, None, j.task}, j.start, before(j.start, divisionOf(c.layout).addedAt(x), rounding)}
}
