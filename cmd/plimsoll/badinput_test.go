package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const five = "testdata/chain.json"

// badChain is five with one thing replaced.
func badChain(t *testing.T, old, with string) string {
	t.Helper()
	text := read(t, five)
	if !strings.Contains(text, old) {
		t.Fatalf("no %q in %s", old, five)
	}
	return write(t, filepath.Join(t.TempDir(), "bad.json"), strings.Replace(text, old, with, 1))
}

// noLink is five without a bandwidth.
func noLink(t *testing.T) string { return badChain(t, `"bandwidth_bytes_per_s":1000,`, "") }

func badPlan(t *testing.T, text string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "plan.json"), text)
}

const tinyPlan = `{"format":"plimsoll.plan/v1","chain":"five","memory_bytes":1200,"ops":[%OPS%]}`

func planOf(chain, ops string) string {
	var list []string
	for _, op := range strings.Fields(ops) {
		kind, layer, _ := strings.Cut(op, ":")
		list = append(list, `{"op":"`+kind+`","layer":`+layer+`}`)
	}
	return strings.Replace(strings.Replace(tinyPlan, "%OPS%", strings.Join(list, ","), 1), "five", chain, 1)
}

// badCase is a mistake of the command line: its exit code, and what the error says.
type badCase struct {
	name string
	args []string
	code int
	want []string
}

func badCommands() []badCase {
	return []badCase{
		{"no such command", []string{"fly"}, 2, []string{`unknown command "fly"`, "train", "validate"}},
		{"a command misspelt", []string{"trian"}, 2, []string{`unknown command "trian"`, "did you mean train?"}},
		{"a command of a command", []string{"bench", "pipeline"}, 2, []string{`"pipeline"`, "did you mean plimsoll bench pipelines?"}},
		{"help for no command", []string{"help", "trian"}, 2, []string{`"trian"`, "did you mean train?"}},
		{"no such flag", []string{"plan", "--fast"}, 2, []string{"--fast", "--help"}},
		{"a flag misspelt", []string{"train", "--memroy", "40%"}, 2, []string{"unknown flag --memroy", "did you mean --memory?", "plimsoll train --help"}},
		{"a flag of one letter", []string{"plan", "-x"}, 2, []string{"unknown shorthand flag", "-x"}},
		{"no number", []string{"train", "--steps", "many"}, 2, []string{`--steps is "many": give a whole number`}},
		{"no time", []string{"plan", "--option", "auto.budget=10"}, 2, []string{`--option auto.budget is "10": give a time, as in 10s`}},
		{"an argument", []string{"plan", "c.json"}, 2, []string{`"c.json"`}},
		{"flag without value", []string{"plan", "--memory"}, 2, []string{"--memory"}},
	}
}

