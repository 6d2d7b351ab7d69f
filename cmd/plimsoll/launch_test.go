package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"plimsoll/runtime/world"
)

// asChild has what a process that launch starts does instead of its command, by rank: "wait exit3".
const asChild = "PLIMSOLL_TEST_CHILDREN"

// child is such a process.
func child(does string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	fmt.Fprintln(os.Stderr, "ready")
	switch do, argument, _ := strings.Cut(does, ":"); do {
	case "env":
		fmt.Println(os.Getenv("RANK"), os.Getenv("LOCAL_RANK"), os.Getenv("WORLD_SIZE"), os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"), os.Getenv(secretVariable))
	case "group":
		fmt.Println(syscall.Getpgrp() == os.Getpid())
	case "exit2":
		os.Exit(2)
	case "exit3":
		os.Exit(3)
	case "slow": // it fails, and ends when the process that writes its number into a file is gone
		launcher().report(errors.New("its own"))
		announce(argument + ".failed")
		for n, _ := strconv.Atoi(awaited(argument + ".gone")); syscall.Kill(n, 0) == nil; {
			time.Sleep(time.Millisecond)
		}
		os.Exit(4)
	case "follower": // it ends because of rank 1
		awaited(argument + ".failed")
		launcher().report(&world.RankError{Rank: 1, Host: "there", Why: world.Failed, Text: "its own"})
		announce(argument + ".gone")
		os.Exit(1)
	case "lonely": // it says that rank 1 is silent
		launcher().report(&world.RankError{Rank: 1, Host: "there", Why: world.Silent, Silence: 7 * time.Second})
		os.Exit(1)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		fmt.Fprintln(os.Stderr, "told to end by", <-signals)
		os.Exit(5)
	case "attempts": // how often it fails, with which code
		folder, how, _ := strings.Cut(argument, ",")
		var fails, code int
		_, _ = fmt.Sscanf(how, "%d,%d", &fails, &code)
		before, _ := os.ReadDir(folder)
		announce(filepath.Join(folder, fmt.Sprint(len(before))), strings.Join(os.Args[1:], " "))
		if len(before) < fails {
			os.Exit(code)
		}
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "wait":
		fmt.Fprintln(os.Stderr, "told to end by", <-signals)
		os.Exit(5)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "lock":
		f, err := os.Create(argument)
		if err != nil || unix.Flock(int(f.Fd()), unix.LOCK_EX) != nil {
			os.Exit(9)
		}
		fmt.Fprintln(os.Stderr, "locked")
		<-signals
	}
	os.Exit(0)
}

// announce makes a file with a text, by default the number of this process.
func announce(path string, text ...string) {
	if text == nil {
		text = []string{strconv.Itoa(os.Getpid())}
	}
	if os.WriteFile(path+".new", []byte(text[0]), 0o600) != nil || os.Rename(path+".new", path) != nil {
		os.Exit(9)
	}
}

// awaited waits for a file and returns what it holds.
func awaited(path string) string {
	for {
		if text, err := os.ReadFile(path); err == nil {
			return string(text)
		}
		time.Sleep(time.Millisecond)
	}
}

// launchWith launches as many children as there are words, each of which says what one does.
func launchWith(t *testing.T, does string, args ...string) result {
	t.Helper()
	t.Setenv(asProgram, "1")
	t.Setenv(asChild, does)
	return plimsoll(t, slices.Concat([]string{"launch", "-n", fmt.Sprint(len(strings.Fields(does)))}, args, []string{"--", "version"})...)
}

// The output of rank 0 is the command's output; all other output stands behind its rank.
func TestLaunchTellsRanksApart(t *testing.T) {
	// Serial: it sets environment variables.
	t.Setenv(asProgram, "1")
	want := works(t, "version").out
	r := works(t, "launch", "-n", "3", "--", "version")
	if r.out != want {
		t.Errorf("rank 0 says %q, want %q", r.out, want)
	}
	for _, rank := range []string{"[1] ", "[2] "} {
		if said := linesOf(r.err, rank); said != want {
			t.Errorf("%s%q, want %q", rank, said, want)
		}
	}
	if n := strings.Count(r.err, "\n"); n != 2*strings.Count(want, "\n") {
		t.Errorf("%d lines:\n%s", n, r.err)
	}
	works(t, "launch", "-n", "2", "version", "--json") // flags behind the command are its own
}

// Processes that do not know of each other are told so, once.
func TestLaunchedProcessesThatWorkAlone(t *testing.T) {
	// Serial: it sets environment variables.
	t.Setenv(asProgram, "1")
	r := plimsoll(t, "launch", "-n", "2", "--", "devices", "--json")
	if n := strings.Count(r.err, "a launcher has started 2 processes, and each works alone: give --world auto"); n != 1 || r.code != 0 {
		t.Errorf("exit code %d, %d warnings: %s", r.code, n, r.err)
	}
}

// linesOf returns the lines of a rank without their prefix.
func linesOf(text, prefix string) (own string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			own += rest
		}
	}
	return own
}

