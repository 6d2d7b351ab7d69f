package world

import (
	"context"
	"encoding/json"
	"fmt"
)

// AllGather returns the data that every rank gives, by rank. It is collective: all ranks call the collectives in the same order.
// Errors: the cause of the world's end; that of ctx, after which this world is of no use and should Fail; ErrTooLong.
func (w *World) AllGather(ctx context.Context, data []byte) ([][]byte, error) {
	return w.gather(ctx, "AllGather", data)
}

// Broadcast returns root's data. It is collective.
func (w *World) Broadcast(ctx context.Context, root int, data []byte) ([]byte, error) {
	if root < 0 || root >= w.Size() {
		return nil, fmt.Errorf("a broadcast from rank %d of %d", root, w.Size())
	}
	if root != w.Rank() {
		data = nil
	}
	parts, err := w.gather(ctx, fmt.Sprintf("Broadcast from rank %d", root), data)
	if err != nil {
		return nil, err
	}
	return parts[root], nil
}

// Agree compares what ranks have by name. It is collective, and gives all the same *DisagreementError: with the first rank that differs
// from rank 0, in the first name.
func (w *World) Agree(ctx context.Context, what map[string]string) error {
	own, err := json.Marshal(what)
	if err != nil {
		return err
	}
	parts, err := w.gather(ctx, "Agree", own)
	if err != nil {
		return err
	}
	all := make([]map[string]string, len(parts))
	for rank, part := range parts {
		if err := json.Unmarshal(part, &all[rank]); err != nil {
			return fmt.Errorf("what rank %d on %s agrees to: %w", rank, w.start.Hosts[rank], err)
		}
		if e := compare(all[0], all[rank]); e != nil {
			e.Ranks[1], e.Hosts = rank, [2]string{w.start.Hosts[0], w.start.Hosts[rank]}
			return e
		}
	}
	return nil
}

// gather is the one collective of which the others are made.
func (w *World) gather(ctx context.Context, what string, data []byte) ([][]byte, error) {
	result := make(chan [][]byte, 1)
	if err := w.contribute(what, data, result); err != nil {
		return nil, err
	}
	return w.outcome(ctx, result)
}

// outcome returns the parts of a round, also where the world, or ctx, has ended since it was complete.
func (w *World) outcome(ctx context.Context, result <-chan [][]byte) ([][]byte, error) {
	select {
	case <-w.ctx.Done():
	case <-ctx.Done():
	case parts := <-result:
		return parts, nil
	}
	select {
	case parts := <-result:
		return parts, nil
	default:
	}
	if err := context.Cause(w.ctx); err != nil {
		return nil, err
	}
	return nil, context.Cause(ctx)
}

// contribute sends this rank's part of the next round. Rounds go out in their order.
func (w *World) contribute(what string, data []byte, result chan [][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.send(&message{Kind: gather, Round: w.round, What: what, Data: data}, (*link).send); err != nil {
		return err
	}
	w.waiting[w.round] = result
	w.round++
	return nil
}

// complete hands the parts of a round to whoever waits for them.
func (w *World) complete(m *message) {
	w.mu.Lock()
	result := w.waiting[m.Round]
	delete(w.waiting, m.Round)
	w.mu.Unlock()
	if result != nil && len(m.Parts) == w.Size() {
		result <- m.Parts
	}
}
