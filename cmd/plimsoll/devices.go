package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

func newDevicesCommand(a *app) *cobra.Command {
	c := &devicesCommand{app: a}
	cmd := command("devices", "Show the devices, their memory and their copy bandwidths", `Show the devices of this machine: the memory that an arena can have, and the kernels' instruction set. The bandwidths of
copies between the arena and host memory, and between devices, are measured. For GPUs, clocks, power and links are shown
too, or why there is none. cpu*4 is four virtual devices that share the processor and its memory.

With --output the measurements become a platform file, on which plan --platform plans a pipeline. A link has the bandwidth
of its slower direction. With --world the devices belong to several processes, on one machine or on many, and the links
between these are measured, too. They are shown by class: same GPU, same node, between nodes.

If nodes are equal, in the order of ranks, the file has a level for each class of links, with its median bandwidth. The slowest
link of each class must have 80 % of the fastest one's bandwidth. Otherwise the file has every link by itself, as with --pairs.`, nil)
	cmd.Example = `  plimsoll devices --devices "cpu*4" --peer-bandwidth 1GB/s --memory 512MiB -o platform.json
  plimsoll launch -n 4 -- devices --world auto -o platform.json
  plimsoll plan -c c.json --platform platform.json --strategy loadline -o p.json`
	s := cmd.Flags()
	s.StringVar(&c.spec, "devices", "cpu", `devices to measure, as in "cpu*4" or cuda:0,cuda:1`)
	s.Var(&c.bandwidth, "bandwidth", "slow the cpu's link to host memory down to this, as in 1GB/s (default: as fast as memory)")
	s.Var(&c.peerBandwidth, "peer-bandwidth", "likewise the links between the parts of the cpu")
	s.Var(&c.memory, "memory", "memory of each device in the platform file, as in 512MiB, or a share of what it can have (default: all of that)")
	s.StringVarP(&c.out, "output", "o", "", "write the platform file here")
	s.BoolVar(&c.pairs, "pairs", false, "show each link between processes by itself, and write each into the platform file")
	c.world.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.memoryGiven = cmd.Flags().Changed("memory")
		if err := c.world.check(cmd); err != nil {
			return err
		}
		if c.pairs && c.world.size == "" {
			return usage(errors.New("--pairs is for several processes: give their number, as in --world 4, or --world auto"))
		}
		return c.world.within(cmd.Context(), a, c.spec, func(w *train.World) error { return c.run(cmd.Context(), w) })
	}
	return cmd
}

// deviceList is the JSON of the command.
type deviceList struct {
	Devices []deviceFigures `json:"devices"`
	Peers   []peerFigure    `json:"peers,omitempty"`
	Classes []classFigure   `json:"link_classes,omitempty"` // of several processes
	gpuList
}

// answers refuses a link over which the shortest copy takes longer than anybody waits for a measurement.
func answers(flag string, b units.Bandwidth) error {
	const most = 10 // seconds
	if took := bench.FirstCopy / float64(b); b > 0 && took > most {
		return usage(fmt.Errorf("%s %v: a copy of %s would take %s: give more, as in %s 1GB/s", flag, &b, units.Bytes(bench.FirstCopy), units.Seconds(took), flag))
	}
	return nil
}

