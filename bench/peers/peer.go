package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// peer is a process that answers each line with a number of seconds.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
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
	if _, err := fmt.Fprintln(p.in, question); err != nil {
		return 0, err
	}
	s, err := p.line()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(s), 64)
}

func (p *peer) close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// inTurns asks both sides in turns and returns each side's median seconds.
func inTurns(rounds int, ours, theirs func() (float64, error)) (a, b float64, err error) {
	var left, right []float64
	for range rounds {
		x, err := ours()
		if err != nil {
			return 0, 0, err
		}
		y, err := theirs()
		if err != nil {
			return 0, 0, err
		}
		left, right = append(left, x), append(right, y)
	}
	return median(left), median(right), nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
