// Command grid plans models on a described device under limits of memory, over links of several bandwidths, with residency and with each
// strategy of the literature, and simulates all plans. A row of its CSV is a model, a step, a link, a limit and a strategy. Nothing is measured.
//
//	go run ./bench/grid -o grid.csv [-models gpt2,llama-1b] [-sizes 256,4096] [-links 4,25] [-limits 3]
//	go run ./bench/grid -table grid.csv
//
// Points are planned in an order whose every prefix is spread evenly over models, sizes, links and limits. Rows that the file has are not
// planned again and count in that order, so a run that was ended goes on.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"plimsoll/bench/spread"
	"plimsoll/executor"
	"plimsoll/executor/estimate"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/residency"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "grid:", err)
		os.Exit(1)
	}
}

// subject is a model of the grid. A step of text has so many tokens, in samples of 1024 at most; one of images has a 256th of the number.
type subject struct {
	name, model    string
	image, classes int // image 0: text
}

var subjects = []subject{
	{"gpt2", "gpt2", 0, 50257}, {"gpt2-medium", "gpt2-medium", 0, 50257}, {"gpt2-large", "gpt2-large", 0, 50257}, {"gpt2-xl", "gpt2-xl", 0, 50257},
	{"llama-1b", "llama-16-2048-32-8-8192", 0, 128256}, {"llama-8b", "llama3-8b", 0, 128256}, {"llama-70b", "llama-80-8192-64-8-28672", 0, 128256},
	{"resnet152", "resnet152", 224, 1000}, {"unet", "unet-5-64", 192, 10},
}

const longest = 1024 // tokens of a sample

// chain returns the estimated chain of a step.
func (s *subject) chain(d *estimate.Device, size int) (*chain.Chain, error) {
	c := models.Config{Batch: max(size/256, 1), Image: s.image, Channels: 3, Classes: s.classes, DType: kernels.BFloat16}
	if s.image == 0 {
		c.Image = min(size, longest)
		c.Batch = size / c.Image
	}
	m, err := models.New(s.model, c)
	if err != nil {
		return nil, err
	}
	target, err := d.Target()
	if err != nil {
		return nil, err
	}
	w, err := executor.CompileUnsplit(m, target.Library, kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
	if err != nil {
		return nil, err
	}
	return d.Chain(w)
}

// over returns the device with a link of so many bytes per second each way, and a request for a chain on it.
func over(d *estimate.Device, c *chain.Chain, link float64) residency.Request {
	return residency.Request{
		Chain: c, Microbatches: 1, Link: cycle.Link{ToDevice: link, ToHost: link, Duplex: d.Duplex}, Limits: cycle.Limits{Memory: cycle.NoLimit, Host: cycle.NoLimit},
	}
}

// limits returns so many limits from the smallest to that of the plan in which everything stays, in equal steps.
func limits(ctx context.Context, r residency.Request, n int) ([]int64, error) {
	_, least, err := residency.Least(ctx, r, residency.AllAway)
	if err != nil {
		return nil, err
	}
	r.Strategy = "resident"
	all, err := residency.Solve(ctx, r)
	if err != nil {
		return nil, err
	}
	var list []int64
	for i := range n {
		list = append(list, least+(all.Result.InOrderPeak-least)*int64(i)/int64(max(n-1, 1)))
	}
	return list, nil
}

// grid holds the points to plan, and the writer of rows.
type grid struct {
	device   *estimate.Device
	subjects []subject
	sizes    []int
	links    []float64
	limits   int
	known    map[string]bool // points that the file has
	out      *csv.Writer
	chains   map[string]*chain.Chain // of steps, by model and size
}

func run(ctx context.Context) error {
	device := flag.String("device", "h100", "")
	names, sizes := flag.String("models", "", "of the grid; all without"), flag.String("sizes", "256,1024,4096,16384", "tokens of a step; images have a 256th")
	links, n := flag.String("links", "4,12,25,55,400", "GB/s each way"), flag.Int("limits", 5, "from the smallest to resident")
	path, table := flag.String("o", "", "CSV"), flag.String("table", "", "CSV to print a table of")
	flag.Parse()
	if *table != "" {
		return printTable(os.Stdout, *table)
	}
	d, err := estimate.Open(*device)
	if err != nil {
		return err
	}
	g := grid{device: d, limits: *n, known: map[string]bool{}, chains: map[string]*chain.Chain{}}
	if g.subjects, err = named(*names); err != nil {
		return err
	}
	g.sizes, err = numbers[int](*sizes, strconv.Atoi)
	more, failure := numbers(*links, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err := errors.Join(err, failure); err != nil {
		return err
	}
	g.links = more
	return g.write(ctx, *path)
}

// named returns the models of a list of names, in the order of the grid; all of "".
func named(list string) ([]subject, error) {
	if list == "" {
		return subjects, nil
	}
	asked := strings.Split(list, ",")
	var all []string
	for _, s := range subjects {
		all = append(all, s.name)
	}
	for _, name := range asked {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("-models: the grid has no %q: give some of %s", name, strings.Join(all, ","))
		}
	}
	return slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !slices.Contains(asked, s.name) }), nil
}

