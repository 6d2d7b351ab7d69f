package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/units"
)

// page writes Markdown and keeps the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// row writes a row of a table.
func (p *page) row(cells ...string) { p.printf("| %s |\n", strings.Join(cells, " | ")) }

// head writes the head of a table.
func (p *page) head(cells ...string) {
	p.row(cells...)
	p.printf("|%s\n", strings.Repeat("---|", len(cells)))
}

func (r *results) writePage(w io.Writer) error {
	p := &page{w: w}
	p.printf("# torchgpipe's tables and ablation, with our plans\n\nQuestion: do our plans repeat the paper's largest models, speed-ups and ablation?\n\n    make paper-torchgpipe\n\n")
	p.printf("Theirs: C. Kim et al. 2020, \"torchgpipe\", section 4, on Tesla P40 of %s. Settings that the paper does not give are of the\n", units.Bytes(paperMemory))
	p.printf("benchmarks folder of its repository (0.0.5). Ours: planned and simulated; nothing was trained. Every point is in torchgpipe.csv.\n")
	for _, c := range collections() {
		r.giantTables(p, &c)
	}
	for i, s := range allSpeeds() {
		r.speedTable(p, i, &s)
	}
	r.ablationTable(p)
	return p.err
}

func (r *results) giantTables(p *page, c *collection) {
	p.printf("\n## %s: the largest that fits\n\n", c.title)
	p.printf("Images of %d x %d, batch %d, %s on each device. Theirs: %s.\n", c.image, c.image, c.batch, units.Bytes(paperMemory), c.source)
	p.printf("A cell is the largest model that fits, and the arenas of all devices. A parameter takes %d bytes with gradient and state, and 4 more\n", 4*(2+c.state))
	p.printf("in a second copy of the weights.\n\n")
	cells := []string{"setting", "microbatches", "torchgpipe"}
	for _, h := range holders() {
		cells = append(cells, h.title)
	}
	p.head(cells...)
	for _, at := range c.rows {
		cells := []string{at.setting, strconv.Itoa(at.micros), fmt.Sprintf("%v %s", at.size, at.memory)}
		for _, h := range holders() {
			cells = append(cells, r.largest(c, at.setting, h.title))
		}
		p.row(cells...)
	}
	p.printf("\nThe models of the paper's rows. Memory is of all devices. In brackets: the fullest device, and the same as the planner counts it, with\n")
	p.printf("one block for each kind of message. The largest layer counts weights, gradients and optimizer; layers are not divided.\n\n")
	p.head(append([]string{"setting", "model", "parameters: theirs", "ours", "largest layer", "memory: theirs"}, cells[3:]...)...)
	for _, at := range c.rows {
		model := r.models[c.family][at.size]
		cells := []string{at.setting, at.size.String(), at.parameters, count(model.parameters), units.Bytes(model.layer), at.memory}
		for _, h := range holders() {
			cells = append(cells, r.giant(c.family, at.size, at.setting, h.title).cell())
		}
		p.row(cells...)
	}
}

// giant returns a point; nil when it was not tried.
func (r *results) giant(family string, s size, setting, holder string) *giantPoint {
	i := slices.IndexFunc(r.giants, func(g giantPoint) bool {
		return g.family == family && g.size == s && g.setting == setting && g.holder == holder
	})
	if i < 0 {
		return nil
	}
	return &r.giants[i]
}

func (g *giantPoint) cell() string {
	switch {
	case g == nil:
		return notRun
	case g.Total == 0:
		return g.none
	}
	return fmt.Sprintf("%s (%s; %s)", units.Bytes(g.Total), units.Bytes(g.Largest), units.Bytes(g.Planned))
}

// largest names the model with the most parameters that fits.
func (r *results) largest(c *collection, setting, holder string) string {
	var best *giantPoint
	tried := false
	for _, row := range c.rows {
		g := r.giant(c.family, row.size, setting, holder)
		tried = tried || g != nil
		if g != nil && g.Fits && (best == nil || r.models[c.family][best.size].parameters < r.models[c.family][g.size].parameters) {
			best = g
		}
	}
	switch {
	case !tried:
		return notRun
	case best == nil:
		return "none"
	}
	return fmt.Sprintf("%v %s", best.size, units.Bytes(best.Total))
}

func (s size) String() string { return fmt.Sprintf("(%d, %d)", s[0], s[1]) }