func badPlans(t *testing.T) []badCase {
	return []badCase{
		{"plan: no chain", []string{"plan", "--memory", "4GiB"}, 2, []string{"--chain is missing", "-c c.json"}},
		{"plan: one file for two things", []string{"plan", "-c", five, "--memory", "1GiB", "-o", "p.json", "--trace", "./p.json"}, 2, []string{"--trace ./p.json", "--output's file"}},
		{"plan: the chain's file", []string{"plan", "-c", five, "--memory", "1GiB", "-o", "./" + five}, 2, []string{"--output", "--chain's file"}},
		{"plan: a dash", []string{"plan", "-c", five, "--memory", "1GiB", "-o", "-"}, 2, []string{"--output -", "/dev/stdout"}},
		{"plan: no memory", []string{"plan", "-c", five}, 2, []string{"--memory is missing", "40%"}},
		{"fit: memory 0", []string{"fit", "-m", "tiny", "--memory", "0"}, 2, []string{"--memory is 0"}},
		{"plan: memory 0", []string{"plan", "-c", five, "--memory", "0"}, 2, []string{"--memory"}},
		{"plan: bad memory", []string{"plan", "-c", five, "--memory", "4GX"}, 2, []string{`"4GX"`, "4GiB"}},
		{"plan: memory of a fraction", []string{"plan", "-c", five, "--memory", "0.4"}, 2, []string{"--memory: ", `"0.4"`, "no unit", `a share as "40%"`}},
		{"plan: memory of a size and a share", []string{"plan", "-c", five, "--memory", "40GB%"}, 2, []string{"--memory: ", "both a size and a share", `"40GB" or "40%"`}},
		{"frontier: strategy that moves state", []string{"frontier", "-c", five, "--strategy", "residency"}, 2, []string{"residency moves weights and state"}},
		{"plan: strategy of several devices", []string{"plan", "-c", five, "--memory", "1GiB", "--strategy", "gpipe"}, 2, []string{"gpipe plans for several devices", "give --devices"}},
		{"plan: a strategy misspelt", []string{"plan", "-c", five, "--memory", "1GiB", "--strategy", "rotr"}, 2, []string{"did you mean rotor?"}},
		{"plan: a pipeline misspelt", []string{"plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s", "--strategy", "madpip"}, 2, []string{"did you mean madpipe?"}},
		{"plan: accounting", []string{"plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s", "--accounting", "save"}, 2, []string{"--accounting: ", "did you mean saved?"}},
		{"plan: negative memory", []string{"plan", "-c", five, "--memory", "-5"}, 2, []string{"-5"}},
		{"plan: bad bandwidth", []string{"plan", "-c", five, "--memory", "1GiB", "--bandwidth", "fast"}, 2, []string{`"fast"`, "12GB/s"}},
		{"plan: bandwidth 0", []string{"plan", "-c", five, "--memory", "1GiB", "--bandwidth", "0"}, 2, []string{"--bandwidth", "zero", "12GB/s"}},
		{"plan: negative bandwidth", []string{"plan", "-c", five, "--memory", "1GiB", "--bandwidth=-3GB/s"}, 2, []string{"--bandwidth", "negative", "12GB/s"}},
		{"plan: no link", []string{"plan", "-c", noLink(t), "--memory", "1GiB", "--strategy", "pofo"}, 2, []string{"link", "bandwidth", "0"}},
		{"plan: duplex without a link", []string{"plan", "-c", noLink(t), "--memory", "1GiB", "--duplex"}, 2, []string{"--duplex", "--bandwidth 12GB/s"}},
		{"plan: budget", []string{"plan", "-c", five, "--memory", "1GiB", "--option", "auto.budget=-3s"}, 2, []string{"--option auto.budget is -3s", "10s"}},
		{"plan: budget of another strategy", []string{"plan", "-c", five, "--memory", "1GiB", "--option", "auto.budget=3s", "--strategy", "rotor"}, 2, []string{"rotor", "auto"}},
		{"plan: checkmate", []string{"plan", "-c", five, "--memory", "1GiB", "--strategy", "checkmat"}, 2, []string{`"checkmat"`, "pofo"}},
		{"plan: strategy", []string{"plan", "-c", five, "--memory", "1GiB", "--strategy", "magic"}, 2,
			[]string{`"magic"`, "store-all", "rotor-exact", "auto"}},
		{"plan: slots", []string{"plan", "-c", five, "--memory", "1GiB", "--strategy", "rotor", "--option", "rotor.slots=0"}, 2, []string{"--option rotor.slots is 0"}},
		{"plan: segments", []string{"plan", "-c", five, "--memory", "1GiB", "--strategy", "periodic", "--option", "periodic.segments=-1"}, 2, []string{"--option periodic.segments is -1"}},
		{"plan: missing file", []string{"plan", "-c", "none.json", "--memory", "1GiB"}, 2, []string{"none.json"}},
		{"plan: not JSON", []string{"plan", "-c", "main.go", "--memory", "1GiB"}, 2, []string{"main.go", "no chain"}},
		{"plan: format", []string{"plan", "-c", badChain(t, "chain/v1", "chain/v9"), "--memory", "1GiB"}, 2, []string{"bad.json", "format", "v9"}},
		{"plan: negative time", []string{"plan", "-c", badChain(t, `"forward_s":2`, `"forward_s":-2`), "--memory", "1GiB"}, 2,
			[]string{"bad.json", "layer 2 (block1)", "forward_s", "-2"}},
		{"plan: saved below output", []string{"plan", "-c", badChain(t, `"saved_bytes":300`, `"saved_bytes":3`), "--memory", "1GiB"}, 2,
			[]string{"layer 1 (stem)", "saved_bytes", "3"}},
		{"plan: missing field", []string{"plan", "-c", badChain(t, `"backward_s":2,`, ""), "--memory", "1GiB"}, 2, []string{"layer 1 (stem)", "backward_s"}},
		{"plan: text for a number", []string{"plan", "-c", badChain(t, `"input_bytes":100`, `"input_bytes":"100"`), "--memory", "1GiB"}, 2, []string{"input_bytes"}},
		{"plan: too small", []string{"plan", "-c", five, "--memory", "100"}, 3, []string{"100 B", "smallest", "700", "B3", "block2"}},
		{"plan: too small for store-all", []string{"plan", "-c", five, "--memory", "50%", "--strategy", "store-all"}, 3,
			[]string{"store-all", "--memory 1700", "B4"}},
	}
}

