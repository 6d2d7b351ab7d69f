package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child tells the test program to be another process: what it does, and in which folder.
const child = "PLIMSOLL_CHECKPOINT_CHILD"

func TestMain(m *testing.M) {
	what, folder, ok := strings.Cut(os.Getenv(child), " ")
	if !ok {
		os.Exit(m.Run())
	}
	err := map[string]func(string) error{"save": saveForever, "shards": saveShardsForever, "fill": fillDisk}[what](folder)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func start(t *testing.T, what, folder string, attr *syscall.SysProcAttr) (*exec.Cmd, io.Reader) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), child+"="+what+" "+folder)
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("no namespace for a file system of our own: %v", err)
	} else {
		must(t, err)
	}
	return cmd, out
}

// saveForever saves steps one after the other and prints each that is saved.
func saveForever(folder string) error {
	return forever(folder, func(d *Dir, step int64) error { return d.Save(little(uint64(step)), someMeta(step)) })
}

// saveShardsForever saves each step in three shards at the same time.
func saveShardsForever(folder string) error {
	return forever(folder, func(d *Dir, step int64) error {
		s, results := d.Shards(someMeta(step), 3), make(chan error, 3)
		for k, part := range split(little(uint64(step)), 3, uint64(step)) {
			go func() {
				_, err := s.Save(k, part)
				results <- err
			}()
		}
		return errors.Join(<-results, <-results, <-results)
	})
}

func forever(folder string, save func(d *Dir, step int64) error) error {
	d := NewDir(folder, 2)
	next := int64(1)
	c, _, err := d.Latest()
	switch {
	case err == nil:
		next = c.Step + 1
		err = c.Close()
	case errors.Is(err, ErrNone):
		err = nil
	}
	for step := next; err == nil; step++ {
		if err = save(d, step); err == nil {
			_, err = fmt.Println(step)
		}
	}
	return err
}

// TestKilled: when a process is killed at any instant of a save, the last checkpoint that it reported as saved, or the next one, is whole.
// No file with a checkpoint's name is broken. Shards of one further checkpoint may exist.
func TestKilled(t *testing.T) {
	t.Parallel()
	for what, most := range map[string]int{"save": 0, "shards": 1} {
		t.Run(what, func(t *testing.T) { killed(t, what, most) })
	}
}

// killed kills a process that saves again and again; at most so many newer checkpoints are not whole then.
func killed(t *testing.T, what string, most int) {
	const kills = 20
	d := NewDir(t.TempDir(), 2)
	r := rand.New(rand.NewPCG(1, 1))
	last, saves := int64(0), 0
	for range kills {
		cmd, out := start(t, what, d.at.Path(""), nil)
		lines := bufio.NewScanner(out)
		for wait := 1 + r.IntN(5); wait > 0 && lines.Scan(); wait-- {
			last, saves = number(t, lines.Text()), saves+1
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			last, saves = number(t, lines.Text()), saves+1
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the process ended by itself: %v", err)
		}
		c, bad, err := d.Latest()
		must(t, err)
		if got := c.Step; got != last && got != last+1 || len(bad) > most {
			t.Fatalf("the process saved step %d, the newest checkpoint is of %d; bad are %v", last, got, bad)
		}
		for _, b := range bad {
			if !errors.Is(b, ErrIncomplete) {
				t.Error(b)
			}
		}
		must(t, c.Close())
		wantLatest(t, d, c.Step, len(bad))
	}
	if saves < kills {
		t.Errorf("%d checkpoints were saved", saves)
	}
}

func number(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("the process says %q", text)
	}
	return n
}

// fillDisk saves checkpoints to a small disk of its own until it is full, then makes it read-only.
func fillDisk(folder string) error {
	if err := syscall.Mount("none", folder, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("skip: %w", err)
	}
	d := NewDir(filepath.Join(folder, "checkpoints"), 3)
	var err error
	for step := int64(1); err == nil && step < 9; step++ {
		err = d.Save(big(step), someMeta(step))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("on a small disk: %w", err)
	}
	fmt.Println(err)
	if err := syscall.Mount("none", folder, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	err = d.Save(big(99), someMeta(99))
	if !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("on a read-only disk: %w", err)
	}
	fmt.Println(err)
	c, bad, err := d.Latest()
	if err != nil || len(bad) > 0 {
		return fmt.Errorf("latest: %v, %w", bad, err)
	}
	fmt.Println("latest", c.Name())
	return c.Close()
}

func big(step int64) *memory {
	m := &memory{}
	m.add("fc.weight", "weight", 30, 200)
	m.fill(uint64(step))
	return m
}

// TestFullDisk: a real disk that is full, and one that is read-only, keep the last checkpoint and say so.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cmd, out := start(t, "fill", folder, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	})
	text, err := io.ReadAll(out)
	must(t, err)
	if err := cmd.Wait(); err != nil {
		if strings.HasPrefix(string(text), "skip: ") {
			t.Skipf("no file system of our own: %s", text)
		}
		t.Fatalf("%v: %s", err, text)
	}
	_, last, _ := strings.Cut(strings.TrimSpace(string(text)), "latest ")
	d := NewDir(filepath.Join(folder, "checkpoints"), 3)
	step := int64(1)
	for d.Path(step) != last && step < 9 {
		step++
	}
	for _, want := range []string{
		d.Path(step+1) + " is not saved: ", "no space left on device; the last good one is " + d.Path(step) + "\n",
		d.Path(99) + " is not saved: ", "read-only file system; the last good one is " + d.Path(step) + "\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the process says\n%swithout %q", text, want)
		}
	}
}
