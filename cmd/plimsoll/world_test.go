package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plimsoll/executor/train"
	"plimsoll/internal/freeport/freeporttest"
)

// atSize returns the number of cases that a test runs at its full size, or with -short.
func atSize(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// inProcesses is a command line of launch.
func inProcesses(t *testing.T, n int, args ...string) *process {
	t.Helper()
	p := program(t, nil, append([]string{"launch", "-n", strconv.Itoa(n), "--grace", "5s", "--", "train", "--world", "auto", "--option", "world.lost-after=1m", "--json"}, args...)...)
	p.Env = append(p.Env, "PLIMSOLL_SECRET=")
	return p
}

// byMPI is a command line of mpiexec, of the library in $PLIMSOLL_MPI_ABI; make test-mpi gets one.
func byMPI(t *testing.T, n int, args ...string) *process {
	t.Helper()
	library := os.Getenv("PLIMSOLL_MPI_ABI")
	if library == "" {
		t.Skip("no MPI: give the path of a libmpi_abi.so.1 in $PLIMSOLL_MPI_ABI, with mpiexec in ../bin, or use make test-mpi")
	}
	_, port, _ := net.SplitHostPort(freeporttest.Address(t))
	mpiexec := filepath.Join(filepath.Dir(library), "..", "bin", "mpiexec")
	p := program(t, []string{mpiexec, "-n", strconv.Itoa(n)}, append([]string{"train", "--world", "auto", "--option", "world.lost-after=1m", "--json", "--transport", "mpi"}, args...)...)
	p.Env = append(p.Env, "PLIMSOLL_SECRET=", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
	return p
}

// forDevices is a run of a small model on several devices.
func forDevices(more ...string) []string {
	return append([]string{"-m", "resnet20", "--data", "glyphs", "--batch", "16", "--debug", "threads=1", "--steps", "4", "--option", "profile.steps=1",
		"--option", "platform.ops-at-once=2"}, more...) // measured, it may give one process another plan than several
}

// onDisks starts a process on each of some disks, by rank, and returns them when they have ended, or when kill says so.
func onDisks(t *testing.T, disks []string, kill func(p []*process), args ...string) (all []*process) {
	t.Helper()
	return onDisksWith(t, disks, "", kill, args...)
}

// onDisksWith is onDisks with faults in the files of a rank.
func onDisksWith(t *testing.T, disks []string, faults string, kill func(p []*process), args ...string) (all []*process) {
	t.Helper()
	address := freeporttest.Address(t)
	for rank, disk := range disks {
		p := program(t, nil, append([]string{"train", "--world", strconv.Itoa(len(disks)), "--option", "world.rank=" + strconv.Itoa(rank), "--option", "world.master=" + address, "--devices", "cpu", "--json", "--out", "run"}, args...)...)
		p.Dir, p.Env = disk, append(p.Env, "PLIMSOLL_SECRET=", asFaults+"="+faults, "RANK="+strconv.Itoa(rank))
		p.start()
		all = append(all, p)
	}
	if kill != nil {
		kill(all)
	}
	for _, p := range all {
		p.end()
	}
	return all
}

// Processes with --out on disks of their own resume after a SIGKILL, also when they have changed places, with the bits of one process. A
// lost disk is named, and one process alone says which shards it lacks.
// After a SIGKILL, only this test finds that processes lose or mix up the shards on disks of their own.
func TestProcessesWithDisksOfTheirOwn(t *testing.T) {
	t.Parallel()
	args, n := forDevices("--strategy", "contiguous", "--checkpoint-every", "4"), atSize(4, 2) // draining at a checkpoint is part of the result
	together, changed := fmt.Sprintf("cpu*%d", n), map[int][]int{2: {1, 0}, 4: {2, 3, 1, 0}}[n]
	one := t.TempDir()
	want := map[string]string{}
	for _, steps := range []string{"40", "44"} {
		p := onDisks(t, []string{one}, nil, append(slices.Clone(args), "--devices", together, "--steps", steps, "--resume")...)[0]
		p.ends(0)
		want[steps] = summaryOf(t, p.out.String()).WeightsSHA256
	}
	args = append(args, "--profile", filepath.Join(one, "run", "chain.json"), "--resume")
	disks := make([]string, n)
	for i := range disks {
		disks[i] = t.TempDir()
	}
	onDisks(t, disks, func(all []*process) {
		all[0].until(filepath.Join(disks[0], "run"), 14) // a device passes step 12 only when its state of step 8 is on its disk
		_ = all[n/2].Process.Signal(syscall.SIGKILL)     // or it has ended
	}, append(slices.Clone(args), "--steps", "40")...)
	for _, c := range []struct {
		steps string
		order []int
	}{{"40", []int{0, 1, 2, 3}[:n]}, {"44", changed}} {
		var at []string
		for _, i := range c.order {
			at = append(at, disks[i])
		}
		all := onDisks(t, at, nil, append(slices.Clone(args), "--steps", c.steps)...)
		all[0].ends(0)
		if got := summaryOf(t, all[0].out.String()); got.WeightsSHA256 != want[c.steps] || got.ResumedFrom < 8 {
			t.Errorf("%s steps on disks %v: resumed from %d, weights %s, want %s", c.steps, c.order, got.ResumedFrom, got.WeightsSHA256, want[c.steps])
		}
		if n := logged(filepath.Join(at[0], "run")); n < 44 && c.order[0] > 0 {
			t.Errorf("the log of disk %d has %d lines", c.order[0], n)
		}
	}
	lost := regexp.MustCompile(`not all of the checkpoint is here: of that of step 44 there is no stage-\d.safetensors, which rank \d on \S+ has saved: start a process on that disk`)
	for rank, p := range onDisks(t, append(slices.Clone(disks[:n-1]), t.TempDir()), nil, append(slices.Clone(args), "--steps", "48")...) {
		if p.ends(2); !lost.MatchString(p.err.String()) {
			t.Errorf("rank %d: %s", rank, p.err.String())
		}
	}
	for rank, p := range onDisks(t, []string{t.TempDir(), fileCalledRun(t)}, nil, append(slices.Clone(args), "--steps", "8")...) {
		if p.end(); !strings.Contains(p.err.String(), "--out run: run is a file") {
			t.Errorf("rank %d: %s", rank, p.err.String())
		}
	}
	alone := onDisks(t, disks[:1], nil, append(slices.Clone(args), "--steps", "48", "--devices", together)...)[0]
	if alone.ends(2); !strings.Contains(alone.err.String(), "which rank 1 on ") || !strings.Contains(alone.err.String(), "begin anew with --force") {
		t.Error(alone.err.String())
	}
	if left := shardsIn(filepath.Join(disks[0], "run")); len(left) == 0 {
		t.Error("its shards are removed")
	}
}

// fileCalledRun returns a folder in which no run can be.
func fileCalledRun(t *testing.T) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// summaryOf reads what a run has printed.
func summaryOf(t *testing.T, text string) (s train.Summary) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return s
}

// ends waits for a process, which must have this exit code.
func (p *process) ends(code int) {
	p.t.Helper()
	if got := p.end(); got != code {
		p.t.Fatalf("exit code %d, want %d:\n%s%s", got, code, p.out.String(), p.err.String())
	}
}

// Devices of several processes train the bits of one process that has them all, and take the same memory.
// Only this test finds replicas in real processes that train other bits over TCP, or take other peaks, than in one.
func TestProcessesTrainTheBitsOfOne(t *testing.T) {
	t.Parallel()
	trainTheBitsOfOne(t, inProcesses)
}

// The same over MPI.
func TestMPITrainsTheBitsOfOne(t *testing.T) {
	t.Parallel()
	trainTheBitsOfOne(t, byMPI)
}

func trainTheBitsOfOne(t *testing.T, in func(t *testing.T, n int, args ...string) *process) {
	in(t, 1) // or skip
	unet := []string{"-m", "unet", "--data", "glyphs", "--image", "32", "--batch", "8", "--debug", "threads=1", "--steps", "2", "--option", "profile.steps=1", "--option", "platform.ops-at-once=2", "--microbatches", "4", "--strategy", "1f1b-flush"}
	densenet := []string{"-m", "densenet121", "--data", "glyphs", "--image", "32", "--batch", "4", "--debug", "threads=1", "--steps", "2", "--option", "profile.steps=1", "--option", "platform.ops-at-once=2"}
	for _, c := range []struct {
		name    string
		n       int
		args    []string
		devices string // of each process
	}{
		{"flush", 2, forDevices("--strategy", "1f1b-flush", "--microbatches", "4", "--clip-norm", "1"), "cpu"},
		{"replicas with two versions", 3, forDevices("--strategy", "pipedream"), "cpu"},
		{"portals", 2, unet, "cpu"},
		{"portals of four", 4, unet, "cpu"},
		{"stash", 4, forDevices("--strategy", "contiguous", "--versions", "stash"), "cpu"},
		{"two versions", 2, forDevices("--strategy", "contiguous"), "cpu*2"},
		{"chimera", 4, forDevices("--strategy", "chimera", "--microbatches", "4"), "cpu"},
		{"recomputation", 2, forDevices("--strategy", "1f1b-recompute", "--microbatches", "4", "--memory", "60%"), "cpu"},
		{"offload", 2, forDevices("--strategy", "loadline", "--bandwidth", "4GB/s", "--memory", "50%"), "cpu"},
		{"simplex", 2, forDevices("--strategy", "gpipe", "--microbatches", "4", "--duplex=false", "--peer-bandwidth", "1GB/s"), "cpu"},
		{"densenet, flush", 4, append(slices.Clone(densenet), "--strategy", "zb-h1", "--microbatches", "2"), "cpu"},
		{"densenet, stash", 4, append(slices.Clone(densenet), "--strategy", "loadline", "--versions", "stash"), "cpu"},
	}[:atSize(12, 2)] {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "one")
			each := 1
			if i := strings.IndexByte(c.devices, '*'); i > 0 {
				each, _ = strconv.Atoi(c.devices[i+1:])
			}
			want := summaryOf(t, works(t, append([]string{"train", "--json", "--out", out, "--devices", fmt.Sprintf("cpu*%d", c.n*each)}, c.args...)...).out)
			p := in(t, c.n, append(slices.Clone(c.args), "--devices", c.devices, "--profile", filepath.Join(out, "chain.json"))...)
			p.start()
			p.ends(0)
			got := summaryOf(t, p.out.String())
			if got.WeightsSHA256 != want.WeightsSHA256 || got.TestCorrect != want.TestCorrect || got.Loss != want.Loss {
				t.Errorf("%d processes: weights %s, loss %v, %d correct; one: %s, %v, %d", c.n, got.WeightsSHA256, got.Loss, got.TestCorrect, want.WeightsSHA256, want.Loss, want.TestCorrect)
			}
			for i, d := range want.Pipe.Devices {
				if x := got.Pipe.Devices[i]; x.PeakBytes != d.PeakBytes || x.MeasuredPeakBytes != d.MeasuredPeakBytes || x.ExtentBytes != d.ExtentBytes {
					t.Errorf("device %d: %+v, in one process %+v", i, x, d)
				}
			}
		})
	}
}