func badChecks(t *testing.T) []badCase {
	return []badCase{
		{"check: no chain", []string{"check", "-p", "p.json"}, 2, []string{"--chain"}},
		{"check: no plan", []string{"check", "-c", five}, 2, []string{"-p p.json", "--text"}},
		{"check: two plans", []string{"check", "-c", five, "-p", "p.json", "--text", "F1"}, 2, []string{"either"}},
		{"check: missing plan", []string{"check", "-c", five, "-p", "none.json"}, 2, []string{"none.json"}},
		{"check: bad token", []string{"check", "-c", five, "--text", "Fall1 X2"}, 2, []string{"op 1", `"X2"`, "Fall, Fck"}},
		{"check: no such layer", []string{"check", "-c", five, "--text", "Fall9"}, 2, []string{"op 0", "forward_all 9"}},
		{"check: rule", []string{"check", "-c", five, "--text", "Fall1 Fall2 B2"}, 2, []string{"op 2", "backward 2"}},
		{"check: unfinished", []string{"check", "-c", five, "--text", "Fall1"}, 2, []string{"end of the sequence"}},
		{"check: rule in a file", []string{"check", "-c", five, "-p", badPlan(t, planOf("five", "backward:1"))}, 2, []string{"plan.json", "op 0", "backward 1"}},
		{"check: other chain", []string{"check", "-c", five, "-p", badPlan(t, planOf("six", "forward_all:1"))}, 2, []string{"plan.json", `"six"`, `"five"`}},
		{"check: unknown op", []string{"check", "-c", five, "-p", badPlan(t, planOf("five", "sideways:1"))}, 2, []string{"plan.json", "op 0", `"sideways"`}},
		{"check: bad layer", []string{"check", "-c", five, "-p", badPlan(t, planOf("five", "backward:0"))}, 2, []string{"op 0", "layer", "0"}},
		{"check: pipeline", []string{"check", "-c", five, "-p", badPlan(t, `{"format":"plimsoll.plan/v1","chain":"five","stages":[]}`)}, 2, []string{"pipeline"}},
		{"check: no link", []string{"check", "-c", five, "--text", "Fall1 O2 P2 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1"}, 2, []string{"--bandwidth 12GB/s"}},
		{"check: never prefetched", []string{"check", "-c", five, "--bandwidth", "1GB/s", "--text", "Fall1 O2 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1"}, 2,
			[]string{"op 9 (backward 2)", "O2 at op 1", "add P2 before op 9"}},
		{"check: saved set never prefetched", []string{"check", "-c", five, "--bandwidth", "1GB/s", "--text", "Fall1 O2 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 P2 O2 Fck1 B2 B1"}, 2,
			[]string{"op 13 (backward 1)", "O2 at op 10", "add P2 before op 13"}},
	}
}

func badNoises() []badCase {
	table := tables + "gpipe_4ranks_1stages_8mb.csv"
	return []badCase{
		{"noise: too much", []string{"check", "-p", table, "--noise", "101%"}, 2, []string{"--noise", `"101%"`, `"10%"`}},
		{"noise: more than all", []string{"check", "-p", table, "--noise", "10"}, 2, []string{"--noise", `"10"`, "0.1"}},
		{"noise: none", []string{"check", "-p", table, "--noise", "0"}, 2, []string{"--noise", `"0"`}},
		{"noise: 0%", []string{"check", "-p", table, "--noise", "0%"}, 2, []string{"--noise", `"0%"`}},
		{"noise: negative", []string{"check", "-p", table, "--noise=-0.1"}, 2, []string{"--noise", `"-0.1"`}},
		{"noise: no number", []string{"check", "-p", table, "--noise", "NaN"}, 2, []string{"--noise", `"NaN"`}},
		{"noise: text", []string{"check", "-p", table, "--noise", "much"}, 2, []string{"--noise", `"much"`}},
		{"noise: runs", []string{"check", "-p", table, "--noise", "10%", "--runs", "0"}, 2, []string{"--runs is 0"}},
		{"noise: too many runs", []string{"check", "-p", table, "--noise", "10%", "--runs", "1000001"}, 2, []string{"--runs is 1000001"}},
		{"noise: runs alone", []string{"check", "-p", table, "--runs", "5"}, 2, []string{"--runs", "--noise 10%"}},
		{"noise: seed alone", []string{"check", "-p", table, "--seed", "5"}, 2, []string{"--seed", "--noise 10%"}},
		{"noise: seed", []string{"check", "-p", table, "--noise", "10%", "--seed", "-1"}, 2, []string{"--seed", `"-1"`}},
	}
}

