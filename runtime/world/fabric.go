package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Way is a directed way between two ranks; messages arrive in the order sent.
type Way struct {
	Name     string // for errors
	From, To int
	Bytes    int64 // of the longest message
}

// Line is ranks that add up what they have.
type Line struct {
	Name  string // for errors
	Ranks []int  // two or more, each once
}

// Part is bytes of memory, from somewhere on.
type Part struct{ Offset, Bytes int64 }

// Fabric moves messages. Every process opens the same list of ways; each end of a way is used by one goroutine at a time.
type Fabric interface {
	// Open is collective.
	Open(ctx context.Context, ways []Way) error
	// Send returns when p may be written again.
	Send(way int, p []byte) error
	// Receive fills p. A message of another size is a *SizeError.
	Receive(way int, p []byte) error
	// Sent returns what this process has sent, without headers: it equals the plan's.
	Sent() (messages, bytes int64)
	// Close makes what waits fail.
	Close() error
}

// SizeError says that the two ends of a way have other messages in mind.
type SizeError struct {
	Way
	Sent     uint64 // bytes
	Expected int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("way %s: rank %d sent a message of %d bytes, rank %d expected %d", e.Name, e.From, e.Sent, e.To, e.Expected)
}

// AgreeOnWays compares the list of ways of all ranks, and what else must be the same to open them. It is collective. Errors:
// *DisagreementError; a way that cannot be.
func (w *World) AgreeOnWays(ctx context.Context, ways []Way, more map[string]string) error {
	for _, x := range ways {
		if x.From < 0 || x.From >= w.Size() || x.To < 0 || x.To >= w.Size() || x.Bytes < 0 {
			return fmt.Errorf("way %s of %d bytes from rank %d to %d, of %d ranks", x.Name, x.Bytes, x.From, x.To, w.Size())
		}
	}
	all := map[string]string{"the list of ways": digest("ways", ways)}
	maps.Copy(all, more)
	return w.Agree(ctx, all)
}

// AgreeOnLines does the same for lines.
func (w *World) AgreeOnLines(ctx context.Context, lines []Line, more map[string]string) error {
	for _, l := range lines {
		ranks := slices.Sorted(slices.Values(l.Ranks))
		if len(ranks) < 2 || ranks[0] < 0 || ranks[len(ranks)-1] >= w.Size() || len(slices.Compact(ranks)) < len(l.Ranks) {
			return fmt.Errorf("%s: a line of ranks %v, of %d", l.Name, l.Ranks, w.Size())
		}
	}
	all := map[string]string{"the list of sums": digest("lines", lines)}
	maps.Copy(all, more)
	return w.Agree(ctx, all)
}

// digest is that of a list.
func digest[T any](what string, list []T) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%d %s %s", len(list), what, hex.EncodeToString(sum[:8]))
}

// Cause returns why a call of a fabric really failed, whose context ends with the world. A connection is lost first, and the world knows
// why a moment later: which rank died, not who waited for it. For that it waits with patience.
func (w *World) Cause(ctx context.Context, err error, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return err
	}
}