// children lists the processes of a launch, by rank; none when it has ended.
func (p *process) children() (all []int) {
	of := func(process int) []string { // files, one for each thread
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", process))
		return paths
	}
	if len(of(os.Getpid())) == 0 {
		p.t.Skip("this system does not tell a process's children")
	}
	for _, path := range of(p.Process.Pid) {
		text, _ := os.ReadFile(path) // or it has ended
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				p.t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// second returns the process of rank 1 of a launch. Process numbers do not tell ranks: they begin anew now and then.
func (p *process) second() int {
	p.t.Helper()
	for _, pid := range p.children() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // or it has ended
		if slices.Contains(strings.Split(string(env), "\x00"), "RANK=1") {
			return pid
		}
	}
	p.t.Fatal("no process is rank 1")
	return 0
}

// A run of which any process is killed at any time goes on from its last checkpoint and ends with the same bits.
// If a process is killed, only this test finds a shared folder from which an asynchronous run does not go on.
func TestKilledProcessesResume(t *testing.T) {
	t.Parallel()
	args, n := forDevices("--strategy", "contiguous", "--steps", "40", "--checkpoint-every", "4"), atSize(4, 2)
	chain := filepath.Join(t.TempDir(), "one")
	want := summaryOf(t, works(t, append([]string{"train", "--json", "--out", chain, "--devices", fmt.Sprintf("cpu*%d", n)}, args...)...).out)
	args = append(args, "--profile", filepath.Join(chain, "chain.json"))
	kills, killed, resumed := atSize(20, 1), 0, 0
	for i := range kills {
		out := filepath.Join(t.TempDir(), strconv.Itoa(i))
		p := inProcesses(t, n, append(slices.Clone(args), "--out", out)...)
		p.start()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if len(p.children()) == n && (i%2 == 1 || len(shardsIn(out)) > 0) { // some before the first checkpoint
				break
			}
		}
		time.Sleep(time.Duration(i*37%300) * time.Millisecond)
		if all := p.children(); len(all) == n {
			_ = syscall.Kill(all[i%n], syscall.SIGKILL) // or it has ended
		}
		if p.end() != 0 {
			killed++
		}
		resumed += min(1, len(shardsIn(out)))
		p = inProcesses(t, n, append(slices.Clone(args), "--out", out, "--resume")...)
		p.start()
		p.ends(0)
		if got := summaryOf(t, p.out.String()); got.WeightsSHA256 != want.WeightsSHA256 {
			t.Errorf("kill %d: weights %s, want %s", i, got.WeightsSHA256, want.WeightsSHA256)
		}
		if log := works(t, "report", out, "--json").code; log != 0 {
			t.Errorf("kill %d: the report", i)
		}
	}
	if killed < kills/2 || resumed == 0 {
		t.Errorf("of %d runs only %d were killed, %d behind a checkpoint", kills, killed, resumed)
	}
	t.Logf("%d of %d runs were killed, %d behind a checkpoint", killed, kills, resumed)
}