func badDevices() []badCase {
	return []badCase{
		{"devices: kind", []string{"devices", "--devices", "tpu"}, 2, []string{`"tpu"`, "cpu"}},
		{"devices: spec", []string{"devices", "--devices", "cpu*0"}, 2, []string{"cpu*0"}},
		{"devices: bandwidth", []string{"devices", "--peer-bandwidth", "0"}, 2, []string{"--peer-bandwidth", "12GB/s"}},
		{"devices: memory", []string{"devices", "--devices", "null*2", "-o", "OUT", "--memory", "much"}, 2, []string{"--memory", `"much"`}},
		{"devices: memory 0", []string{"devices", "--devices", "null*2", "-o", "OUT", "--memory", "0"}, 2, []string{"--memory is 0", "512MiB"}},
		{"devices: memory of no file", []string{"devices", "--devices", "null*2", "--memory", "1GiB"}, 2, []string{"--memory", "-o platform.json"}},
		{"devices: kinds", []string{"devices", "--devices", "null*2,cpu", "-o", "OUT"}, 2, []string{"null*2/0 and cpu", "one kind"}},
		{"devices: pairs", []string{"devices", "--devices", "null*2", "--pairs"}, 2, []string{"--pairs is for several processes", "--world"}},
		{"devices: folder", []string{"devices", "--devices", "null*2", "-o", "none/p.json"}, 2, []string{"none/p.json", "no folder"}},
	}
}

func badFrontiers(t *testing.T) []badCase {
	return []badCase{
		{"frontier: no chain", []string{"frontier"}, 2, []string{"--chain is missing"}},
		{"frontier: points", []string{"frontier", "-c", five, "--points", "1"}, 2, []string{"--points is 1"}},
		{"frontier: strategy", []string{"frontier", "-c", five, "--strategy", "magic"}, 2, []string{`"magic"`, "auto"}},
		{"frontier: bandwidth", []string{"frontier", "-c", five, "--bandwidth", "0GB/s"}, 2, []string{"zero"}},
		{"frontier: no link", []string{"frontier", "-c", noLink(t), "--strategy", "vdnn"}, 2, []string{"link", "--bandwidth"}},
		{"frontier: folder", []string{"frontier", "-c", five, "-o", "none/f.csv"}, 2, []string{"none/f.csv", "no folder"}},
		{"check: does not fit", []string{"check", "-c", five, "--text", "Fall1 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1", "--memory", "900"}, 3, []string{"can never start", "900"}},
	}
}