// count prints a number of parameters.
func count(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2fB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

func (r *results) speedTable(p *page, i int, s *speeds) {
	c := r.measured[i]
	p.printf("\n## %s: speed-up (simulated)\n\n", s.title)
	p.printf("Theirs: %s.\n\n", s.source)
	p.printf("Ours: simulated from times measured on a CPU at image %d, batch %d (bench/research/results/chains/%s). They are scaled to the baseline's\n", s.image, c.Batch, s.chain)
	p.printf("%g images/s; sizes are those of the real batch. Links have %s, one direction at a time. Flush schedules have stages of equal time.\n", s.baseline, units.Rate(paperBandwidth, "B"))
	p.printf("madpipe and loadline plan for %s with double-buffered weights and no flush. A cell is images/s over the baseline's, in brackets over\n", units.Bytes(paperMemory))
	p.printf("gpipe-checkpoint's. A star: the fullest device needs more than %s.\n\n", units.Bytes(paperMemory))
	cells := []string{"devices", "microbatches", "batch", "torchgpipe"}
	for _, h := range racers() {
		cells = append(cells, h.title)
	}
	p.head(cells...)
	points := r.speeds[i]
	for ; len(points) > 0; points = points[len(racers()):] {
		first := points[0]
		cells := []string{strconv.Itoa(first.devices), strconv.Itoa(first.micros), strconv.Itoa(first.batch), fmt.Sprintf("%.2f", first.paper)}
		for _, x := range points[:len(racers())] {
			cells = append(cells, x.cell(first.speedup))
		}
		p.row(cells...)
	}
	r.speedSummary(p, r.speeds[i])
}

// speedSummary ends a speed table: the mean ratios, and how close gpipe-checkpoint is to the paper.
func (r *results) speedSummary(p *page, points []speedPoint) {
	cells := []string{"geometric mean over gpipe-checkpoint (points)", "", "", ""}
	for _, h := range racers() {
		mean, n := meanRatio(points, h.title)
		cells = append(cells, fmt.Sprintf("%.3f (%d)", mean, n))
	}
	p.row(cells...)
	near, all := 0, 0
	for _, x := range points {
		if x.holder == racers()[0].title {
			all++
			if math.Abs(x.speedup/x.paper-1) <= 0.1 {
				near++
			}
		}
	}
	p.printf("\ngpipe-checkpoint is within 10 %% of torchgpipe's speed-up at %d of %d points.\n", near, all)
}

// meanRatio returns the geometric mean of a strategy's speed over gpipe-checkpoint's, and over how many races.
func meanRatio(points []speedPoint, holder string) (mean float64, n int) {
	sum, base := 0.0, 0.0
	for _, x := range points {
		if x.holder == racers()[0].title {
			base = x.speedup
		}
		if x.holder == holder && x.plan && base > 0 {
			sum, n = sum+math.Log(x.speedup/base), n+1
		}
	}
	return math.Exp(sum / float64(max(n, 1))), n
}

// cell prints a point beside the speed-up of gpipe-checkpoint.
func (x *speedPoint) cell(checkpoint float64) string {
	if !x.plan {
		return x.none
	}
	out := fmt.Sprintf("%.2f", x.speedup)
	if x.holder != "gpipe-checkpoint" && checkpoint > 0 {
		out += fmt.Sprintf(" (%.2f)", x.speedup/checkpoint)
	}
	if !x.Fits {
		out += "*"
	}
	return out
}

func (r *results) ablationTable(p *page) {
	p.printf("\n## Ablation: U-Net (5, 64), %d devices, batch %d in %d microbatches (simulated)\n\n", ablationDevices, ablationBatch, ablationMicros)
	p.printf("gpipe-checkpoint's plan, times as in the U-Net's speed table. Theirs: table 1 of the paper, without its first row (%.3f images/s), where\n", paperAblation["clock-cycle"])
	p.printf("the framework orders the backwards.\n\n")
	p.head("row", "schedule", "stands for", "theirs, images/s", "over", "ours, images/s", "over", "idle", "bytes over links, a microbatch")
	for i, row := range r.ablation {
		cells := []string{strconv.Itoa(i + 1), row.what, "in all rows of theirs", "", ""}
		if rate, ok := paperAblation[row.paper]; ok {
			cells = append(cells[:2], row.paper, fmt.Sprintf("%.3f", rate), "")
			if row.over >= 0 {
				cells[4] = over(rate, paperAblation[r.ablation[row.over].paper], row.over)
			}
		}
		ours := ""
		if row.over >= 0 {
			ours = over(row.rate, r.ablation[row.over].rate, row.over)
		}
		p.row(append(cells, fmt.Sprintf("%.2f", row.rate), ours, fmt.Sprintf("%.1f %%", 100*row.bubble), units.Bytes(row.bytes))...)
	}
	p.printf("\nA message that holds its sender up leaves the receiver free, where PyTorch's copies on the default stream do not. Of skips that are sent\n")
	p.printf("straight only the bytes are counted.\n")
}

// over prints a ratio to another row.
func over(x, of float64, row int) string { return fmt.Sprintf("%.3f of row %d", x/of, row+1) }

func (r *results) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"table", "model", "setting", "devices", "microbatches", "batch", "strategy", "fits", "largest_device_bytes", "total_bytes", "planned_largest_bytes", "paper_speedup", "speedup", "images_per_s", "idle_fraction", "link_bytes", "reason"}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, g := range r.giants {
		rows = append(rows, []string{"memory", modelName(g.family, g.size), g.setting, strconv.Itoa(g.devices), "", "", g.holder, strconv.FormatBool(g.Fits), strconv.FormatInt(g.Largest, 10), strconv.FormatInt(g.Total, 10), strconv.FormatInt(g.Planned, 10), "", "", "", "", "", g.reason})
	}
	for i, s := range allSpeeds() {
		for _, x := range r.speeds[i] {
			rows = append(rows, []string{"speed", s.model, "", strconv.Itoa(x.devices), strconv.Itoa(x.micros), strconv.Itoa(x.batch), x.holder, strconv.FormatBool(x.Fits), strconv.FormatInt(x.Largest, 10), strconv.FormatInt(x.Total, 10), strconv.FormatInt(x.Planned, 10), number(x.paper), number(x.speedup), number(x.speedup * s.baseline), "", "", x.reason})
		}
	}
	for _, a := range r.ablation {
		rows = append(rows, []string{"ablation", allSpeeds()[0].model, a.what, strconv.Itoa(ablationDevices), strconv.Itoa(ablationMicros), strconv.Itoa(ablationBatch), "gpipe-checkpoint", "", "", "", "", "", "", number(a.rate), number(a.bubble), strconv.FormatInt(a.bytes, 10), ""})
	}
	return out.WriteAll(rows)
}