// shardsIn lists the shards of checkpoints in a run's folder.
func shardsIn(out string) []string {
	all, _ := filepath.Glob(filepath.Join(out, "checkpoints", "step-*", "stage-*"))
	return all
}

// Processes that get a signal together act on it together: Ctrl-C saves one checkpoint, from which one process with all devices goes on.
// Only this test finds that one process with all devices cannot resume a run of several that Ctrl-C has interrupted.
func TestProcessesAreInterruptedTogether(t *testing.T) {
	t.Parallel()
	steps := strconv.Itoa(atSize(240, 80))
	args := forDevices("--strategy", "1f1b-flush", "--microbatches", "4", "--steps", steps)
	one := filepath.Join(t.TempDir(), "one")
	want := summaryOf(t, works(t, append([]string{"train", "--json", "--out", one, "--devices", "cpu*2"}, args...)...).out)
	args = append(args, "--profile", filepath.Join(one, "chain.json"))
	out := filepath.Join(t.TempDir(), "out")
	p := inProcesses(t, 2, append(slices.Clone(args), "--out", out)...)
	p.start()
	p.until(out, 5)
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.end()
	saved := regexp.MustCompile(`interrupted after (\d+) of \d+ steps; they are saved`).FindAllStringSubmatch(p.err.String(), -1)
	if len(saved) != 2 || saved[0][1] != saved[1][1] {
		t.Fatalf("%v:\n%s", saved, p.err.String())
	}
	got := summaryOf(t, works(t, append([]string{"train", "--json", "--out", out, "--resume", "--devices", "cpu*2"}, args...)...).out)
	if got.WeightsSHA256 != want.WeightsSHA256 {
		t.Errorf("weights %s, want %s", got.WeightsSHA256, want.WeightsSHA256)
	}
}

