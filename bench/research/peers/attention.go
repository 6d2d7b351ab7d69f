//go:build cgo

package main

import (
	"fmt"

	"plimsoll/kernels"
)

// heads is an attention: sequences, their length, heads of queries and of keys and values, and their channels.
type heads struct{ batch, length, queries, kv, dim int }

// attentions are the attentions of GPT-2 small, with short and with long sequences, and one of grouped heads.
var attentions = []heads{{4, 64, 12, 12, 64}, {4, 1024, 12, 12, 64}, {1, 2048, 8, 2, 128}}

// compareAttention times causal attention beside PyTorch's scaled_dot_product_attention. Operations are those of the products that
// the mask leaves.
func compareAttention(o options) error {
	fmt.Println("\n| causal attention | pass | threads | ours GFLOP/s | share of FMA peak | PyTorch GFLOP/s | ratio | over one thread |\n|---|---|---|---|---|---|---|---|")
	for _, threads := range o.threads {
		p, err := o.startPython(threads, "torch_attention.py", fmt.Sprint(threads))
		if err != nil {
			return err
		}
		if _, err := p.line(); err != nil { // its version
			return err
		}
		for _, h := range attentions {
			if err := h.compare(o, p, threads); err != nil {
				return err
			}
		}
		if err := p.close(); err != nil {
			return err
		}
	}
	return nil
}

// compare prints a row for each pass.
func (h heads) compare(o options, p *peer, threads int) error {
	c := kernels.Call{
		Op: kernels.Attention{Heads: h.queries, KVHeads: h.kv}, Train: true,
		In: []kernels.Desc{kernels.F32(h.batch, h.length, (h.queries+2*h.kv)*h.dim)},
	}
	for _, pass := range []kernels.Pass{kernels.Forward, kernels.Backward} {
		c.Pass = pass
		question := fmt.Sprintf("%d %d %d %d %d %v %v %v", h.batch, h.length, h.queries, h.kv, h.dim, pass, warm.Seconds(), timed.Seconds())
		r, err := compare(o, c, causal(h.batch, h.length, h.queries, h.dim, pass), threads, func() (float64, error) { return p.ask(question) })
		if err != nil {
			return err
		}
		fmt.Printf("| %dx%d, %d heads of %d, %d of keys and values | %v | %d | %v\n", h.batch, h.length, h.queries, h.dim, h.kv, pass, threads, r)
	}
	return nil
}
