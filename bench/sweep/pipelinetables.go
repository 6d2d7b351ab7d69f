package sweep

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/folder"
	"plimsoll/internal/units"
)

// WritePipelines writes points.csv and tables.md, which has the text, to a folder.
func WritePipelines(at *folder.Dir, points []PipelinePoint, text string) error {
	rows := [][]string{{"chain", "devices", "memory_bytes", "bandwidth_bytes_per_s", "strategy", "fits", "seconds_per_minibatch", "speedup", "bubble_fraction", "peak_bytes", "smallest_bytes", "reason", "devices_of_a_node", "node_bandwidth_bytes_per_s"}}
	for _, p := range points {
		rows = append(rows, []string{
			p.Chain, strconv.Itoa(p.Devices), whole(p.MemoryBytes), float(p.Bandwidth), p.Strategy, strconv.FormatBool(p.Fits),
			float(p.PerMinibatchS), float(p.Speedup), float(p.Bubble), whole(p.PeakBytes), whole(p.Smallest), p.Reason,
			whole(int64(p.Node)), float(p.Within),
		})
	}
	if err := writeCSV(at, rows); err != nil {
		return err
	}
	return at.Write("tables.md", func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// PipelineTables returns a table of speed-ups in Markdown for each chain, bandwidth and number of devices: rows are memories, columns
// strategies. A list of the duels follows.
func PipelineTables(points []PipelinePoint, duels []Duel) string {
	var b strings.Builder
	var strategies []string
	for _, p := range points {
		if !slices.Contains(strategies, p.Strategy) {
			strategies = append(strategies, p.Strategy)
		}
	}
	var last PipelinePoint
	for i, p := range points {
		if i == 0 || p.Chain != last.Chain || p.Bandwidth != last.Bandwidth || p.Devices != last.Devices {
			fmt.Fprintf(&b, "\n%s, %d devices, %s: speed-up over one device without a limit (simulated)\n\n| memory | %s |\n|---|%s\n",
				p.Chain, p.Devices, p.links(), strings.Join(strategies, " | "), strings.Repeat("---|", len(strategies)))
		}
		if p.Strategy == strategies[0] {
			fmt.Fprintf(&b, "| %s |", units.Bytes(p.MemoryBytes))
		}
		fmt.Fprintf(&b, " %s |", p.cell())
		if p.Strategy == strategies[len(strategies)-1] {
			b.WriteString("\n")
		}
		last = p
	}
	var sentences []string
	for _, d := range duels {
		sentences = append(sentences, "- "+d.String())
	}
	return b.String() + "\n" + strings.Join(sentences, "\n") + "\n"
}

// links says how devices are joined.
func (p *PipelinePoint) links() string {
	between := units.Rate(p.Bandwidth, "B") + " between "
	switch {
	case p.Node == 0 || p.Node == 1:
		return between + "them"
	case p.Devices <= p.Node:
		return units.Rate(p.Within, "B") + " between them, a node"
	}
	return fmt.Sprintf("%s within nodes of %d and %snodes", units.Rate(p.Within, "B"), p.Node, between)
}

// cell is the speed-up, or in words why there is none: not enough memory, or another reason, which points.csv has.
func (p *PipelinePoint) cell() string {
	switch {
	case p.Fits:
		return fmt.Sprintf("%.2f", p.Speedup)
	case p.small:
		return "no fit"
	}
	return "no plan"
}

// String prints the duel as two sentences.
func (d Duel) String() string {
	return fmt.Sprintf("%s beside %s: both fit at %d of %d points, %s alone at %d, %s alone at %d. Where both fit, it is faster by more than 1 %% at %d and slower at %d, %.3f times on the mean, %.3f at best",
		d.A, d.B, d.Both, d.Points, d.A, d.OnlyA, d.B, d.OnlyB, d.Faster, d.Slower, d.Ratio, d.Best)
}
