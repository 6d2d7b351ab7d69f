// Command gpu measures the CUDA backend on one device and writes what it found as JSON and as markdown. It is the
// measuring half of the suite that make gpu-suite prepares; run.sh calls it and README.md says what each part asks.
//
//	gpu [flags] smoke|steps|copies|ops|vendors|throughput|rotor|offload|beyond|world|language|residency
//	                                                   measure a part
//	gpu -part NAME [-tests] [-result FILE] -out DIR run COMMAND...      run a part and add what it gave to the results
//	gpu [-limits LIMIT] parts [CALL|PART...]           list parts, their limits, and whether they judge, for run.sh
//	gpu -out DIR merge DIR...                          join the results of several calls
//	gpu -out DIR summary                               print the results as a short table
//	gpu floors                                         estimate the calls of ops on an H100 from the assembler's reports
//	gpu compress|decompress <FILE >FILE                pack, or unpack, the suite's programs
//
// It runs on every device that there are kernels for. With -tiny, shapes are so small that the CPU and the emulated driver
// take seconds: then it proves that the program works and measures nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// parts are the parts that this program measures itself.
var parts = map[string]func(context.Context, *part) error{
	"smoke": measureSmoke, "steps": measureSteps, "copies": measureCopies, "ops": measureOps, "throughput": measureThroughput, "rotor": measureRotor,
	"vendors": measureVendors, "offload": measureOffload, "beyond": measureBeyond, "world": measureWorld,
	"language": measureLanguage, "residency": measureResidency,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o := options{commit: commit}
	f := flag.NewFlagSet("gpu", flag.ContinueOnError)
	o.register(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	name := f.Arg(0)
	switch name {
	case "run":
		return runPart(ctx, &o, f.Args()[1:], out)
	case "parts":
		return o.list(f.Args()[1:], out)
	case "merge":
		return merge(o.out, f.Args()[1:], out)
	case "summary":
		return summarize(o.out, out)
	case "floors":
		return printFloors(&part{options: o}, out)
	case "compress":
		return compress(os.Stdin, out)
	case "decompress":
		return decompress(os.Stdin, out)
	}
	measure, known := parts[name]
	if !known {
		return fmt.Errorf("unknown part %q: known are smoke, steps, copies, ops, vendors, throughput, rotor, offload, beyond, world, language, residency, run, parts, merge, summary, floors, compress, decompress", name)
	}
	if f.NArg() > 1 {
		return fmt.Errorf("unexpected %s: flags stand before the part", strings.Join(f.Args()[1:], " "))
	}
	return o.measure(ctx, name, measure, out)
}