func badProfiles() []badCase {
	return []badCase{
		{"profile: no model", []string{"profile"}, 2, []string{"--model", "-m resnet20"}},
		{"profile: model", []string{"profile", "-m", "resnet51"}, 2, []string{`"resnet51"`, "did you mean resnet50 or resnet56?", "densenet121"}},
		{"profile: device", []string{"profile", "-m", "tiny", "--devices", "tpu"}, 2, []string{`"tpu"`, "cpu"}},
		{"profile: device spec", []string{"profile", "-m", "tiny", "--devices", "cpu*"}, 2, []string{`"cpu*"`}},
		{"profile: two devices", []string{"profile", "-m", "tiny", "--devices", "cpu*2"}, 2, []string{"cpu*2", "one"}},
		{"profile: type", []string{"profile", "-m", "tiny", "--dtype", "half"}, 2, []string{"--dtype", `"half"`, "bf16"}},
		{"profile: reference kernels without memory", []string{"profile", "-m", "tiny", "--devices", "null", "--debug", "reference"}, 2, []string{"null", "use cpu"}},
		{"profile: device without arithmetic", []string{"profile", "-m", "tiny", "--devices", "null"}, 2, []string{"null", "cpu"}},
		{"profile: batch", []string{"profile", "-m", "tiny", "--batch", "0"}, 2, []string{"batch 0"}},
		{"profile: image", []string{"profile", "-m", "tiny", "--image", "-3"}, 2, []string{"-3"}},
		{"profile: vendor", []string{"profile", "-m", "tiny", "--debug", "vendor=maybe"}, 2, []string{`--debug vendor: unknown value "maybe"`, "require"}},
		{"profile: memory", []string{"profile", "-m", "tiny", "--image", "16", "--batch", "64", "--debug", "device-memory=600KiB"}, 3,
			[]string{"plimsoll profile: layer 1 (stem) alone needs 2.253 MiB", "600.0 KiB"}},
		{"profile: threads", []string{"profile", "-m", "tiny", "--debug", "threads=-1"}, 2, []string{"--debug threads is -1", "from 0"}},
		{"profile: steps", []string{"profile", "-m", "tiny", "--option", "profile.steps=0"}, 2, []string{"--option profile.steps is 0"}},
		{"profile: folder", []string{"profile", "-m", "tiny", "-o", "none/c.json"}, 2, []string{"none/c.json", "no folder"}},
		{"profile: a folder as file", []string{"profile", "-m", "tiny", "-o", "testdata"}, 2, []string{"testdata", "folder"}},
		{"profile: classes", []string{"profile", "-m", "tiny", "--classes", "3"}, 2, []string{"3", "10"}},
		{"profile: data", []string{"profile", "-m", "tiny", "--data", "mnist"}, 2, []string{`"mnist"`, "digits", "glyphs"}},
	}
}

