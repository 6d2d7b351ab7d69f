// Command schedules plans chains over several devices with auto-flush, joint-flush, joint and every schedule with a flush, and judges all plans.
// Platforms differ in devices, memory and links. A row of its CSV is a chain, a platform and a strategy. Nothing is measured.
//
//	go run ./bench/schedules -o schedules.csv [-chains gnmt,llama-8b] [-devices 2,8] [-memory 3,80] [-links 12,450/12] [-limit 20s]
//	go run ./bench/schedules -table schedules.csv
//
// Points are planned in an order whose every prefix is spread evenly over chains, devices, memory and links. Rows that the file has are not
// planned again and count in that order, so a run that was ended goes on.
package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"plimsoll/bench/spread"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedules:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	g := grid{chains: chains{}}
	subjects, devices := flag.String("chains", "gnmt,resnet50,resnext50,vgg16,gpt2-medium,gpt2-xl,llama-1b,llama-8b", ""), flag.String("devices", "2,4,8,16,32", "")
	memory := flag.String("memory", "3,8,20,80", "GiB of a device")
	links := flag.String("links", "1,12,50,450,450/12,450/50", "GB/s between two devices, or within a node and between nodes")
	flag.DurationVar(&g.limit, "limit", 20*time.Second, "of a strategy; auto-flush, which asks all, has four times as long")
	path, table := flag.String("o", "", "CSV"), flag.String("table", "", "CSV to print a table of")
	flag.Parse()
	if *table != "" {
		return printTable(os.Stdout, *table)
	}
	for i, list := range []string{*subjects, *devices, *memory, *links} {
		g.lists[i] = strings.Split(list, ",")
	}
	if err := g.parse(); err != nil {
		return err
	}
	return g.write(ctx, *path)
}

// grid holds the points to plan, and the writer of rows. A point is a position in each list: chains, devices, memory,
// links.
type grid struct {
	lists     [4][]string
	platforms map[spread.Place]*platform
	limit     time.Duration // of a strategy
	chains    chains
	known     map[string]bool
	out       *csv.Writer
}

// parse makes the platforms of all points.
func (g *grid) parse() (err error) {
	g.platforms = map[spread.Place]*platform{}
	for _, p := range spread.Nested(g.lengths()) {
		key := g.key(p)
		if g.platforms[p], err = platformOf(key[1], key[2], key[3]); err != nil {
			return err
		}
	}
	return nil
}

// write appends to a file the rows of all points that it lacks.
func (g *grid) write(ctx context.Context, path string) error {
	return spread.Append(path, func(rows [][]string, out *csv.Writer) error {
		g.known = map[string]bool{}
		for _, r := range rows {
			g.known[strings.Join(r[:4], ",")] = true
		}
		g.out = out
		return g.plan(ctx)
	})
}

// plan plans the points that the file lacks.
func (g *grid) plan(ctx context.Context) error {
	for _, p := range g.places() {
		key := g.key(p)
		c, err := g.chains.named(key[0])
		if err != nil {
			return err
		}
		rows, err := solve(ctx, c, g.platforms[p], g.limit)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(key, ", "), err)
		}
		for _, r := range rows {
			if err := g.out.Write(append(slices.Clone(key), r.strategy, strconv.FormatFloat(r.seconds, 'g', 10, 64), r.remark)); err != nil {
				return err
			}
		}
		if g.out.Flush(); g.out.Error() != nil {
			return g.out.Error()
		}
	}
	return nil
}

func (g *grid) lengths() (n spread.Place) {
	for i, list := range g.lists {
		n[i] = len(list)
	}
	return n
}

// key returns the first four fields of a point's rows.
func (g *grid) key(p spread.Place) (key []string) {
	for list, i := range p {
		key = append(key, g.lists[list][i])
	}
	return key
}

// places returns the points that the file lacks, in the order in which they are planned. Two levels of links want four devices.
func (g *grid) places() (all []spread.Place) {
	lengths := g.lengths()
	var done []spread.Place
	for _, p := range spread.Nested(lengths) {
		if g.known[strings.Join(g.key(p), ",")] {
			done = append(done, p)
		}
	}
	for _, p := range spread.Order(lengths, done)[len(done):] {
		if g.platforms[p] != nil {
			all = append(all, p)
		}
	}
	return all
}
