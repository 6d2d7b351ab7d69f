package main

import (
	"context"
	"errors"
	"fmt"

	"plimsoll/internal/units"
	"plimsoll/kernels"
)

// vendorRow is a product of a training step: by our kernels alone, and by the fastest of them and the vendors' libraries.
type vendorRow struct {
	DType  string  `json:"dtype"`
	Op     string  `json:"op"`
	Pass   string  `json:"pass"`
	Shape  string  `json:"shape"`
	Count  int     `json:"count"` // in a step
	Ours   float64 `json:"ours_s"`
	Chosen float64 `json:"chosen_s"`
}

type vendorFigures struct {
	Model string      `json:"model"`
	Batch int         `json:"batch"`
	Image int         `json:"image"`
	Rows  []vendorRow `json:"ops"`
}

// measureVendors times the products of a step twice. Where the libraries are not, the part is skipped; tiny shapes do without them,
// so that the program is tried.
func measureVendors(ctx context.Context, p *part) error {
	s, with := p.opSizes(), "require"
	if p.tiny {
		with = "prefer"
	}
	f := &vendorFigures{Model: s.model, Batch: s.batch, Image: s.image, Rows: []vendorRow{}}
	if err := p.openWith(with); err != nil {
		p.State, p.Summary = skipped, err.Error()
		return p.save(f)
	}
	for _, d := range floats {
		ours, err := p.products(ctx, s, d, "refuse")
		if errors.Is(err, kernels.ErrType) {
			continue
		}
		if err != nil {
			return err
		}
		chosen, err := p.products(ctx, s, d, with)
		if err != nil {
			return err
		}
		for i := range ours {
			ours[i].Chosen = chosen[i].Ours
		}
		f.Rows = append(f.Rows, ours...)
		p.printVendors(d, ours)
		if err := p.save(f); err != nil {
			return err
		}
	}
	return nil
}

// openWith opens the device with vendors' libraries for a moment.
func (p *part) openWith(vendor string) error {
	p.vendor = vendor
	t, err := p.target()
	if err != nil {
		return err
	}
	return t.Device.Close()
}

// products times every different convolution and linear layer of a step.
func (p *part) products(ctx context.Context, s opSizes, d kernels.DType, vendor string) (rows []vendorRow, err error) {
	p.vendor = vendor
	err = p.with(s, func(r *rig) error {
		w, err := workload(r.Library, s.model, s.config(d))
		if err != nil {
			return err
		}
		for _, c := range calls(w) {
			if err := ctx.Err(); err != nil {
				return err
			}
			switch c.Op.(type) {
			case kernels.Conv2D, kernels.Linear:
			default:
				continue
			}
			seconds, err := r.timeCall(c, s)
			if err != nil {
				return fmt.Errorf("%s %v of %v: %w", c.Op.Kind(), c.Pass, c.In, err)
			}
			rows = append(rows, vendorRow{DType: d.String(), Op: c.Op.Kind(), Pass: c.Pass.String(), Shape: shape(c), Count: c.count, Ours: seconds})
		}
		return nil
	})
	return rows, err
}

func (p *part) printVendors(d kernels.DType, rows []vendorRow) {
	p.printf("\n%v, kernels %s:\n\n| op | pass | input | in a step | our kernels | with the vendors' | ours / theirs |\n|---|---|---|---|---|---|---|\n", d, p.Environment.Library)
	var ours, chosen float64
	for _, row := range rows {
		ours, chosen = ours+float64(row.Count)*row.Ours, chosen+float64(row.Count)*row.Chosen
		p.printf("| %s | %s | %s | %d | %s | %s | %.2f |\n", row.Op, row.Pass, row.Shape, row.Count, units.Seconds(row.Ours), units.Seconds(row.Chosen), row.Ours/row.Chosen)
	}
	p.sumUp("%v products of a step: our kernels take %.2f times as long as with the vendors'", d, ours/chosen)
}
