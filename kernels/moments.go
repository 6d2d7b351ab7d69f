package kernels

import (
	"math"

	"plimsoll/runtime"
)

// Moments moves the running statistics of a BatchNorm once for a minibatch that went through it in several batches. It
// takes the mean and the unbiased variance of the whole minibatch, as torchgpipe's deferred batch normalization does. Each
// batch is still normalized by its own statistics.
//
// The statistics wait in rows of Channels float32, Row apart. Batch 0's means come first, then its unbiased variances, then
// batch 1's means, and so on. A forward with Momentum 1 leaves them there in place of its running statistics. A launch
// takes them and leaves NoMoment, to which a sum of two such blocks adds nothing. Where the rows of some batch still hold
// NoMoment, because a forward has not been or its statistics were not finite, running statistics stay as they are, channel
// by channel.
type Moments struct {
	Momentum float32 // of the minibatch's statistics, as BatchNorm's; 0 means 0.1
	Batches  int
	Rows     int64 // of a batch: the values of one channel; at least 2
	Channels int
}

// NoMoment is -0, the one number that added to any number, itself too, leaves that number's bits. No variance is -0.
var NoMoment = float32(math.Copysign(0, -1))

// Defaults returns m with the documented values in place of zeros.
func (m Moments) Defaults() Moments {
	m.Momentum = BatchNorm{Momentum: m.Momentum}.Defaults().Momentum
	return m
}

// Row returns the bytes from row to row.
func (m Moments) Row() int64 { return Align(int64(m.Channels) * Float32.Size()) }

// Bytes returns the bytes of all rows.
func (m Moments) Bytes() int64 { return 2 * int64(m.Batches) * m.Row() }

// MomentsOperands binds moments to memory.
type MomentsOperands struct {
	Moments        runtime.Span // the rows
	Mean, Variance runtime.Span // the running statistics: Channels float32 each
}

// Uses lists the operands: the rows as Save, the running statistics as Params 2 and 3, as BatchNorm's.
func (o MomentsOperands) Uses(m Moments) []Use {
	var l uses
	bytes := int64(m.Channels) * Float32.Size()
	l.add(Save, 0, o.Moments, m.Bytes(), true, true)
	l.add(ParamRole, 2, o.Mean, bytes, true, true)
	l.add(ParamRole, 3, o.Variance, bytes, true, true)
	return l
}

// Check refuses, with an *OpError, moments whose attributes or operands no library can use.
func (o MomentsOperands) Check(m Moments) error {
	const kind = "moments"
	switch {
	case !(m.Momentum >= 0 && m.Momentum <= 1):
		return bad(kind, "Momentum", "%v is not from 0 to 1", m.Momentum)
	case m.Batches < 1 || m.Channels < 1:
		return bad(kind, "Batches", "%d batches of %d channels: want at least 1 of each", m.Batches, m.Channels)
	case m.Rows < 2:
		return bad(kind, "Rows", "%d values have no variance: want at least 2", m.Rows)
	case int64(m.Batches) > MaxElements/int64(m.Channels)/2:
		return bad(kind, "Batches", "%d batches of %d channels are more than %d numbers", m.Batches, m.Channels, int64(MaxElements))
	}
	return checkUses(kind, runtime.Arena, o.Uses(m))
}
