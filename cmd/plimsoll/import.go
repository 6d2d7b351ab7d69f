package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/profiles"
)

// readChain reads a chain in whatever form it is: a chain file, PipeDream's graph.txt, a table of layers.
func readChain(path string) (*chain.Chain, error) {
	s, err := profiles.ReadSource(path)
	if err != nil {
		return nil, usage(err)
	}
	return s.Chain, nil
}

// readPlainChain reads a chain without branches, which what cannot do.
func readPlainChain(path, what string) (*chain.Chain, error) {
	c, err := readChain(path)
	if err == nil && len(c.Branches) > 0 {
		return nil, usage(fmt.Errorf("%s has branches, and %s is of a chain: use plimsoll plan", path, what))
	}
	return c, err
}

// importCommand is plimsoll import.
type importCommand struct {
	*app
	name      string
	bandwidth units.Bandwidth
	batch     int
	out       string
	layers    bool
}

func newImportCommand(a *app) *cobra.Command {
	c := &importCommand{app: a}
	cmd := command("import FILE", "Turn measurements of other programs into a chain file", `Read a chain in any form that is known, and write it as a chain file. Every command that takes a chain (-c) reads these forms by
itself; import shows what becomes of them, and adds what they do not say.

PipeDream's graph.txt has operators with times, sizes and inputs. Operators that run beside each other become one layer.
A table of layers is a CSV with a row for each layer. One column is called name, the others, with a unit, as the fields of a chain
file: forward_ms, backward_ms, output_bytes, saved_mib, weight_bytes. A first row called input has the size of the input. A last
row called loss is the loss; without it a loss that costs nothing is added.`, nil)
	cmd.Example = `  plimsoll import graph.txt -o c.json
  plimsoll import layers.csv --bandwidth 12GB/s --layers`
	s := cmd.Flags()
	s.StringVar(&c.name, "name", "", "name of the chain (default: that in the file, or the file's)")
	s.Var(&c.bandwidth, "bandwidth", "bandwidth of the link to host memory, as in 12GB/s (default: that in the file)")
	s.IntVar(&c.batch, "batch", 0, "images of a step (default: as in the file)")
	s.StringVarP(&c.out, "output", "o", "", "write the chain file here")
	s.BoolVar(&c.layers, "layers", false, "print a table of the layers")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(errors.New("give one file, as in plimsoll import graph.txt -o c.json"))
		}
		return nil
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error { return c.run(args[0]) }
	return cmd
}

// chainFigures is the JSON of import: seconds and bytes.
type chainFigures struct {
	Chain         string  `json:"chain"`
	Estimated     bool    `json:"estimated,omitempty"` // its times
	Layers        int     `json:"layers"`              // with the loss
	ForwardS      float64 `json:"forward_s"`
	BackwardS     float64 `json:"backward_s"`
	InputBytes    int64   `json:"input_bytes"`
	WeightBytes   int64   `json:"weight_bytes"`
	StoreAllBytes int64   `json:"store_all_peak_bytes"`
	Bandwidth     float64 `json:"bandwidth_bytes_per_s,omitempty"`
}

func (c *importCommand) run(path string) error {
	if c.batch < 0 {
		return usage(fmt.Errorf("--batch is %d: give a number from 1", c.batch))
	}
	if err := writable("--output", c.out); err != nil {
		return err
	}
	read, err := readChain(path)
	if err != nil {
		return err
	}
	c.complete(read)
	figures := &chainFigures{Chain: read.Name, Estimated: read.Estimated, Layers: read.Len(), InputBytes: read.InputBytes, Bandwidth: read.Bandwidth}
	for i := range read.Layers {
		l := &read.Layers[i]
		figures.ForwardS, figures.BackwardS, figures.WeightBytes = figures.ForwardS+l.ForwardS, figures.BackwardS+l.BackwardS, figures.WeightBytes+l.WeightBytes
	}
	if len(read.Branches) == 0 {
		all, err := storeAll(read)
		if err != nil {
			return err
		}
		figures.StoreAllBytes = all.Peak
	}
	if c.out != "" {
		if err := read.Write(c.out); err != nil {
			return err
		}
	}
	return c.print(figures, func(w io.Writer) {
		if c.layers {
			writeLayers(w, read)
		}
		figures.write(w)
	})
}

// complete adds what the flags say.
func (c *importCommand) complete(read *chain.Chain) {
	if c.name != "" {
		read.Name = c.name
	}
	if c.bandwidth > 0 {
		read.Bandwidth = float64(c.bandwidth)
	}
	if c.batch > 0 {
		read.Batch = c.batch
	}
}

func (f *chainFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "chain\t%s, %d layers\n", f.Chain, f.Layers)
	fmt.Fprintf(w, "%s\t%s: forward %s, backward %s\n", estimated("step", f.Estimated), units.Seconds(f.ForwardS+f.BackwardS), units.Seconds(f.ForwardS), units.Seconds(f.BackwardS))
	if f.StoreAllBytes > 0 {
		fmt.Fprintf(w, "memory\t%s when nothing is recomputed, the input of %s included\n", units.Bytes(f.StoreAllBytes), units.Bytes(f.InputBytes))
	}
	fmt.Fprintf(w, "weights\t%s\n", units.Bytes(f.WeightBytes))
	if f.Bandwidth > 0 {
		fmt.Fprintf(w, "link\t%s\n", units.Rate(f.Bandwidth, "B"))
	}
	_ = w.Flush() // of a buffer
}