func (c *devicesCommand) run(ctx context.Context, w *train.World) error {
	switch {
	case c.memoryGiven && c.out == "":
		return usage(errors.New("--memory is for the platform file: give --output too, as in -o platform.json"))
	case c.memoryGiven && c.memory.IsZero():
		return usage(errors.New("--memory is 0: give what each device has, as in --memory 512MiB, or leave it out"))
	}
	err := firstOf(writable("--output", c.out), answers("--bandwidth", c.bandwidth), answers("--peer-bandwidth", c.peerBandwidth))
	if err != nil {
		return err
	}
	inspect := c.inspect
	if w != nil {
		inspect = c.inspectAll
	}
	found, err := inspect(ctx, w)
	if err != nil || c.rank > 0 {
		return err
	}
	list := deviceList{Devices: found.figures, Peers: found.peers, Classes: found.classes(), gpuList: gpuFigures()}
	if c.out != "" {
		if err := c.writePlatform(found); err != nil {
			return err
		}
	}
	return c.print(list, func(out io.Writer) {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for i := range list.Devices {
			list.Devices[i].write(w)
		}
		for _, p := range list.Peers {
			if c.pairs || len(list.Classes) == 0 {
				fmt.Fprintf(w, "%s - %s\tcopies\t%v\n", p.Between[0], p.Between[1], p.Rate)
			}
		}
		for i := range list.Classes {
			list.Classes[i].write(w)
		}
		list.writeGPUs(w)
		_ = w.Flush() // of a buffer
	})
}

// writePlatform writes the platform file, with levels where the links of several processes have some.
func (c *devicesCommand) writePlatform(found *inventory) error {
	var levels []pipeline.Level
	if len(found.places) > 1 && !c.pairs {
		var why string
		if levels, why = found.levels(); levels == nil {
			c.note("%s has every link by itself: %s", c.out, why)
		}
	}
	p, err := found.platform(c.memory, levels)
	if err != nil {
		return usage(fmt.Errorf("--devices %s: %w", c.spec, err))
	}
	return p.Write(c.out)
}

func (d *deviceFigures) write(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s\n", d.Name, d.Model)
	if d.Library != "" {
		fmt.Fprintf(w, "\tcores\t%d\n", d.Cores)
		fmt.Fprintf(w, "\tkernels\t%s\n", d.Library)
	}
	if d.MemoryBytes == pipeline.NoLimit {
		fmt.Fprintf(w, "\tarena\twithout limit\n")
	} else {
		fmt.Fprintf(w, "\tarena\tup to %s\n", units.Bytes(d.MemoryBytes))
	}
	fmt.Fprintf(w, "\tcopies\t%v to the arena, %v to the host\n", d.ToDevice, d.ToHost)
}

// writeGPUs prints them as rows of a table.
func (l *gpuList) writeGPUs(w io.Writer) {
	fmt.Fprintf(w, "cuda\t%s\n", l.Status)
	if l.Driver != "" {
		fmt.Fprintf(w, "\tdriver\t%s\n", l.Driver)
	}
	for _, g := range l.GPUs {
		fmt.Fprintf(w, "%s\t%s\n", g.Name, g.Model)
		g.write(w)
	}
}

func (g *gpuFigure) write(w io.Writer) {
	if g.Problem != "" {
		fmt.Fprintf(w, "\tproblem\t%s\n", g.Problem)
		return
	}
	fmt.Fprintf(w, "\tcapability\t%s, %d multiprocessors, at %s\n", g.Capability, g.Multiprocessors, g.Bus)
	fmt.Fprintf(w, "\tarena\tup to %s of %s\n", units.Bytes(g.ArenaBytes), units.Bytes(g.MemoryBytes))
	if g.UsedBytes > 0 {
		fmt.Fprintf(w, "\tin use\t%s\n", units.Bytes(g.UsedBytes))
	}
	if g.ClockHz > 0 {
		fmt.Fprintf(w, "\tclocks\t%s of %s, memory %s\n", hertz(g.ClockHz), hertz(g.MaxClockHz), hertz(g.MemoryClockHz))
	}
	if g.PowerW > 0 {
		fmt.Fprintf(w, "\tpower\t%.0f of %.0f W\n", g.PowerW, g.PowerLimitW)
	}
	if g.PCIe != "" {
		fmt.Fprintf(w, "\tPCIe\t%s\n", g.PCIe)
	}
	for _, l := range g.NVLinks {
		fmt.Fprintf(w, "\tNVLink\t%d links to %s\n", l.Links, l.To)
	}
}

func hertz(n int64) string { return fmt.Sprintf("%d MHz", n/1e6) }
