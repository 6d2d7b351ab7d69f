//go:build cgo

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"plimsoll/internal/stats"
)

// peer is a process that answers each line with a number of seconds.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// rest is how long a peer's idle threads may spin before they leave the cores to others: OpenBLAS' for 2^26 cycles.
const rest = 60 * time.Millisecond

// startPython starts a script that times PyTorch or Pillow.
func (o options) startPython(threads int, script string, args ...string) (*peer, error) {
	return startPeer(threads, o.python, append([]string{filepath.Join(o.scripts, script)}, args...)...)
}

func startPeer(threads int, name string, args ...string) (*peer, error) {
	p := &peer{cmd: exec.Command(name, args...)}
	n := strconv.Itoa(threads)
	p.cmd.Env = append(os.Environ(), "OMP_NUM_THREADS="+n, "OPENBLAS_NUM_THREADS="+n)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// line returns the peer's next line.
func (p *peer) line() (string, error) {
	if !p.out.Scan() {
		return "", fmt.Errorf("%s ended: %w", p.cmd.Path, p.cmd.Wait())
	}
	return p.out.Text(), nil
}

func (p *peer) ask(question string) (float64, error) {
	s, err := p.answer(question)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(s), 64)
}

// answer returns the line that answers a question.
func (p *peer) answer(question string) (string, error) {
	if _, err := fmt.Fprintln(p.in, question); err != nil {
		return "", err
	}
	s, err := p.line()
	if err == nil {
		time.Sleep(rest)
	}
	return s, err
}

func (p *peer) close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// stopwatch gives the seconds of something.
type stopwatch func() (float64, error)

// inTurns asks all in turns, so that what disturbs the machine disturbs all, and returns each one's answers by turn. Answers above
// twice the median of theirs go to stderr, too.
func inTurns(rounds int, all ...stopwatch) ([][]float64, error) {
	answers := make([][]float64, len(all))
	for range rounds {
		for i, ask := range all {
			x, err := ask()
			if err != nil {
				return nil, err
			}
			answers[i] = append(answers[i], x)
		}
	}
	for i, a := range answers {
		for turn, x := range a {
			if median := stats.Median(a); x > 2*median {
				fmt.Fprintf(os.Stderr, "peers: the answer of number %d in turn %d is %.3g s, %.1f times the median\n", i+1, turn+1, x, x/median)
			}
		}
	}
	return answers, nil
}

// over returns the median of a/b, turn by turn.
func over(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return stats.Median(ratios)
}
