package tcp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"runtime"
)

// errElsewhere says that a process is not reached by a socket of this machine.
var errElsewhere = errors.New("it is on another machine")

// nameHere is where a process listens for others of its machine: a name that only they can know, and no file (Linux).
func (f *fabric) nameHere(rank int) string {
	return fmt.Sprintf("@plimsoll-%s-%d", hex.EncodeToString(f.world.Key("sockets of this machine")[:8]), rank)
}

func (f *fabric) listenHere(ctx context.Context) (net.Listener, error) {
	if runtime.GOOS != "linux" {
		return nil, errElsewhere
	}
	return new(net.ListenConfig).Listen(ctx, "unix", f.nameHere(f.world.Rank()))
}

// dialHere connects to a process whose host has the same name; where it is another machine all the same nobody listens.
func (f *fabric) dialHere(ctx context.Context, rank int) (net.Conn, error) {
	if hosts := f.world.Hosts(); runtime.GOOS != "linux" || hosts[rank] != hosts[f.world.Rank()] {
		return nil, errElsewhere
	}
	return new(net.Dialer).DialContext(ctx, "unix", f.nameHere(rank))
}
