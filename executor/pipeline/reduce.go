package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/table"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// longestSlice bounds the memory of a sum on its way, in bytes.
const longestSlice = 4 << 20

// newReducer returns the reducer of a stage whose gradients take so many bytes; nil for a stage on one device.
func newReducer(stage int, hosts []int, source int, bytes int64, planned bool) *reducer {
	if len(hosts) < 2 || bytes == 0 {
		return nil
	}
	r := &reducer{hosts: hosts, slice: min(bytes, longestSlice)}
	r.slices = int((bytes + r.slice - 1) / r.slice)
	for _, to := range hosts {
		if to != source {
			l := between("statistics", stage, source, to, 1)
			l.asked = true
			r.stats = append(r.stats, l)
		}
	}
	if planned {
		return r
	}
	last := hosts[len(hosts)-1]
	for i, from := range hosts[:len(hosts)-1] {
		r.up = append(r.up, between("partial gradients", stage, from, hosts[i+1], 2))
		r.down = append(r.down, between("gradients", stage, last, from, 1))
		r.up[i].bytes, r.down[i].bytes, r.down[i].asked = r.slice, bytes, true
		for k := range r.slices {
			r.up[i].sizes = append(r.up[i].sizes, min(r.slice, bytes-int64(k)*r.slice))
		}
	}
	return r
}

// channels returns all channels of a reducer.
func (r *reducer) channels() []*channel {
	if r == nil {
		return nil
	}
	return slices.Concat(r.up, r.down, r.stats)
}

// layOut places what a replica receives.
func (r *reducer) layOut(t *localStage, g *allocator) {
	if r == nil {
		return
	}
	if l := r.statisticsTo(t.device); l != nil {
		l.blocks[0] = t.buffers
	}
	i := slices.Index(r.hosts, t.device)
	if len(r.up) == 0 {
		return
	}
	if i > 0 {
		r.up[i-1].layOut(g)
	}
	if i < len(r.hosts)-1 {
		r.down[i].size(len(t.grads))
		copy(r.down[i].blocks, t.grads)
	}
}

// statisticsTo returns the channel by which a replica gets statistics; nil: it has them.
func (r *reducer) statisticsTo(device int) *channel {
	for _, l := range r.stats {
		if l.to == device {
			return l
		}
	}
	return nil
}

// sumAlong makes the gradients in a slot of a stage the sum of those of all replicas, slice by slice along their line.
func (d sumCompiler) sumAlong(ctx context.Context, t *localStage, slot int) error {
	r, grads := d.lay.reducers[t.stage], t.grads[slot]
	i, last := slices.Index(r.hosts, d.Number), len(r.hosts)-1
	for k := range r.slices {
		at := grads.Part(int64(k)*r.slice, min(r.slice, grads.Bytes-int64(k)*r.slice))
		if err := d.pass(ctx, t, r, i, t.rounds*r.slices+k, at); err != nil {
			return err
		}
	}
	t.rounds++
	if i < last {
		return d.receive(ctx, r.down[i], slot, t.rounds)
	}
	return d.tellAll(ctx, t, r.down, t.rounds, grads)
}

// pass adds a slice to what arrives from the replica before, and sends it on to the next one.
func (d sumCompiler) pass(ctx context.Context, t *localStage, r *reducer, i, number int, at runtime.Span) error {
	if i > 0 {
		l := r.up[i-1]
		block, slice, err := d.received(ctx, l, number)
		if err != nil {
			return err
		}
		add, err := d.binder.add(at, slice.Part(0, at.Bytes))
		if err != nil {
			return err
		}
		d.compute.Launch(add)
		d.release(l, block)
	}
	if i == len(r.hosts)-1 {
		return nil
	}
	d.compute.Record(t.summed)
	return d.send(ctx, r.up[i], nil, number, t.summed, at)
}

// share sends the statistics of one replica to the others, behind what they have issued so far. Without a flush replicas would have to
// run in step for statistics that no task reads: theirs become the first one's where a segment ends, as PyTorch's
// DistributedDataParallel has it.
func (d sumCompiler) share(ctx context.Context, t *localStage) error {
	r := d.lay.reducers[t.stage]
	if r == nil || t.buffers.Bytes == 0 {
		return nil
	}
	t.shared++
	if l := r.statisticsTo(d.Number); l != nil {
		return d.receive(ctx, l, 0, t.shared)
	}
	return d.tellAll(ctx, t, r.stats, t.shared, t.buffers)
}

// tellAll sends data that are ready on the compute stream to other devices. Later work of that stream may overwrite
// them.
func (d sumCompiler) tellAll(ctx context.Context, t *localStage, to []*channel, number int, src runtime.Span) error {
	d.compute.Record(t.summed)
	for _, l := range to {
		if err := d.send(ctx, l, nil, number, t.summed, src); err != nil {
			return err
		}
	}
	for _, l := range to {
		d.compute.Wait(l.arrived[l.latest])
	}
	return nil
}

// receive asks for what arrives in a block, which this replica has no use for until then, and waits for it.
func (d sumCompiler) receive(ctx context.Context, l *channel, block, number int) error {
	d.release(l, block)
	_, _, err := d.received(ctx, l, number)
	return err
}

// add returns the launch that adds float32 numbers to others.
func (b *binder) add(to, from runtime.Span) (table.Prepared, error) {
	k := sumKey{to.Offset, from.Offset, to.Bytes}
	if l, ok := b.sums[k]; ok {
		return l, nil
	}
	d := kernels.F32(int(to.Bytes / kernels.Float32.Size()))
	l, err := b.call(
		kernels.Call{Op: kernels.Add{}, Pass: kernels.Forward, In: []kernels.Desc{d, d}, Train: true},
		kernels.Operands{X: []runtime.Span{to, from}, Y: to},
	)
	if err != nil {
		return table.Prepared{}, fmt.Errorf("sum of gradients: %w", err)
	}
	b.sums[k] = l
	return l, nil
}
