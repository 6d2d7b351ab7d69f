package estimate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"plimsoll/executor"
	"plimsoll/internal/fields"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
)

// Chain returns the chain of a workload with estimated times of every op, of updates and of the link. Where the host can make updates, their
// time there is estimated, too. Contention between ops, copies and updates is not estimated. Errors: those of the ops,
// chain.ErrFormat where times are no numbers.
func (d *Device) Chain(w *executor.Workload) (*chain.Chain, error) {
	c := w.Chain()
	c.Name, c.Device, c.Estimated = fmt.Sprintf("%s (estimated for %s)", c.Name, d.Name), d.Name, true
	c.HostMemoryBandwidth = d.HostRate * d.of(hostUpdate, "", "").Memory
	update := 0.0
	for i, programs := range w.Layers {
		l := &c.Layers[i]
		if err := d.time(l, programs); err != nil {
			return nil, fmt.Errorf("layer %d (%s): %w", i+1, l.Name, err)
		}
		updates := w.UpdatesOf(i + 1)
		l.Update.DeviceS, l.Update.HostS = d.updates(w.Optimizer, updates)
		casts, err := d.casts(updates)
		if err != nil {
			return nil, fmt.Errorf("layer %d (%s): %w", i+1, l.Name, err)
		}
		l.BackwardS += casts
		update += l.Update.DeviceS
	}
	return c, cmp.Or(d.addExtras(c, update), c.Validate())
}

// addExtras adds the link and the update of all layers.
func (d *Device) addExtras(c *chain.Chain, update float64) (err error) {
	link := executor.LinkProfile{Duplex: d.Duplex}
	link.ToDevice, link.ToHost = d.Link()
	link.ToDeviceTogether, link.ToHostTogether = link.ToDevice, link.ToHost
	if !d.Duplex {
		link.ToDeviceTogether, link.ToHostTogether = link.ToDevice/2, link.ToHost/2
	}
	c.Bandwidth = min(link.ToDevice, link.ToHost)
	extra := map[string]json.RawMessage{}
	maps.Copy(extra, c.Extra)
	c.Extra = extra
	if c.Extra[executor.LinkField], err = fields.Marshal(link); err != nil {
		return err
	}
	c.Extra[executor.UpdateField], err = fields.Marshal(update)
	return err
}

// time sets the times of a layer's ops. The halves of a backward are there where the workload was compiled with them.
func (d *Device) time(l *chain.Layer, p *models.Programs) error {
	var took [5]float64
	for i, program := range []*models.Program{&p.Save, &p.Forget, &p.Back, &p.BackInput, &p.BackParams} {
		for _, step := range program.Steps {
			s, err := d.call(step.Call)
			if err != nil {
				return fmt.Errorf("%s: %w", step.Name, err)
			}
			took[i] += s
		}
	}
	l.ForwardS, l.DiscardForwardS, l.BackwardS = took[0], &took[1], took[2]
	if len(p.BackInput.Steps)+len(p.BackParams.Steps) > 0 {
		l.BackwardInputS, l.BackwardWeightS = &took[3], &took[4]
	}
	return nil
}

// call returns the seconds of a call.
func (d *Device) call(c kernels.Call) (float64, error) {
	bytes, operations, err := c.Cost()
	if err != nil {
		return 0, err
	}
	t := c.Computes()
	if operations > 0 && d.Rates[t.String()] == 0 {
		return 0, d.lacks(t)
	}
	return d.seconds(d.of(c.Op.Kind(), c.Pass.String(), t.String()), t, operations, bytes), nil
}

// casts returns the seconds in which a backward rounds the gradients that are kept in bfloat16.
func (d *Device) casts(all []kernels.UpdateOperands) (s float64, err error) {
	for _, o := range all {
		if o.GradType != kernels.BFloat16 || err != nil {
			continue
		}
		var took float64
		took, err = d.call(kernels.Call{Op: kernels.Cast{To: kernels.BFloat16}, In: []kernels.Desc{kernels.F32(int(o.Elements))}})
		s += took
	}
	return s, err
}

// updates returns the seconds of the updates of a layer, on the device and on the host; nil where the host cannot. All updates of a layer are
// one launch, and each matrix of Muon one more.
func (d *Device) updates(u kernels.Update, all []kernels.UpdateOperands) (onDevice float64, onHost *float64) {
	if len(all) == 0 {
		return 0, nil
	}
	e := d.of(u.Kind(), "", kernels.Float32.String())
	hosts, whole := true, int64(0)
	for _, o := range all {
		bytes, operations := kernels.UpdateCost(u, o)
		whole += bytes
		if operations > 0 {
			hosts = false
			onDevice += d.seconds(d.of(u.Kind(), "", o.Matrix.DType.String()), o.Matrix.DType, operations, bytes)
			continue
		}
		onDevice += float64(bytes) / (d.Bandwidth * e.Memory)
	}
	onDevice += d.Launch + e.Launch
	if hosts {
		s := float64(whole) / (d.HostRate * d.of(hostUpdate, "", "").Memory)
		onHost = &s
	}
	return onDevice, onHost
}