// Processes get what tells them apart and lets them meet; a secret that is set is everybody's.
func TestLaunchSaysWhoIsWho(t *testing.T) {
	// Serial: it sets environment variables.
	pattern := regexp.MustCompile(`^(\d) (\d) 3 127\.0\.0\.1 (\d+) ([0-9a-f]{64}|set by hand)$`)
	secrets := map[string]bool{}
	for _, secret := range []string{"", "", "set by hand"} {
		t.Setenv(secretVariable, secret)
		r := launchWith(t, "env env env")
		meet := ""
		for rank, said := range []string{r.out, linesOf(r.err, "[1] "), linesOf(r.err, "[2] ")} {
			m := pattern.FindStringSubmatch(strings.TrimSpace(strings.Replace(said, "ready\n", "", 1)))
			if m == nil || m[1] != fmt.Sprint(rank) || m[2] != m[1] || rank > 0 && m[3]+m[4] != meet {
				t.Fatalf("rank %d says %q, want it to meet at %s", rank, said, meet)
			}
			meet = m[3] + m[4]
			secrets[m[4]] = true
		}
	}
	if len(secrets) != 3 || !secrets["set by hand"] {
		t.Errorf("secrets %v", secrets)
	}
}

// When a process fails, the others are told to end, and made to; the exit code is that of the first.
// Only this test finds a stubborn process that outlives --grace when another one has failed.
func TestLaunchEndsAllWhenOneFails(t *testing.T) {
	// Serial: it sets environment variables.
	for _, c := range []struct {
		does string
		code int
		says []string
	}{
		{"wait exit3 wait", 3, []string{"rank 1 ended with exit code 3", "[0] told to end by terminated", "[2] told to end by terminated"}},
		{"wait wait kill", 137, []string{"rank 2 was ended by signal 9 (killed)", "[0] told to end by terminated"}},
		{"stubborn exit3", 3, []string{"rank 1 ended with exit code 3"}},
	} {
		grace := "1h" // for what ends when it is told to
		if strings.Contains(c.does, "stubborn") {
			grace = "10ms"
		}
		r := launchWith(t, c.does, "--grace", grace)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.does, r.code, c.code, r.err)
		}
		for _, want := range c.says {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: no %q in %s", c.does, want, r.err)
			}
		}
	}
}

