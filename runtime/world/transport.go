package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"plimsoll/runtime"
)

// Transport moves messages between devices of different processes, and adds up what they have. Every process opens the same ways and
// lines; each end of a way is used by one stream. Launching a launch again repeats it. There are two: HostBytes, whose messages the
// program moves, and that of package nccl, where streams of devices do.
type Transport interface {
	// Open opens ways, in place of those that were open. It is collective. Errors: *DisagreementError; ErrTransport for a device that
	// the transport does not serve.
	Open(ways []Way) error
	// Send returns a launch that sends a span of the way's device; it may be written again behind the launch.
	Send(way int, src runtime.Span) (runtime.Launch, error)
	// Receive returns a launch that fills a span of the way's device with the next message.
	Receive(way int, dst runtime.Span) (runtime.Launch, error)
	// OpenSums opens lines, as Open does ways. A transport that cannot add up refuses with ErrTransport.
	OpenSums(lines []Line) error
	// Sum returns a launch that makes parts of the arena of a line's device, float32 numbers, the sums of those of all devices of the
	// line. A device's part waits until all others have begun theirs. The bits are the same on all devices, and may differ from run to
	// run.
	Sum(line int, parts []runtime.Span) (runtime.Launch, error)
	// Sent counts the messages that this process has sent, and their bytes without headers: as the plan does.
	Sent() (messages, bytes int64)
	// DeviceBytes returns the memory of devices that the transport has beside their arenas.
	DeviceBytes() int64
	// Close makes what waits fail.
	Close() error
}

// Way is a directed way between two ranks; messages arrive in the order sent.
type Way struct {
	Name     string // for errors
	From, To int
	Bytes    int64          // of the longest message
	Device   runtime.Device `json:"-"` // of the end in this process; nil where none is
}

// Line is ranks that add up what they have.
type Line struct {
	Name   string         // for errors
	Ranks  []int          // two or more, each once
	Device runtime.Device `json:"-"` // of this process; nil where it has no part
}

// ErrTransport says that a transport does not do something, or not for a device.
var ErrTransport = errors.New("bad transport")

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

// digest is the digest of a list.
func digest[T any](what string, list []T) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%d %s %s", len(list), what, hex.EncodeToString(sum[:8]))
}

// Cause returns why a call of a transport really failed, whose context ends with the world. A connection is lost first, and the world knows
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
