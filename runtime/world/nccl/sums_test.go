//go:build cuda && linux && amd64

package nccl

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	device "plimsoll/runtime"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/nccl/fake"
)

// count is how many numbers a rank has in memory.
const count = 1000

// numbers is memory with count float32 numbers of a rank, whose sums are exact in any order, but for every seventh.
func (g *gpu) numbers(rank int) (cu.DevicePtr, error) {
	b := make([]byte, 4*count)
	for i := range count {
		v := float32(rank*1000 + i%512)
		if i%7 == 0 {
			v = 1 / (v + 3)
		}
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return g.memory(len(b), b)
}

// read returns the numbers in memory at p.
func (g *gpu) read(p cu.DevicePtr) (all []float32, err error) {
	all = make([]float32, count)
	return all, g.run(func() error { return cu.MemcpyDtoH(unsafe.Pointer(unsafe.SliceData(all)), p, int64(4*count)) })
}

// everyone is a line of all ranks, backwards.
func everyone(w *world.World) (l world.Line) {
	l.Name = "gradients"
	for rank := range w.Size() {
		l.Ranks = append(l.Ranks, w.Size()-1-rank)
	}
	return l
}

// summed adds up parts of its numbers, and looks at them: within parts they are sums, and elsewhere as before.
func (g *gpu) summed(w *world.World, f *fabric, line int, parts []part, ranks []int) error {
	q, err := g.queue()
	if err != nil {
		return err
	}
	p, err := g.numbers(w.Rank())
	if err != nil {
		return err
	}
	var spans []device.Span
	for _, x := range parts {
		spans = append(spans, spanOf(p, int(x.offset), int(x.bytes)))
	}
	if err := q.launch(f.Sum(line, spans)); err != nil {
		return err
	}
	if err := q.wait(w, limit); err != nil {
		return err
	}
	got, err := g.read(p)
	if err != nil {
		return err
	}
	for i, v := range got {
		within := slices.ContainsFunc(parts, func(p part) bool { return int64(4*i) >= p.offset && int64(4*i) < p.offset+p.bytes })
		want := float64(w.Rank()*1000 + i%512)
		if i%7 == 0 {
			want = 1 / (want + 3)
		}
		if within {
			want = 0
			for _, rank := range ranks {
				if x := float64(rank*1000 + i%512); i%7 == 0 {
					want += 1 / (x + 3)
				} else {
					want += x
				}
			}
		}
		if math.Abs(float64(v)-want) > 1e-6*math.Abs(want) || i%7 > 0 && float64(v) != want {
			return fmt.Errorf("number %d of line %d is %v, want %v", i, line, v, want)
		}
	}
	sum := sha256.Sum256(unsafe.Slice((*byte)(unsafe.Pointer(&got[parts[0].offset/4])), parts[0].bytes))
	all, err := w.AllGather(context.Background(), sum[:])
	if err != nil {
		return err
	}
	for _, rank := range ranks {
		if string(all[rank]) != string(sum[:]) {
			return fmt.Errorf("sums of line %d differ between ranks %d and %d", line, w.Rank(), rank)
		}
	}
	return nil
}

// Parts are added up over lines of two and more ranks, in groups of one and more; nothing else is touched, and all ranks have the same bits.
func TestSumsOfAllRanks(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4} {
		if out, ok := processes(t, n, "sums", nil); !ok || strings.Count(strings.Join(out, ""), "all sums are right\n") != n {
			t.Errorf("%d processes: %s", n, out)
		}
	}
}

