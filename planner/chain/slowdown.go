package chain

// Running is a set of what runs side by side.
type Running uint8

// The members of the set. A copy of a way is 1 << way.
const (
	RunningToHost   Running = 1 << ToHost
	RunningToDevice Running = 1 << ToDevice
	RunningOp       Running = 1 << iota
	RunningHostUpdate

	runningCopies = RunningToHost | RunningToDevice
)

// Contention says, for a link, how much ops, copies and updates on the host take from each other. Its methods return how
// many times as long something takes beside what runs. Where several slow it, what each adds to its time is added up.
type Contention struct {
	forward, backward           []Beside // by layer, from 0
	update, hostUpdate          Beside
	copies                      [2][1 << 4]float64 // by way and what runs
	opsBesideHost, hostBesideOp float64
}

// ContentionOver returns the contention over a link of bytes/s to the host and to the device; nil where the chain has none. An update on the
// device, beside copies, is slowed as all ops of the chain are in the mean.
func (c *Chain) ContentionOver(toHost, toDevice float64) *Contention {
	if !c.Contends() && !c.contendsOnHost() {
		return nil
	}
	link := [...]float64{ToHost: toHost, ToDevice: toDevice, BothWays: max(toHost, toDevice)}
	k := &Contention{opsBesideHost: once(c.OpsBesideHostUpdates), hostBesideOp: once(c.HostUpdatesBesideOps)}
	for i := range c.Layers {
		k.forward = append(k.forward, c.besideOver(c.Layers[i].ForwardBeside, link))
		k.backward = append(k.backward, c.besideOver(c.Layers[i].BackwardBeside, link))
	}
	k.update, k.hostUpdate = c.besideOver(c.Beside(), link), c.besideOver(c.HostUpdatesBeside, link)
	for way := range k.copies {
		for r := range Running(len(k.copies[way])) {
			times := c.CopiesBeside.factor(way, r&RunningOp) + c.CopiesBesideHostUpdates.factor(way, r&RunningHostUpdate) - 1
			if k.copies[way][r] = 1; times > 1 {
				k.copies[way][r] = c.CopyBeside(times, link[way])
			}
		}
	}
	return k
}

// contendsOnHost reports whether the chain says what updates on the host take from copies and ops, or lose to them.
func (c *Chain) contendsOnHost() bool {
	return c.HostUpdatesBeside != nil || c.CopiesBesideHostUpdates != nil || c.OpsBesideHostUpdates != nil || c.HostUpdatesBesideOps != nil
}

// once returns an optional factor.
func once(x *float64) float64 {
	if x == nil {
		return 1
	}
	return *x
}

// factor returns the factor of a way beside what runs; 1: nothing that slows it does.
func (b *CopiesBeside) factor(way int, runs Running) float64 {
	if b == nil || runs == 0 {
		return 1
	}
	return b[way]
}

// besideOver returns factors, measured beside copies at the chain's Bandwidth, beside those of a link.
func (c *Chain) besideOver(measured *Beside, link [3]float64) (b Beside) {
	for way := range b {
		if b[way] = 1; measured != nil {
			b[way] = c.OpBeside(measured[way], link[way])
		}
	}
	return b
}

// during returns the factor beside the copies that run.
func (b *Beside) during(r Running) float64 {
	if r &= runningCopies; r == 0 {
		return 1
	}
	return b[r-1] // RunningToHost is 1, RunningToDevice 2
}

// op returns the factor of an op of the device.
func (k *Contention) op(b *Beside, r Running) float64 {
	if r&RunningHostUpdate == 0 {
		return b.during(r)
	}
	return b.during(r) + k.opsBesideHost - 1
}

// Forward is of a layer's forward, of any kind.
func (k *Contention) Forward(layer int, r Running) float64 { return k.op(&k.forward[layer-1], r) }

// Backward is of a layer's backward.
func (k *Contention) Backward(layer int, r Running) float64 { return k.op(&k.backward[layer-1], r) }

// Update is of an update on the device.
func (k *Contention) Update(r Running) float64 { return k.op(&k.update, r) }

// HostUpdate is of an update on the host.
func (k *Contention) HostUpdate(r Running) float64 {
	if r&RunningOp == 0 {
		return k.hostUpdate.during(r)
	}
	return k.hostUpdate.during(r) + k.hostBesideOp - 1
}

// Copy is of a copy, ToHost or ToDevice.
func (k *Contention) Copy(way int, r Running) float64 { return k.copies[way][r] }
