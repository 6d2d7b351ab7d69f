// Command gpu measures the CUDA backend on one device and writes what it found as JSON and as markdown. It is the
// measuring half of the suite that make gpu-suite prepares; run.sh calls it and README.md says what each part asks.
//
//	gpu [flags] smoke|steps|copies|ops|vendors|throughput|rotor|offload|beyond|world|language|residency
//	                                                   measure a part
//	gpu -part NAME [-tests] [-result FILE] -out DIR run COMMAND...      run a part and add what it gave to the results
//	gpu [-limits LIMIT] parts [CALL|PART...]           list parts, their limits, and whether they judge, for run.sh
//	gpu -out DIR merge DIR...                          join the results of several calls
//	gpu -out DIR summary                               print the results as a short table
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
	"time"
)

// commit is set by the build.
var commit = "unknown"

// options are the flags.
type options struct {
	device  string
	tiny    bool
	python  string // with PyTorch; "": no peer
	peer    string // torch_peer.py
	program string // plimsoll, for parts that run it
	commit  string
	vendor  string // whether vendors' libraries are used, as kernels/library means it
	result  string // file for, or of, a part's outcome
	part    string
	tests   bool
	missing string // why a part cannot run; it is noted
	out     string
	limit   time.Duration
	limits  string // of parts, as LIMIT of run.sh
}

func (o *options) register(f *flag.FlagSet) {
	f.StringVar(&o.device, "device", "cuda:0", "the device to measure")
	f.BoolVar(&o.tiny, "tiny", false, "tiny shapes: tries the program, measures nothing")
	f.StringVar(&o.python, "python", "", "Python with PyTorch, for the peer")
	f.StringVar(&o.peer, "peer", "torch_peer.py", "the peer's script")
	f.StringVar(&o.program, "program", "", "plimsoll, for world, language and residency")
	f.StringVar(&o.vendor, "vendor", "", "vendors' libraries: refuse, prefer or require")
	f.StringVar(&o.result, "result", "", "file for a part's outcome")
	f.StringVar(&o.part, "part", "", "run: the part's name")
	f.BoolVar(&o.tests, "tests", false, "run: the command is a Go test binary with -test.v")
	f.StringVar(&o.missing, "missing", "", "run: note that the part cannot run, and why")
	f.StringVar(&o.out, "out", "out", "run: folder for results.json, results.md and log.txt")
	f.DurationVar(&o.limit, "limit", 5*time.Minute, "run: the part is stopped then")
	f.StringVar(&o.limits, "limits", "", "parts: seconds, of all parts (300) or of some (throughput=300 beyond=200)")
}

// parts are those that this program measures itself.
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
	}
	measure, known := parts[name]
	if !known {
		return fmt.Errorf("unknown part %q: known are smoke, steps, copies, ops, vendors, throughput, rotor, offload, beyond, world, language, residency, run, parts, merge, summary", name)
	}
	if f.NArg() > 1 {
		return fmt.Errorf("unexpected %s: flags stand before the part", strings.Join(f.Args()[1:], " "))
	}
	return o.measure(ctx, name, measure, out)
}