// A process that fails first is named, also when it ends last: the others say that they end because of it.
func TestLaunchNamesWhoFailedFirst(t *testing.T) {
	// Serial: it sets environment variables.
	at := filepath.Join(t.TempDir(), "rank1")
	r := launchWith(t, "follower:"+at+" slow:"+at, "--grace", "1h")
	if r.code != 4 || !strings.Contains(r.err, "plimsoll launch: rank 1 ended with exit code 4\n") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// A process that hangs, and that the others call silent, is killed at once, whatever --grace says, and is the one to blame.
func TestLaunchKillsWhoIsSilent(t *testing.T) {
	// Serial: it sets environment variables.
	r := launchWith(t, "lonely stubborn", "--grace", "1h")
	if r.code != 1 || !strings.Contains(r.err, "plimsoll launch: rank 1 on there was silent for 7s\n") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// A crash of Go's runtime, which ends with exit code 2, is no bad input.
func TestLaunchTellsACrashFromBadInput(t *testing.T) {
	// Serial: it sets environment variables.
	r := launchWith(t, "exit2")
	if r.code != 1 || !strings.Contains(r.err, "rank 0 crashed: ended with exit code 2") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	t.Setenv(asChild, "")
	r = plimsoll(t, "launch", "-n", "1", "--", "train", "--steps", "-1")
	if r.code != 2 || !strings.Contains(r.err, "rank 0 ended with exit code 2") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// A process that is stopped hears that it is to end.
func TestLaunchWakesWhoIsStopped(t *testing.T) {
	t.Parallel()
	p := program(t, nil)
	p.Env = append(p.Env, asChild+"=stop", "RANK=0")
	p.start()
	var status unix.Siginfo
	if err := unix.Waitid(unix.P_PID, p.Process.Pid, &status, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	(&launched{all: []*member{{Cmd: p.Cmd, running: true}}}).signal(syscall.SIGTERM)
	if code := p.end(); code != 5 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// Processes are started again as often as is said, with --resume, unless they would fail again.
func TestLaunchStartsAgain(t *testing.T) {
	// Serial: it sets environment variables.
	for _, c := range []struct {
		restarts, fails, code int // how often the process fails, and how
		starts, want          int
	}{
		{3, 2, 1, 3, 0},
		{2, 3, 7, 3, 7},
		{0, 1, 7, 1, 7},
		{5, 1, exitNoFit, 1, exitNoFit},
	} {
		folder := t.TempDir()
		t.Setenv(asProgram, "1")
		t.Setenv(asChild, fmt.Sprintf("attempts:%s,%d,%d", folder, c.fails, c.code))
		r := plimsoll(t, "launch", "-n", "1", "--max-restarts", strconv.Itoa(c.restarts), "--", "train", "--force", "--out", "a", "--json")
		if n := strings.Count(r.err, ": all processes are started again with --resume"); r.code != c.want || n != c.starts-1 {
			t.Errorf("%+v: exit code %d, %d restarts: %s", c, r.code, n, r.err)
		}
		for start := range c.starts {
			want := "train --force --out a --json"
			if start > 0 {
				want = "train --out a --json --resume"
			}
			if got := awaited(filepath.Join(folder, strconv.Itoa(start))); got != want {
				t.Errorf("%+v: start %d: %s", c, start, got)
			}
		}
	}
}

// Who stops launch does not want processes started again.
func TestLaunchStartsNothingAgainAfterASignal(t *testing.T) {
	t.Parallel()
	p := program(t, nil, "launch", "-n", "1", "--max-restarts", "5", "--", "train", "--out", "a")
	p.Env = append(p.Env, asChild+"=wait")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	p.Stderr = w
	p.start()
	_ = w.Close()
	said := bufio.NewScanner(r)
	said.Scan() // that it is ready
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	for said.Scan() {
		if strings.Contains(said.Text(), "ready") {
			t.Error("it is started again")
		}
	}
}

// launchApart launches children in a process of its own, until each has said something.
func launchApart(t *testing.T, does, until string) (*process, *bufio.Scanner) {
	t.Helper()
	n := len(strings.Fields(does))
	p := program(t, nil, "launch", "-n", fmt.Sprint(n), "--", "version")
	p.Env = append(p.Env, asChild+"="+does)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = w
	p.start()
	_ = w.Close()
	t.Cleanup(func() { _ = r.Close() })
	said := bufio.NewScanner(r)
	for n > 0 && said.Scan() {
		if strings.HasSuffix(said.Text(), until) {
			n--
		}
	}
	return p, said
}

// Signals reach every process.
func TestLaunchPassesSignalsOn(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here")
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p, said := launchApart(t, "wait wait", "ready")
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		told := 0
		for said.Scan() {
			if strings.HasSuffix(said.Text(), "told to end by "+s.String()) {
				told++
			}
		}
		if code := p.end(); code != 5 || told != 2 {
			t.Errorf("%v: %d of 2 were told; exit code %d", s, told, code)
		}
	}
}

// A signal that ends the command's context, too, is passed on once, whichever of the two is seen first; another one is, as well.
func TestASignalIsPassedOnOnce(t *testing.T) {
	t.Parallel()
	for _, contextFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			signals, over := make(chan os.Signal, 1), make(chan error)
			var passed []os.Signal
			l := &launched{all: []*member{{running: true}}, over: make(chan ending), grace: time.Hour}
			go func() {
				over <- l.wait(ctx, signals, func(s os.Signal) { passed = append(passed, s) })
			}()
			send := func(s os.Signal) {
				signals <- s
				synctest.Wait()
			}
			if contextFirst {
				cancel()
				synctest.Wait()
				send(os.Interrupt)
			} else {
				send(os.Interrupt)
				cancel()
			}
			time.Sleep(24 * time.Hour) // of the test's own time
			send(syscall.SIGTERM)
			l.over <- ending{}
			if err := <-over; err != nil || !slices.Equal(passed, []os.Signal{os.Interrupt, syscall.SIGTERM}) {
				t.Errorf("the context ends first: %v; passed on %v, %v", contextFirst, passed, err)
			}
		})
	}
}

// Nor do processes get a terminal's Ctrl-C beside launch, where the system can keep it from them.
func TestLaunchedProcessesAreAGroupEach(t *testing.T) {
	// Serial: it sets environment variables.
	if ofParent() == nil {
		t.Skip("this system cannot do that")
	}
	r := launchWith(t, "group group")
	if said := linesOf(r.err, "[1] "); r.out != "true\n" || !strings.Contains(said, "true\n") {
		t.Errorf("rank 0 has a group of its own: %s; rank 1: %s", r.out, said)
	}
}

// Processes do not outlive a launch that is killed, where the system can do that.
func TestLaunchedProcessesEndWithIt(t *testing.T) {
	t.Parallel()
	if ofParent() == nil {
		t.Skip("this system cannot do that")
	}
	held := filepath.Join(t.TempDir(), "held")
	p, _ := launchApart(t, "lock:"+held, "locked")
	_ = p.Process.Kill() // p.end says whether it was
	if code := p.end(); code != -1 {
		t.Fatalf("exit code %d", code)
	}
	f, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // it waits for the child's end
		t.Error(err)
	}
}

func TestLaunchRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"launch -- version", "-n 0: give a number"},
		{"launch -n 2000 -- version", "-n 2000"},
		{"launch -n 2", "give the command"},
		{"launch -n 2 --grace -1s -- version", "--grace is -1s"},
		{"launch -n 2 --max-restarts -1 -- version", "--max-restarts is -1"},
		{"launch -n 2 --max-restarts 1 -- version", "--max-restarts starts a run again from its checkpoints: give a command with --resume and its --out"},
		{"launch -n 2 --max-restarts 1 -- train -m mlp", "and its --out"},
		{"launch -n 2 -- fly", `unknown command "fly"`},
		{"launch -n 2 -- launch -n 2 -- version", "not itself"},
	} {
		if r := plimsoll(t, strings.Fields(c.args)...); r.code != exitUsage || !strings.Contains(r.err, c.says) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit code %d: %s", c.args, r.code, r.err)
		}
	}
}

// However a text comes in pieces, it goes on in whole lines behind their prefix, and unchanged without one.
func TestLinesAreWhole(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	long := 0
	for range 60 {
		var text strings.Builder
		for range r.IntN(20) {
			text.WriteString(strings.Repeat(string([]rune("aß層🙂")[r.IntN(4)]), 1<<r.IntN(17)))
			text.WriteString(strings.Repeat("\n", r.IntN(2)))
		}
		var plain, prefixed whole
		a, b := &lines{to: &plain}, &lines{to: &prefixed, prefix: "[3] "}
		for rest := text.String(); rest != ""; {
			n := 1 + r.IntN(min(len(rest), 1<<r.IntN(18)))
			for _, l := range []*lines{a, b} {
				if m, err := l.Write([]byte(rest[:n])); m != n || err != nil || len(l.kept) > longestLine {
					t.Fatalf("%d of %d bytes, %v, %d kept", m, n, err, len(l.kept))
				}
			}
			rest = rest[n:]
		}
		a.flush()
		b.flush()
		if plain.String() != text.String() {
			t.Fatal("a text without prefixes is another")
		}
		got := ""
		for line := range strings.Lines(prefixed.String()) {
			rest, ok := strings.CutPrefix(line, "[3] ")
			if got += strings.TrimSuffix(rest, "\n"); !ok || len(rest) > longestLine+1 {
				t.Fatalf("a line of %d bytes, behind its prefix: %v", len(rest), ok)
			}
			if len(rest) > longestLine-utf8.UTFMax {
				long++
			}
		}
		if got != strings.ReplaceAll(text.String(), "\n", "") || plain.cut || prefixed.cut {
			t.Fatal("text is lost, or characters are cut")
		}
	}
	if long < 10 {
		t.Errorf("only %d long lines", long)
	}
}

// whole is a buffer that knows whether a character was written in two pieces.
type whole struct {
	bytes.Buffer
	cut bool
}

func (w *whole) Write(p []byte) (int, error) {
	w.cut = w.cut || !utf8.Valid(p)
	return w.Buffer.Write(p)
}
