package validate

import (
	"bytes"
	"context"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

const (
	// beyond is how far behind the predicted end writes would be seen, bytes.
	beyond = 1 << 16
	// painted is the byte that memory is filled with: no number that is finite has such a byte at its end, and no label.
	painted = 0xFF
)

// paint fills the arena behind the static memory of each device.
func (r *Row) paint(on []executor.Target) error {
	for d, m := range r.pipe.Needs {
		inspector, ok := on[d].Device.(runtime.Inspector)
		if !ok || !r.line.Uses(d) {
			continue
		}
		if err := inspector.Fill(runtime.Span{Offset: m.Static, Bytes: m.Extent + beyond - m.Static}, painted); err != nil {
			return err
		}
	}
	return nil
}

// look evaluates a batch, for which memory is laid out as well, and finds the highest byte of each device that is not as paint
// left it.
func (r *Row) look(ctx context.Context, on []executor.Target, x *pipe.Executor, feed pipe.Feed) error {
	if err := x.Evaluate(ctx, feed, 1, func(int, []float32) error { return nil }); err != nil {
		return err
	}
	for d, m := range r.pipe.Needs {
		inspector, ok := on[d].Device.(runtime.Inspector)
		if !ok || !r.line.Uses(d) {
			continue
		}
		all := make([]byte, m.Extent+beyond)
		if err := inspector.Peek(runtime.Span{Bytes: int64(len(all))}, all); err != nil {
			return err
		}
		r.PerDevice[d].TouchedBytes = int64(len(bytes.TrimRight(all, string([]byte{painted}))))
	}
	return nil
}

// Exact reports whether the run wrote up to the predicted end, and not behind it. The last tensor ends within the last two
// granules: its own end is aligned, and what it holds may be.
func (d *Device) Exact() bool {
	return d.TouchedBytes <= d.ExtentBytes && d.TouchedBytes > d.ExtentBytes-2*kernels.Alignment
}