// A process that hangs ends the run everywhere: the others name it, and what it was at.
// If a real process stops answering, only this test finds that the others do not say what it was at.
func TestProcessThatHangs(t *testing.T) {
	// Serial: it sends signals to its own process.
	out := filepath.Join(t.TempDir(), "out")
	p := inProcesses(t, 3, forDevices("--strategy", "1f1b-flush", "--microbatches", "3", "--batch", "12", "--steps", "100000", "--option", "world.lost-after=5s", "--out", out)...)
	p.Args[slices.Index(p.Args, "--grace")+1] = "1h" // launch does not wait for it
	p.start()
	p.until(out, 20)
	if err := syscall.Kill(p.second(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	code, text := p.end(), p.err.String()
	for _, said := range []string{`\[0\] .*`, `"command":"plimsoll launch","error":"`} {
		if !regexp.MustCompile(said+`rank 1 on \S+ was silent for 5s; the last it said: device 1: `).MatchString(text) || code != 1 {
			t.Errorf("exit code %d: %s", code, text)
		}
	}
}

// A fault between processes is reported as one clear line in each, and nothing hangs.
func TestProcessesThatDoNotMeet(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	taken, out := listener.Addr().String(), filepath.Join(t.TempDir(), "out")
	var weights [2]string
	for i := range weights { // of the same name on two machines, say
		weights[i] = filepath.Join(t.TempDir(), "w.safetensors")
		if err := os.WriteFile(weights[i], []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type one struct {
		rank, size string
		more       []string
		secret     string
	}
	for _, c := range []struct {
		name string
		all  []one
		want []string // of each
	}{
		{"missing", []one{{"0", "3", nil, ""}, {"1", "3", nil, ""}}, []string{"rank 2 of 3 missing after 6s at ", "rank 2 of 3 missing after 6s at "}},
		{"twice", []one{{"0", "3", nil, ""}, {"1", "3", nil, ""}, {"1", "3", nil, ""}}, []string{"two processes are rank 1", "two processes are rank 1", "two processes are rank 1"}},
		{"secret", []one{{"0", "2", nil, "a secret of its own"}, {"1", "2", nil, "another one, as long"}}, []string{"rank 1 of 2 missing after 6s .*turned away", "rank 0 at .* has another secret than rank 1 on "}},
		{"short secret", []one{{"0", "2", nil, "short"}}, []string{"it has 5 bytes: make one of 16 or more"}},
		{"size", []one{{"0", "2", nil, ""}, {"1", "3", nil, ""}}, []string{"rank 0 on .* is one of 2 processes, rank 1 on .* one of 3", "rank 0 on .* is one of 2 processes, rank 1 on .* one of 3"}},
		{"flags", []one{{"0", "2", nil, ""}, {"1", "2", []string{"--lr", "0.5"}, ""}}, []string{"ranks 0 on .* and 1 on .* differ in schedule: \"constant 0.1\" and \"constant 0.5\"", "differ in schedule"}},
		{"port", []one{{"0", "2", []string{"--option", "world.master=" + taken}, ""}}, []string{taken + ", where rank 0 is to listen, is in use"}},
		{"no secret", []one{{"0", "2", []string{"--option", "world.master=10.0.0.1:29500"}, ""}}, []string{"only processes of one machine may meet, .*: set PLIMSOLL_SECRET"}},
		{"strategy", []one{{"0", "2", nil, ""}, {"1", "2", []string{"--strategy", "1f1b-flush"}, ""}}, []string{"ranks 0 on .* and 1 on .* differ in --strategy: gpipe and 1f1b-flush; all need the same", "differ in --strategy"}},
		{"resume", []one{{"0", "2", []string{"--out", out}, ""}, {"1", "2", []string{"--out", out, "--resume"}, ""}}, []string{"differ in --resume: false and true", "differ in --resume: false and true"}},
		{"weights", []one{{"0", "2", []string{"--init", weights[0]}, ""}, {"1", "2", []string{"--init", weights[1]}, ""}}, []string{"differ in --init: [0-9a-f]{16} and [0-9a-f]{16}", "differ in --init"}},
		{"patience", []one{{"0", "2", []string{"--option", "world.lost-after=1ms"}, ""}}, []string{"--option world.lost-after is 1ms: give a time from 1s"}},
		{"time", []one{{"0", "2", []string{"--option", "world.rendezvous-timeout=-3s"}, ""}}, []string{"--option world.rendezvous-timeout is -3s: give a time, as in 2m"}},
		{"rank", []one{{"7", "2", nil, ""}}, []string{"rank 7 of 2 processes .*: ranks count from 0"}},
		{"transport", []one{{"0", "2", nil, ""}, {"1", "2", []string{"--transport", "mpi"}, ""}}, []string{"rank 1 of 2 missing", "mpi: .*none.so: cannot open .*PLIMSOLL_MPI_ABI, or use --transport tcp"}},
		{"nobody", []one{{"", "2", nil, ""}}, []string{"which process this is: nobody says its rank: give --option world.rank"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address, timeout := freeporttest.Address(t), "1m" // nobody waits that long
			if slices.ContainsFunc(c.want, func(s string) bool { return strings.Contains(s, "missing") }) {
				timeout = "6s"
			}
			var all []*process
			for _, x := range c.all {
				args := append([]string{"train", "--world", x.size, "--option", "world.rendezvous-timeout=" + timeout, "--devices", "cpu", "--option", "world.master=" + address}, forDevices("--strategy", "gpipe", "--microbatches", "2")...)
				p := program(t, nil, append(args, x.more...)...)
				p.Env = append(p.Env, "PLIMSOLL_SECRET="+x.secret, "RANK="+x.rank, "PLIMSOLL_MPI_ABI=none.so")
				p.start()
				all = append(all, p)
			}
			for i, p := range all {
				p.end()
				text := strings.TrimSpace(p.err.String())
				lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
					return strings.HasPrefix(l, "rank 0 waits at ") || strings.HasPrefix(l, "the run has no secret: ")
				})
				if len(lines) != 1 || !regexp.MustCompile(c.want[i]).MatchString(lines[0]) || p.ProcessState.ExitCode() < 1 {
					t.Errorf("process %d: exit code %d, %q, want one line with %q", i, p.ProcessState.ExitCode(), lines, c.want[i])
				}
				if x := c.all[i].secret; x != "" && strings.Contains(text, x) {
					t.Errorf("process %d shows its secret: %s", i, text)
				}
			}
		})
	}
}

// A secret that others can read is refused before anything is done with it; without one, rank 0 says who can join.
func TestSecretsAreSecret(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), freeporttest.Address(t)
	file := func(mode os.FileMode) string {
		path := write(t, filepath.Join(dir, fmt.Sprintf("secret-%o", mode)), strings.Repeat("5a", 32))
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const missing = "1 of 2 missing after 1ms"
	for _, c := range []struct {
		args  []string
		code  int
		says  string
		warns string
	}{
		{nil, 1, missing, "the run has no secret: every user of this machine, and every container that shares its network, can join at " + address + "; give all processes one"},
		{[]string{"--option", "world.secret-file=" + file(0o600)}, 1, missing, ""},
		{[]string{"--option", "world.secret-file=" + file(0o400)}, 1, missing, ""},
		{[]string{"--option", "world.secret-file=" + file(0o640)}, 2, "secret-640: other users can read or change it (mode 0640): make a new secret", ""},
		{[]string{"--option", "world.secret-file=" + file(0o604)}, 2, "with: chmod 600 " + dir, ""},
		{[]string{"--option", "world.secret-file=" + file(0o620)}, 2, "(mode 0620)", ""},
		{[]string{"--option", "world.secret-file=" + filepath.Join(dir, "none")}, 2, "--option world.secret-file: stat " + dir + "/none: no such file", ""},
		{[]string{"--option", "world.secret-file=" + file(0o600), "--option", "world.tls-key=" + file(0o644)}, 2, "--option world.tls-key " + dir, ""},
	} {
		p := program(t, nil, append([]string{"devices", "--world", "2", "--option", "world.rank=0", "--option", "world.master=" + address, "--option", "world.rendezvous-timeout=1ms"}, c.args...)...)
		p.Env = append(p.Env, "PLIMSOLL_SECRET=")
		p.start()
		code, text := p.end(), p.err.String()
		if code != c.code || !strings.Contains(text, c.says) || strings.Contains(text, "the run has no secret") != (c.warns != "") || !strings.Contains(text, c.warns) {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, text)
		}
	}
}

// A run that launch starts again after a kill ends with the bits of one that nobody killed.
// Only this test finds that a real run which launch starts again does not go on from its checkpoint.
func TestLaunchedRunGoesOn(t *testing.T) {
	t.Parallel()
	args := []string{"-m", "mlp", "--data", "glyphs", "--batch", "64", "--debug", "threads=1", "--steps", "400", "--option", "profile.steps=1", "--strategy", "1f1b-flush", "--microbatches", "2", "--checkpoint-every", "40"}
	one, out := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "out")
	alone := program(t, nil, append([]string{"train", "--json", "--out", one, "--devices", "cpu*2"}, args...)...)
	alone.start()
	alone.ends(0)
	p := inProcesses(t, 2, append(args, "--profile", filepath.Join(one, "chain.json"), "--out", out, "--force")...)
	p.Args = slices.Insert(p.Args, 2, "--max-restarts", "2")
	p.start()
	p.until(out, 100) // a device passes step 80 only when its state of step 40 is on the disk
	if err := syscall.Kill(p.second(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
	want, got := summaryOf(t, alone.out.String()), summaryOf(t, p.out.String())
	if got.WeightsSHA256 != want.WeightsSHA256 || got.ResumedFrom < 40 {
		t.Errorf("resumed from step %d, weights %s, want %s", got.ResumedFrom, got.WeightsSHA256, want.WeightsSHA256)
	}
	if said := "rank 1 was ended by signal 9 (killed): all processes are started again with --resume (restart 1 of 2)\n"; !strings.Contains(p.err.String(), said) {
		t.Errorf("no %q in %s", said, p.err.String())
	}
}