func badTrains() []badCase {
	return []badCase{
		{"train: optimizer", []string{"train", "-m", "tiny", "--optimizer", "lion"}, 2, []string{`"lion"`, "adamw"}},
		{"train: data misspelt", []string{"train", "-m", "tiny", "--data", "glyph"}, 2, []string{"did you mean glyphs?"}},
		{"train: device misspelt", []string{"train", "-m", "tiny", "--devices", "cpi"}, 2, []string{"did you mean cpu?"}},
		{"train: sums in one process", []string{"train", "-m", "tiny", "--option", "world.allreduce=nccl"}, 2, []string{"--option world.allreduce is for several processes", "--world"}},
		{"train: sums by tcp", []string{"train", "-m", "tiny", "--world", "2", "--option", "world.allreduce=nccl"}, 2, []string{"--option world.allreduce=nccl is for --transport nccl", "with tcp Plimsoll adds up"}},
		{"train: parts of matrices", []string{"train", "-m", "tiny", "--devices", "cpu*2", "--strategy", "joint-flush", "--zero", "1", "--optimizer", "muon"}, 2, []string{"--zero divides", "--optimizer muon", "adamw"}},
		{"train: sums of parts", []string{"train", "-m", "tiny", "--world", "2", "--transport", "nccl", "--option", "world.allreduce=nccl", "--zero", "1"}, 2, []string{"--option world.allreduce=nccl adds up whole gradients", "--zero"}},
		{"train: sums by others", []string{"train", "-m", "tiny", "--option", "world.allreduce=mpi"}, 2, []string{"--option world.allreduce", "ordered", "nccl"}},
		{"train: momentum", []string{"train", "-m", "tiny", "--option", "sgd.momentum=1"}, 2, []string{"--option sgd.momentum is 1"}},
		{"train: weight decay", []string{"train", "-m", "tiny", "--weight-decay", "NaN"}, 2, []string{"--weight-decay"}},
		{"train: momentum of adam", []string{"train", "-m", "tiny", "--optimizer", "adam", "--option", "sgd.momentum=0.9"}, 2, []string{"--option sgd.momentum is a setting of sgd, and --optimizer is adam"}},
		{"train: beta of sgd", []string{"train", "-m", "tiny", "--option", "adam.beta1=0.9"}, 2, []string{"--option adam.beta1 is a setting of adam, and --optimizer is sgd"}},
		{"train: eps of sgd", []string{"train", "-m", "tiny", "--option", "adam.eps=1e-8"}, 2, []string{"--option adam.eps is a setting of adam"}},
		{"train: beta1", []string{"train", "-m", "tiny", "--optimizer", "adamw", "--option", "adamw.beta1=1"}, 2, []string{"--option adamw.beta1 is 1"}},
		{"train: beta2", []string{"train", "-m", "tiny", "--optimizer", "muon", "--option", "muon.beta2=-0.1"}, 2, []string{"--option muon.beta2 is -0.1"}},
		{"train: beta2 that rounds to 1", []string{"train", "-m", "tiny", "--optimizer", "adam", "--option", "adam.beta2=0.99999999999"}, 2, []string{"--option adam.beta2 is 0.99999999999"}},
		{"train: eps", []string{"train", "-m", "tiny", "--optimizer", "adam", "--option", "adam.eps=0"}, 2, []string{"--option adam.eps is 0"}},
		{"train: decay", []string{"train", "-m", "tiny", "--option", "optimizer.decay=norms"}, 2, []string{`--option optimizer.decay: unknown value "norms"`, "matrices, all"}},
		{"train: rate", []string{"train", "-m", "tiny", "--lr", "-1"}, 2, []string{"--lr is -1"}},
		{"train: schedule", []string{"train", "-m", "tiny", "--lr-schedule", "steps"}, 2, []string{`"steps"`, "cosine"}},
		{"train: warmup", []string{"train", "-m", "tiny", "--warmup", "101"}, 2, []string{"--warmup is 101"}},
		{"train: steps", []string{"train", "-m", "tiny", "--steps", "0"}, 2, []string{"--steps is 0"}},
		{"train: lr-step missing", []string{"train", "-m", "tiny", "--lr-schedule", "step"}, 2, []string{"--option step.every is missing", "step.every=500"}},
		{"train: lr-step without schedule", []string{"train", "-m", "tiny", "--option", "step.every=5"}, 2, []string{"--option step.every is a setting of step", "--lr-schedule is constant"}},
		{"train: lr-gamma", []string{"train", "-m", "tiny", "--lr-schedule", "step", "--option", "step.every=5", "--option", "step.gamma=1.5"}, 2, []string{"--option step.gamma is 1.5"}},
		{"train: offload-state", []string{"train", "-m", "tiny", "--offload-state", "all"}, 2, []string{`--offload-state: unknown value "all"`, "none, optimizer, weights"}},
		{"train: offload-state and a strategy", []string{"train", "-m", "tiny", "--offload-state", "weights", "--strategy", "rotor"}, 2, []string{"--strategy and --offload-state weights, which is --strategy layer-window", "give one of them"}},
		{"train: offload-state of branches", []string{"train", "-m", "siamese", "--image", "8", "--offload-state", "weights"}, 2, []string{"siamese has branches", "plans that move weights and state"}},
		{"train: host memory", []string{"train", "-m", "tiny", "--offload-state", "weights", "--host-memory", "1MiB"}, 3, []string{"1,048,576 B", "layer-window: ", "of host memory are too little: the least found is", "give at least --host-memory "}},
		{"train: clip", []string{"train", "-m", "tiny", "--clip-norm", "NaN"}, 2, []string{"--clip-norm is NaN"}},
		{"train: eval", []string{"train", "-m", "tiny", "--eval-every", "-1"}, 2, []string{"--eval-every is -1"}},
		{"train: on-nan", []string{"train", "-m", "tiny", "--on-nan", "panic"}, 2, []string{`"panic"`, "stop, skip"}},
		{"train: init", []string{"train", "-m", "tiny", "--init", "none.safetensors"}, 2, []string{"--init", "none.safetensors"}},
		{"train: init of something else", []string{"train", "-m", "tiny", "--batch", "4", "--init", "main.go"}, 2, []string{"main.go", "safetensors"}},
		{"train: keep", []string{"train", "-m", "tiny", "--option", "checkpoint.keep=0"}, 2, []string{"--option checkpoint.keep is 0"}},
		{"train: checkpoints", []string{"train", "-m", "tiny", "--checkpoint-every", "-2"}, 2, []string{"--checkpoint-every is -2"}},
		{"train: checkpoints nowhere", []string{"train", "-m", "tiny", "--checkpoint-every", "2"}, 2, []string{"--out is missing"}},
		{"train: resume nothing", []string{"train", "-m", "tiny", "--resume"}, 2, []string{"--out is missing"}},
		{"train: metrics", []string{"train", "-m", "tiny", "--metrics", "here"}, 2, []string{"--metrics here", "127.0.0.1:9090"}},
		{"train: metrics port", []string{"train", "-m", "tiny", "--metrics", "127.0.0.1:99999"}, 2, []string{"--metrics", "99999"}},
		{"train: no pictures", []string{"train", "-m", "tiny", "--data", "folder:none"}, 2, []string{"none"}},
		{"train: memory 0", []string{"train", "-m", "tiny", "--memory", "0"}, 2, []string{"--memory is 0"}},
		{"train: profile of another model", []string{"train", "-m", "tiny", "--profile", five}, 2, []string{"chain.json", "5 layers", "tiny has 6"}},
		{"train: too small", []string{"train", "-m", "tiny", "--batch", "4", "--memory", "10%", "--out", "OUT"}, 3,
			[]string{"residency: a limit of", "the smallest found is", "--memory"}},
		{"train: less than the weights", []string{"train", "-m", "tiny", "--batch", "4", "--memory", "1", "--out", "OUT"}, 3, []string{"smallest"}},
	}
}

