// Command ingredients measures the joint value of stages, replicas and recomputation. It plans chains for devices, memories and links with
// joint, and with joint without each of the three. It writes where the plans that lack one are slower, or where no such plan exists.
//
//	cd bench/research && go run ./ingredients [-chains ../../docs/chains] [-out results/ingredients] [-devices 2,8,64] [-memory 3,80] [-bandwidths 8,450]
//
// Plans are checked and simulated, nothing runs. It writes tables to OUT.md, every point to OUT/points.csv, and a picture to OUT.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"plimsoll/bench/sweep"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/joint"
	"plimsoll/planner/profiles"
)

func main() {
	chains := flag.String("chains", "../../docs/chains", "folder with the chains")
	out := flag.String("out", "results/ingredients", "name of the results")
	devices := flag.String("devices", "2,4,8,16,32,64", "numbers of devices")
	memory := flag.String("memory", "3,4,6,8,12,16,24,80", "memories of a device, GiB")
	bandwidths := flag.String("bandwidths", "8,25,100,450", "bandwidths between two devices, GB/s")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *chains, *out, *devices, *memory, *bandwidths)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ingredients:", err)
		os.Exit(1)
	}
}

// all is the strategy that has every ingredient.
const all = "joint"

// lacking are the ingredients with one left out, by their names in tables.
var lacking = []struct {
	name    string
	without joint.Ingredients
}{
	{"one stage", joint.Ingredients{Stages: true}},
	{"no replicas", joint.Ingredients{Replicas: true}},
	{"no recomputation", joint.Ingredients{Recomputation: true}},
}

// strategies returns joint and those that lack an ingredient.
func strategies() (list []pipeline.Strategy) {
	for _, x := range lacking {
		list = append(list, pipeline.Strategy{Name: x.name, Type: pipeline.Partitioner, Solve: func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
			return joint.Without(ctx, r, x.without)
		}})
	}
	return append(list, pipeline.Strategy{Name: all, Type: pipeline.Partitioner, Solve: func(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
		return joint.Without(ctx, r, joint.Ingredients{})
	}})
}

func run(ctx context.Context, folder, out, devices, memory, bandwidths string) error {
	g := &sweep.Pipelines{Strategies: strategies(), Options: pipeline.Options{Accounting: pipeline.Saved}}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range files {
		source, err := profiles.ReadSource(path)
		if err != nil {
			return err
		}
		g.Chains = append(g.Chains, source)
	}
	for _, list := range []struct {
		flag, text string
		take       func(float64)
	}{
		{"-devices", devices, func(x float64) { g.Devices = append(g.Devices, int(x)) }},
		{"-memory", memory, func(x float64) { g.Memories = append(g.Memories, int64(x*(1<<30))) }},
		{"-bandwidths", bandwidths, func(x float64) { g.Bandwidths = append(g.Bandwidths, x*1e9) }},
	} {
		for item := range strings.SplitSeq(list.text, ",") {
			x, err := strconv.ParseFloat(item, 64)
			if err != nil || !(x > 0) || x > 1<<20 {
				return fmt.Errorf("%s: %q is no positive number", list.flag, item)
			}
			list.take(x)
		}
	}
	if len(g.Chains) == 0 {
		return fmt.Errorf("%s has no chain files", folder)
	}
	points, stopped := g.Run(ctx)
	return errors.Join(stopped, write(out, points))
}

// write writes tables, points and the picture.
func write(out string, points []sweep.PipelinePoint) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := sweep.WritePipelines(folder.At(out), points, sweep.PipelineTables(points, nil)); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(out+".md", page(points).write); err != nil {
		return err
	}
	return atomicfile.WriteFile(out+".svg", picture(points).WriteSVG)
}