func sums(w *world.World, f *fabric, g *gpu) error {
	pair := world.Line{Name: "pair", Ranks: []int{w.Size() - 1, 0}}
	lines := []world.Line{everyone(w), pair}
	if err := f.OpenSums(g.adding(lines)); err != nil {
		return err
	}
	for round, parts := range [][]part{{{bytes: 4000}}, {{offset: 4, bytes: 400}, {offset: 1000, bytes: 8}, {offset: 3000, bytes: 0}, {offset: 2000, bytes: 996}}, {{offset: 3996, bytes: 4}}} {
		for line, l := range lines {
			if !slices.Contains(l.Ranks, w.Rank()) {
				if _, err := w.AllGather(context.Background(), nil); err != nil { // of what the others have
					return err
				}
				continue
			}
			if err := g.summed(w, f, line, parts, l.Ranks); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
	}
	if n, b := f.Sent(); n != 0 || b != 0 {
		return fmt.Errorf("%d messages of %d bytes", n, b)
	}
	if err := f.sum(len(lines), 0, nil, 0); err == nil {
		return errors.New("a line that is none")
	}
	if err := f.sum(0, 0, []part{{bytes: 3}}, 0); err == nil {
		return errors.New("three bytes")
	}
	fmt.Println("all sums are right")
	return nil
}

// someSums adds up three times.
func someSums(w *world.World, f *fabric, g *gpu) error {
	l := everyone(w)
	if err := f.OpenSums(g.adding([]world.Line{l})); err != nil {
		return err
	}
	for range 3 {
		if err := g.summed(w, f, 0, []part{{bytes: 1600}, {offset: 2000, bytes: 2000}}, l.Ranks); err != nil {
			return err
		}
	}
	return nil
}

// otherSums are of as many numbers as the rank says.
func otherSums(w *world.World, f *fabric, g *gpu) error {
	l := everyone(w)
	if err := f.OpenSums(g.adding([]world.Line{l})); err != nil {
		return err
	}
	return wrong(w, g.summed(w, f, 0, []part{{bytes: int64(400 + 4*w.Rank())}}, l.Ranks))
}

// otherGroups are the same sums, in another order at one rank.
func otherGroups(w *world.World, f *fabric, g *gpu) error {
	l := everyone(w)
	if err := f.OpenSums(g.adding([]world.Line{l})); err != nil {
		return err
	}
	parts := []part{{bytes: 400}, {offset: 400, bytes: 800}}
	if w.Rank() == 1 {
		slices.Reverse(parts)
	}
	return wrong(w, g.summed(w, f, 0, parts, l.Ranks))
}

// wrong waits for what NCCL says of wrong numbers, which streams that it has ended leave.
func wrong(w *world.World, err error) error {
	select {
	case <-w.Context().Done():
		return errors.Join(context.Cause(w.Context()), err)
	case <-time.After(limit):
		return err
	}
}

// Faults of sums are found, by NCCL's errors or by the numbers, and end all processes.
func TestFaultsOfSumsAreFound(t *testing.T) {
	for name, c := range map[string]struct{ scenario, fault, want string }{
		"lost":         {"some sums", "lost=1", `a message has not come within 4s`},
		"first lost":   {"some sums", "lost=0", `sums of gradients: the first message waits for rank \d on \S+, rank \d on \S+: it has not come within 4s`},
		"flipped":      {"some sums", "flipped=3", `number 250 of line 0 is |number \d+ of line 0 is `},
		"async":        {"some sums", "async=2", `sums of gradients at rank \d, with rank \d on \S+, rank \d on \S+: nccl: (a message|ncclAllReduce): unhandled system error: a planted error of the network`},
		"never ready":  {"some sums", "init", `sums of gradients: ncclCommInitRankConfig waits for rank \d on \S+, rank \d on \S+: it has not come within 4s`},
		"shared GPU":   {"some sums", "duplicate", `two ranks use one GPU: give each rank one of its own`},
		"other counts": {"other sums", "", `internal error: ranks add up other numbers at one time`},
		"other order":  {"other groups", "", `internal error: ranks add up other numbers at one time`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, ok := processes(t, 3, c.scenario, func(int) []string { return []string{short + "=1", fake.Variable + "=" + c.fault} })
			if text := strings.Join(out, ""); ok || !regexp.MustCompile(c.want).MatchString(text) {
				t.Errorf("no %q in %s", c.want, text)
			}
			for rank, text := range out {
				if !strings.Contains(text, "ends: ") {
					t.Errorf("rank %d goes on: %s", rank, text)
				}
			}
		})
	}
	if out, ok := processes(t, 3, "some sums", nil); !ok {
		t.Errorf("without a fault: %s", out)
	}
}

// Who waits for the part of a rank that dies is told which, and its streams end.
func TestDeathEndsSums(t *testing.T) {
	t.Parallel()
	out, _ := processes(t, 3, "killed sums", nil)
	for _, rank := range []int{0, 2} {
		if !regexp.MustCompile(`ended: .*rank 1 on \S+ died: its connection was lost`).MatchString(out[rank]) {
			t.Error(out)
		}
	}
}

func killedSums(w *world.World, f *fabric, g *gpu) error {
	if err := f.OpenSums(g.adding([]world.Line{everyone(w)})); err != nil {
		return err
	}
	if _, err := w.AllGather(context.Background(), nil); err != nil { // all have opened it
		return err
	}
	if w.Rank() == 1 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	q, err := g.queue()
	if err != nil {
		return err
	}
	p, err := g.memory(400, nil)
	if err != nil {
		return err
	}
	err = errors.Join(q.launch(f.Sum(0, []device.Span{spanOf(p, 0, 400)})), q.wait(w, 30*time.Second))
	fmt.Println("ended:", strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	return err
}