func badValidates() []badCase {
	return []badCase{
		{"validate: strategies", []string{"validate", "-m", "tiny", "--strategy", "rotor,,periodic"}, 2, []string{`""`, "rotor-exact"}},
		{"validate: limits", []string{"validate", "-m", "tiny", "--memory", "50%,x"}, 2, []string{`"x"`}},
		{"validate: limit 0", []string{"validate", "-m", "tiny", "--memory", "50%,0"}, 2, []string{"limit is 0"}},
		{"validate: nothing fits", []string{"validate", "-m", "tiny", "--batch", "4", "--memory", "10%,20%", "--out", "OUT"}, 3, []string{"no strategy fits", "smallest", "--memory"}},
		{"train: out is a file", []string{"train", "-m", "tiny", "--out", five + "/run"}, 2, []string{five, "is a file"}},
		{"demo: out is a file", []string{"demo", "-m", "tiny", "--batch", "4", "--out", five}, 2, []string{five, "is a file"}},
	}
}

// Every mistake ends with its exit code, one line that names the thing and says what to do, nothing on standard
// output, and no file.
// Only this test finds a refusal that fills several lines, prints to standard output or leaves --out behind.
func TestBadInput(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(badCommands(), badPlans(t), badChecks(t), badNoises(), badDevices(), badFrontiers(t), badProfiles(), badTrains(), badTrainPipes(t), badGiven(t), badValidates(), badFits(), badCycles(t))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			for i := range c.args {
				if c.args[i] == "OUT" {
					c.args[i] = out
				}
			}
			r := plimsoll(t, append(c.args, "--quiet")...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d: %s", r.code, c.code, r.err)
			}
			for _, w := range c.want {
				if !strings.Contains(r.err, w) {
					t.Errorf("the error does not say %q: %s", w, r.err)
				}
			}
			if strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, "BUG") || len(r.err) > 500 {
				t.Errorf("not one clear line: %s", r.err)
			}
			if r.out != "" {
				t.Errorf("something on standard output: %s", r.out)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("files stay: %v", tree(t, out))
			}
		})
	}
	if len(cases) < 60 {
		t.Errorf("only %d cases", len(cases))
	}
}

// The smallest limit of the error works, and one byte less does not.
func TestTheSmallestLimitWorks(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"plan", "-c", five},
		{"plan", "-c", five, "--strategy", "periodic"},
		{"train", "-m", "tiny", "--batch", "4", "--steps", "1"},
		{"train", "-m", "tiny", "--batch", "4", "--steps", "1", "--strategy", "store-all"},
	} {
		r := plimsoll(t, append(args, "--memory", "1")...)
		_, rest, found := strings.Cut(r.err, "(--memory ")
		smallest, _, _ := strings.Cut(rest, ")")
		if !found || r.code != exitNoFit {
			t.Fatalf("%v: exit code %d: %s", args, r.code, r.err)
		}
		works(t, append(args, "--memory", smallest, "-q")...)
	}
}

