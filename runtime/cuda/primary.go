//go:build cuda && linux && amd64

package cuda

import (
	"sync"

	"gorgonia.org/cu"
)

// primaries are the primary contexts of this process. One is retained when its GPU is first opened, and stays for as long as
// the program runs, whatever is closed. So libraries' objects in it stay valid, and opening the GPU again costs nothing.
// Only a context that is lost is given up, by the last device that closes, so that the next one gets another.
type primaries struct {
	mu  sync.Mutex
	all map[cu.Device]*primary
}

type primary struct {
	context cu.CUContext
	devices int // that are open
	lost    bool
}

var contexts = primaries{all: map[cu.Device]*primary{}}

// enter returns the GPU's context for one more device.
func (p *primaries) enter(gpu cu.Device) (cu.CUContext, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[gpu] == nil {
		context, err := gpu.RetainPrimaryCtx()
		if err != nil {
			return context, err
		}
		p.all[gpu] = &primary{context: context}
	}
	p.all[gpu].devices++
	return p.all[gpu].context, nil
}

// leave is for a device that has closed; lost: its context answers nothing but errors.
func (p *primaries) leave(gpu cu.Device, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[gpu]
	one.devices--
	one.lost = one.lost || lost
	if one.devices > 0 || !one.lost {
		return
	}
	delete(p.all, gpu)
	_ = gpu.ReleasePrimaryCtx() // may well return the error that has taken the context
}
