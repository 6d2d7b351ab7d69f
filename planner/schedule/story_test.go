package schedule

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/planner/chain"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

// TestStories replays testdata/stories: text files that define a chain and simulate sequences on it. A chain is "chain input=2", then one
// layer a line: name forward backward output. Optional are saved=, gradient=, of=, ob=, discard_s=, discard_o=, and for contention fb= and
// bb= of a layer and copies= of the chain. A simulation is "simulate memory=9 bandwidth=1 duplex", the sequence, "----", and the results.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d stories, want 6 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := tell(t, string(want))
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s: expected parts differ; now it reads\n%s", file, got)
			}
		})
	}
}

// tell returns the story with the expected parts made anew.
func tell(t *testing.T, text string) []byte {
	var out bytes.Buffer
	var c *chain.Chain
	simulations := 0
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		fmt.Fprintln(&out, head)
		switch words := strings.Fields(head); words[0] {
		case "chain":
			c = tellChain(t, words[1:], strings.Split(rest, "\n"))
			fmt.Fprintln(&out, rest)
		case "simulate":
			simulations++
			line, _, _ := strings.Cut(rest, "\n----")
			fmt.Fprintf(&out, "%s\n----\n%s", line, tellRun(t, c, words[1:], line))
		default:
			if rest != "" {
				fmt.Fprintln(&out, rest)
			}
		}
		fmt.Fprintln(&out)
	}
	if simulations == 0 {
		t.Error("nothing is simulated")
	}
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n')
}

func tellChain(t *testing.T, options, lines []string) *chain.Chain {
	c := &chain.Chain{Name: "story"}
	for _, o := range options {
		if factors, ok := strings.CutPrefix(o, "copies="); ok {
			c.CopiesBeside = (*chain.CopiesBeside)(numbers(t, factors))
			continue
		}
		c.InputBytes = int64(number(t, strings.TrimPrefix(o, "input=")))
	}
	for _, line := range lines {
		w := strings.Fields(line)
		l := chain.Layer{Name: w[0], ForwardS: number(t, w[1]), BackwardS: number(t, w[2]), OutputBytes: int64(number(t, w[3]))}
		l.SavedBytes, l.GradientBytes = l.OutputBytes, l.OutputBytes
		for _, option := range w[4:] {
			name, value, _ := strings.Cut(option, "=")
			if name == "fb" {
				l.ForwardBeside = (*chain.Beside)(numbers(t, value))
				continue
			}
			if name == "bb" {
				l.BackwardBeside = (*chain.Beside)(numbers(t, value))
				continue
			}
			seconds := number(t, value)
			bytes := int64(seconds)
			switch name {
			case "saved":
				l.SavedBytes = bytes
			case "gradient":
				l.GradientBytes = bytes
			case "of":
				l.ForwardOverheadBytes = bytes
			case "ob":
				l.BackwardOverheadBytes = bytes
			case "discard_s":
				l.DiscardForwardS = &seconds
			case "discard_o":
				l.DiscardOverheadBytes = &bytes
			default:
				t.Fatalf("%q in %q", option, line)
			}
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

func numbers(t *testing.T, s string) (all []float64) {
	for one := range strings.SplitSeq(s, ",") {
		all = append(all, number(t, one))
	}
	return all
}

func number(t *testing.T, s string) float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func tellRun(t *testing.T, c *chain.Chain, options []string, text string) string {
	limits := Limits{Memory: NoLimit}
	for _, o := range options {
		switch name, value, _ := strings.Cut(o, "="); name {
		case "memory":
			limits.Memory = int64(number(t, value))
		case "bandwidth":
			limits.Link.Bandwidth = number(t, value)
		case "duplex":
			limits.Link.Duplex = true
		default:
			t.Fatalf("option %q", o)
		}
	}
	seq, err := Parse(text)
	if err != nil {
		return fmt.Sprintln(err)
	}
	r, err := Simulate(c, seq, limits)
	if err != nil {
		return fmt.Sprintln(err)
	}
	return tellResult(seq, r)
}

func tellResult(seq Sequence, r *Result) string {
	var b strings.Builder
	order := make([]int, len(seq))
	for p := range order {
		order[p] = p
	}
	slices.SortStableFunc(order, func(p, q int) int {
		return int(min(1, max(-1, 1e3*(r.Start[p]-r.Start[q]))))
	})
	for _, p := range order {
		fmt.Fprintf(&b, "%6g to %-4g %s\n", r.Start[p], r.End[p], seq[p])
	}
	fmt.Fprint(&b, "memory")
	for _, p := range r.Curve {
		fmt.Fprintf(&b, " %d@%g", p.Bytes, p.Time)
	}
	fmt.Fprintf(&b, "\nmakespan %g, idle %g, peak %d", r.Makespan, r.Idle, r.Peak)
	if r.PeakOp >= 0 {
		fmt.Fprintf(&b, " at %s", seq[r.PeakOp])
	}
	return b.String() + "\n"
}
