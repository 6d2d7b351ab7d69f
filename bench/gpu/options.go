package main

import (
	"flag"
	"time"
)

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

// commit is set by the build.
var commit = "unknown"
