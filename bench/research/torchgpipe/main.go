// Command torchgpipe remakes the tables and the ablation of torchgpipe (Kim et al. 2020, section 4) with the plans of this program. It
// writes them beside the paper's own figures. Whether a model fits follows from its size and the executor's arenas, to the byte. Times are
// simulated, from chains that were measured on a processor.
//
//	cd bench/research && go run ./torchgpipe [-chains results/chains] [-out results/torchgpipe]
//
// It writes the tables to OUT.md and every point to OUT.csv.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"plimsoll/internal/atomicfile"
	"plimsoll/planner/chain"
)

func main() {
	chains := flag.String("chains", "results/chains", "folder with the measured chains")
	out := flag.String("out", "results/torchgpipe", "name of the results, without .md and .csv")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *chains, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torchgpipe:", err)
		os.Exit(1)
	}
}

// results are all that is written.
type results struct {
	giants   []giantPoint
	models   map[string]map[size]dimensions // by family
	speeds   [][]speedPoint                 // by table
	measured []*chain.Chain                 // by table
	ablation []ablationRow
}

func run(ctx context.Context, chains, out string) error {
	r := &results{models: map[string]map[size]dimensions{}}
	for _, c := range collections() {
		points, models, err := c.giants(ctx, paperMemory)
		if err != nil {
			return err
		}
		r.giants, r.models[c.family] = append(r.giants, points...), models
	}
	for i, s := range allSpeeds() {
		measured, err := chain.Read(filepath.Join(chains, s.chain))
		if err != nil {
			return err
		}
		points, err := s.run(ctx, measured, paperMemory)
		if err != nil {
			return err
		}
		r.speeds, r.measured = append(r.speeds, points), append(r.measured, measured)
		if i > 0 { // the ablation is that of the U-Net, the first
			continue
		}
		at := race{devices: ablationDevices, micros: ablationMicros, batch: ablationBatch}
		if r.ablation, err = ablation(ctx, &s, measured, at); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteFile(out+".csv", r.writeCSV); err != nil {
		return err
	}
	return atomicfile.WriteFile(out+".md", r.writePage)
}