// numbers reads a list.
func numbers[T any](text string, parse func(string) (T, error)) (all []T, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := parse(one)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// write appends to a file the rows that it lacks.
func (g *grid) write(ctx context.Context, path string) error {
	return spread.Append(path, func(rows [][]string, out *csv.Writer) error {
		for _, r := range rows {
			g.known[strings.Join(r[:4], ",")] = true
		}
		g.out = out
		return g.plan(ctx)
	})
}

// plan plans all points that the file lacks.
func (g *grid) plan(ctx context.Context) error {
	for _, p := range g.places() {
		if err := g.place(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(g.key(p), ", "), err)
		}
	}
	return nil
}

// key returns the first four fields of a place's rows.
func (g *grid) key(p spread.Place) []string {
	return []string{
		g.subjects[p[0]].name, strconv.Itoa(g.sizes[p[1]]), strconv.FormatFloat(g.links[p[2]], 'g', -1, 64),
		strconv.Itoa(p[3]+1) + " of " + strconv.Itoa(g.limits),
	}
}

// places returns the places that the file lacks, in the order in which they are planned.
func (g *grid) places() []spread.Place {
	lengths := spread.Place{len(g.subjects), len(g.sizes), len(g.links), g.limits}
	var done []spread.Place
	for _, p := range spread.Nested(lengths) {
		if g.known[strings.Join(g.key(p), ",")] {
			done = append(done, p)
		}
	}
	return spread.Order(lengths, done)[len(done):]
}

// place plans a point.
func (g *grid) place(ctx context.Context, p spread.Place) error {
	c, err := g.chain(p)
	if err != nil {
		return err
	}
	r := over(g.device, c, g.links[p[2]]*1e9)
	list, err := limits(ctx, r, g.limits)
	if err != nil {
		return err
	}
	r.Limits.Memory = list[p[3]]
	return g.point(ctx, r, g.key(p))
}

// chain returns the chain of a point's step, estimated once.
func (g *grid) chain(p spread.Place) (*chain.Chain, error) {
	name := strings.Join(g.key(p)[:2], ",")
	if g.chains[name] == nil {
		c, err := g.subjects[p[0]].chain(g.device, g.sizes[p[1]])
		if err != nil {
			return nil, err
		}
		g.chains[name] = c
	}
	return g.chains[name], nil
}

// point plans with all strategies and writes a row for each; a time of 0 is none.
func (g *grid) point(ctx context.Context, r residency.Request, point []string) error {
	for _, s := range residency.Strategies() {
		r.Strategy = s.Name
		seconds := 0.0
		p, err := residency.Solve(ctx, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			seconds = p.Result.Period
		}
		if err := g.out.Write(append(slices.Clone(point), strconv.FormatInt(r.Limits.Memory, 10), s.Name, strconv.FormatFloat(seconds, 'g', 8, 64))); err != nil {
			return err
		}
	}
	g.out.Flush()
	return g.out.Error()
}
