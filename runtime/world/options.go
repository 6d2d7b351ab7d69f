package world

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"
)

// Options say how the processes of a world meet.
type Options struct {
	Identity
	Secret               []byte            // everybody's; empty: only loopback addresses are accepted and dialled
	Certificate, Key, CA string            // files, may be empty; TLS with them instead of the key derived from the secret
	Timeout              time.Duration     // of the rendezvous; 0: 2 minutes
	Heartbeat            time.Duration     // between the beats of a rank; 0: a second
	Patience             time.Duration     // a rank that is silent for so long is lost; 0: 10 seconds
	Agree                map[string]string // what must be the same everywhere (hashes of the program, the seed, ...), by name
	Status               func() string     // what this process does now, for heartbeats; may be nil
	Note                 func(string)      // on rank 0, of who is turned away as it comes; may be nil
	Longest              int               // bytes of the longest message; 0: 64 MiB

	listen func(ctx context.Context, g *guard, address string) (net.Listener, error)
	dial   func(ctx context.Context, g *guard, address string) (net.Conn, error)
}

func (o *Options) fill() error {
	o.Timeout = orDefault(o.Timeout, defaultTimeout)
	o.Heartbeat = orDefault(o.Heartbeat, defaultHeartbeat)
	o.Patience = orDefault(o.Patience, defaultPatience)
	o.Longest = orDefault(o.Longest, defaultLongest)
	if o.Rank < 0 || o.Rank >= o.Size {
		return fmt.Errorf("%w: rank %d of %d", ErrIdentity, o.Rank, o.Size)
	}
	if o.Patience < 3*o.Heartbeat {
		return fmt.Errorf("%w: a patience of %v with a heartbeat every %v: at least three times as long is needed", ErrIdentity, o.Patience, o.Heartbeat)
	}
	if o.listen == nil {
		o.listen, o.dial = listenAt, dialAt
	}
	return nil
}

func orDefault[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

func (o *Options) status() string {
	if o.Status == nil {
		return ""
	}
	return clip(o.Status(), longestStatus)
}

// self returns how this process introduces itself.
func (o *Options) self() *introduction {
	return &introduction{Protocol: protocol, Rank: o.Rank, Size: o.Size, Host: hostName(), Process: os.Getpid(), Agree: o.Agree}
}

// hostName is the machine's, for people.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "an unnamed machine"
	}
	return name
}

const (
	defaultTimeout   = 2 * time.Minute
	defaultHeartbeat = time.Second
	defaultPatience  = 10 * time.Second
	defaultLongest   = 64 << 20
	longestStatus    = 200 // bytes
	longestFailure   = 4 << 10
)