// A file that is there stays as it was when the command fails.
func TestAFailureLeavesOldFiles(t *testing.T) {
	t.Parallel()
	plan := write(t, filepath.Join(t.TempDir(), "p.json"), "old")
	for _, args := range [][]string{
		{"plan", "-c", five, "--memory", "100", "-o", plan},
		{"plan", "-c", "none.json", "--memory", "1GiB", "-o", plan},
		{"profile", "-m", "none", "-o", plan},
	} {
		if r := plimsoll(t, args...); r.code == exitOK {
			t.Fatalf("%v works", args)
		}
		if got := read(t, plan); got != "old" {
			t.Errorf("%v: the file holds %q", args, got)
		}
		if files := tree(t, filepath.Dir(plan)); len(files) != 1 {
			t.Errorf("%v leaves %v", args, files)
		}
	}
}

// A canceled context ends every command that takes time, with exit code 1 and without files.
func TestInterruption(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	folder := t.TempDir()
	for _, args := range [][]string{
		{"profile", "-m", "tiny", "--batch", "4", "-o", filepath.Join(folder, "c.json")},
		{"train", "-m", "tiny", "--batch", "4", "--option", "profile.no-cache", "--out", filepath.Join(folder, "run")},
		{"validate", "-m", "tiny", "--batch", "4", "--option", "profile.no-cache"},
		{"devices", "-o", filepath.Join(folder, "platform.json")},
		{"demo", "-m", "tiny", "--batch", "4", "--out", filepath.Join(folder, "demo")},
	} {
		r := plimsollIn(ctx, t, "", args...)
		if r.code != exitFailed || !strings.Contains(r.err, "interrupted") {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.err)
		}
	}
	if files := tree(t, folder); len(files) != 0 {
		t.Errorf("files stay: %v", files)
	}
}

// panicking is standard input of a program with a bug.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("BUG: no input") }

func TestOurOwnBugsSaySo(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	code := run(context.Background(), []string{"check", "-c", five, "-p", "-"}, panicking{}, &out, &errs)
	if code != exitFailed || !strings.HasPrefix(errs.String(), "BUG: no input\n") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	errs.Reset()
	run(context.Background(), []string{"check", "-c", five, "-p", "-", "--json"}, panicking{}, &out, &errs)
	if last := `{"command":"plimsoll","error":"no input","kind":"bug","exit_code":1}` + "\n"; !strings.HasSuffix(errs.String(), last) {
		t.Errorf("with --json the end is not %s: %s", last, errs.String())
	}
}

// Commands say that a missing file is missing, whichever flag names it.
func TestMissingFilesAreMissing(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	tried := 0
	for _, args := range []string{
		"profile -m gpt2-1-16 --data tokens:NONE", "profile -m gpt2-1-16 --data text:NONE", "profile -m tiny --data folder:NONE", "profile -m tiny --data cifar10:NONE",
		"profile -m tiny --data idx:NONE", "profile -m gpt2-1-16 --tokenizer NONE", "profile -m NONE.onnx", "train -m tiny --init NONE", "evaluate -m tiny --weights NONE",
		"train -m tiny --profile NONE", "train -m tiny --plan NONE", "plan -c NONE --memory 40%", "check -c NONE -p NONE", "import NONE", "report NONE", "tokenize --data text:NONE -o x",
	} {
		tried++
		r := plimsoll(t, strings.Fields(strings.ReplaceAll(args, "NONE", none))...)
		missing := strings.Contains(r.err, "no such file") || strings.Contains(r.err, "there is no folder")
		if r.code != exitUsage || !missing || !strings.Contains(r.err, none) || strings.Contains(r.err, "corrupt") || strings.Contains(r.err, "repair") {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.err)
		}
	}
	if tried != 16 {
		t.Errorf("%d were tried", tried)
	}
}

// Commands refuse folders of Hugging Face whose files say nothing, each with the file and the field.
func TestFoldersOfHuggingFace(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors.index.json"} {
		write(t, filepath.Join(folder, name), "{}")
	}
	for args, want := range map[string]string{
		"train -m FOLDER":                       `config.json: field "model_type" is missing`,
		"train -m gpt2-1-16 --init FOLDER":      `model.safetensors.index.json: field "weight_map" is missing`,
		"evaluate -m tiny --weights FOLDER":     `model.safetensors.index.json: field "weight_map" is missing`,
		"train -m gpt2-1-16 --tokenizer FOLDER": `tokenizer.json: field "model" is missing`,
	} {
		if r := plimsoll(t, strings.Fields(strings.ReplaceAll(args, "FOLDER", folder))...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %s, want %s", args, r.code, r.err, want)
		}
	}
}
