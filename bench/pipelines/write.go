package pipelines

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"plimsoll/internal/units"
)

// WriteCSV writes a row for each point.
func WriteCSV(w io.Writer, points []Point) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"chain", "devices", "memory_bytes", "bandwidth_bytes_per_s", "strategy", "fits", "seconds_per_minibatch", "speedup", "bubble_fraction", "peak_bytes", "smallest_bytes", "reason"}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, p := range points {
		rows = append(rows, []string{
			p.Chain, strconv.Itoa(p.Devices), strconv.FormatInt(p.MemoryBytes, 10), number(p.Bandwidth), p.Strategy, strconv.FormatBool(p.Fits),
			number(p.PerMinibatchS), number(p.Speedup), number(p.Bubble), strconv.FormatInt(p.PeakBytes, 10), strconv.FormatInt(p.Smallest, 10), p.Reason,
		})
	}
	return out.WriteAll(rows)
}

// WriteTables writes a table of speed-ups in Markdown for each chain and bandwidth: rows are devices and memory, columns
// strategies.
func WriteTables(w io.Writer, points []Point) error {
	var strategies []string
	for _, p := range points {
		if !slices.Contains(strategies, p.Strategy) {
			strategies = append(strategies, p.Strategy)
		}
	}
	var last Point
	for i, p := range points {
		if i == 0 || p.Chain != last.Chain || p.Bandwidth != last.Bandwidth || p.Devices != last.Devices {
			if err := writeHead(w, p, strategies); err != nil {
				return err
			}
		}
		if p.Strategy == strategies[0] {
			if _, err := fmt.Fprintf(w, "| %s |", units.Bytes(p.MemoryBytes)); err != nil {
				return err
			}
		}
		cell := " " + p.cell() + " |"
		if p.Strategy == strategies[len(strategies)-1] {
			cell += "\n"
		}
		if _, err := io.WriteString(w, cell); err != nil {
			return err
		}
		last = p
	}
	return nil
}

// cell is the speed-up, or in words why there is none: not enough memory, or another reason, which points.csv has.
func (p *Point) cell() string {
	switch {
	case p.Fits:
		return fmt.Sprintf("%.2f", p.Speedup)
	case p.small:
		return "no fit"
	}
	return "no plan"
}

func writeHead(w io.Writer, p Point, strategies []string) error {
	_, err := fmt.Fprintf(w, "\n%s, %d devices, %s between them: speed-up over one device without a limit (simulated)\n\n| memory |", p.Chain, p.Devices, units.Rate(p.Bandwidth, "B"))
	for _, s := range strategies {
		if err == nil {
			_, err = fmt.Fprintf(w, " %s |", s)
		}
	}
	for i := range len(strategies) + 1 {
		line := "---|"
		if i == 0 {
			line = "\n|---|"
		}
		if err == nil {
			_, err = io.WriteString(w, line)
		}
	}
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

// String prints the duel as a sentence.
func (d Duel) String() string {
	return fmt.Sprintf("%s beside %s: both fit at %d of %d points, %s alone at %d, %s alone at %d; where both fit it is faster by more than 1 %% at %d and slower at %d, %.3f times on the mean, %.3f at best",
		d.A, d.B, d.Both, d.Points, d.A, d.OnlyA, d.B, d.OnlyB, d.Faster, d.Slower, d.Ratio, d.Best)
}
