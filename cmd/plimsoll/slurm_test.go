package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"plimsoll/runtime/world"
)

// srun stands in for Slurm's: it starts the tasks of a step on this machine, tells them what Slurm tells them, and ends with the
// highest exit code. The process numbers are in $STEP. scontrol notes what is asked of it, and ends the script, as requeue does.
const srun = `#!/bin/sh
while case $1 in --kill-on-bad-exit=* | --wait=* | --cpus-per-task=*) true ;; *) false ;; esac; do shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost
: >"$STEP/pids.new"
for rank in $(seq 0 $((SLURM_NTASKS - 1))); do
	SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
	all="$all $!"
	echo $! >>"$STEP/pids.new"
done
mv "$STEP/pids.new" "$STEP/pids"
for pid in $all; do
	wait "$pid"
	code=$?
	[ $code -gt "${highest:-0}" ] && highest=$code
done
exit "${highest:-0}"
`

const scontrol = `#!/bin/sh
echo "$@" >>"$STEP/scontrol"
kill -KILL $PPID
`

// slurm is a job of so many tasks.
type slurm struct {
	bin, step string // folders: programs that the script finds, what the stand-ins write
	tasks, id int
	restarts  int
}

var jobs atomic.Int64

// nextJob returns a number that no other job of this process has, and hardly one of another process: the port follows from it.
func nextJob() int { return os.Getpid()<<8 + int(jobs.Add(1)) }

func newSlurm(t *testing.T, tasks int) *slurm {
	t.Helper()
	s := &slurm{bin: t.TempDir(), step: t.TempDir(), tasks: tasks}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(s.bin, "plimsoll")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"srun": srun, "scontrol": scontrol} {
		if err := os.WriteFile(filepath.Join(s.bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for s.id = nextJob(); !s.free(t); s.id = nextJob() {
	}
	return s
}

// free reports whether nobody listens where rank 0 of this job is going to.
func (s *slurm) free(t *testing.T) bool {
	t.Helper()
	tells := map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": strconv.Itoa(s.id)}
	id, _, err := world.Identify(world.Identity{Rank: -1, LocalRank: -1}, func(name string) string { return tells[name] })
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", id.Address)
	return err == nil && l.Close() == nil
}

// script is one of examples/slurm as sbatch starts it.
func (s *slurm) script(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := program(t, []string{"bash", "../../examples/slurm/" + name}, args...)
	p.Args = slices.Delete(p.Args, 2, 3) // the program, which the script finds itself
	p.Env = append(p.Env, "PATH="+s.bin+":"+os.Getenv("PATH"), "STEP="+s.step, "SLURM_JOB_ID="+strconv.Itoa(s.id), "SLURM_NTASKS="+strconv.Itoa(s.tasks),
		"SLURM_RESTART_COUNT="+strconv.Itoa(s.restarts), "SLURM_CPUS_PER_TASK=1", "PLIMSOLL_SECRET=")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p
}

// start starts a script; with the test, its tasks end, too.
func (s *slurm) start(t *testing.T, p *process) {
	t.Helper()
	p.start()
	t.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }) // they have ended, when all goes well
}

// pids are the process numbers of the step that runs.
func (s *slurm) pids(t *testing.T) (all []int) {
	t.Helper()
	for _, field := range strings.Fields(read(t, filepath.Join(s.step, "pids"))) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

// The script for Slurm trains the bits of one process. It does so through a time limit, of which Slurm warns every task, and through a task
// that is killed. Only its user can read its secret, which is gone when the script ends.
func TestSlurmScriptTrains(t *testing.T) {
	t.Parallel()
	s := newSlurm(t, 3)
	out := filepath.Join(t.TempDir(), "shared", "run")
	args := append([]string{out, "--checkpoint-every", "10"}, smaller...)
	for s.restarts = range 2 {
		before := logged(out)
		p := s.script(t, "train.sbatch", append(slices.Clone(args), "--steps", endless)...)
		s.start(t, p)
		p.until(out, before+20)
		secrets, err := filepath.Glob(out + ".secret.*")
		if err != nil || len(secrets) != 1 {
			t.Fatalf("%v: %v", err, secrets)
		}
		if info, err := os.Stat(secrets[0]); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 64 {
			t.Errorf("the secret: %v, %v", info, err)
		}
		if all := s.pids(t); s.restarts == 0 {
			for _, pid := range all {
				_ = syscall.Kill(pid, syscall.SIGTERM) // or the others have told it
			}
		} else if err := syscall.Kill(all[1], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.ends(-1) // by scontrol
		if left, _ := filepath.Glob(out + ".secret.*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if asked := read(t, filepath.Join(s.step, "scontrol")); asked != strings.Repeat(fmt.Sprintf("requeue %d\n", s.id), s.restarts+1) {
			t.Fatalf("restart %d: scontrol was asked %q:\n%s", s.restarts, asked, p.err.String())
		}
		if s.restarts == 0 && strings.Count(p.err.String(), "they are saved") != 3 {
			t.Errorf("not every task was interrupted:\n%s", p.err.String())
		}
	}
	s.restarts = 2
	steps := logged(out) + 20
	p := s.script(t, "train.sbatch", append(slices.Clone(args), "--steps", strconv.Itoa(steps))...)
	s.start(t, p)
	p.ends(0)
	want := asOneProcess(t, 3, steps)
	if got := summaryOf(t, p.out.String()); got.WeightsSHA256 != want || got.ResumedFrom < 30 {
		t.Errorf("weights %s, resumed from step %d, want %s", got.WeightsSHA256, got.ResumedFrom, want)
	}
	if left, _ := filepath.Glob(out + ".secret.*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The script requeues neither a job that would fail again nor one that has failed often.
func TestSlurmScriptGivesUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		restarts int
		code     int
		more     []string
	}{
		{"usage", 0, 2, []string{"--steps", "none"}},
		{"does not fit", 0, 3, []string{"--steps", "5", "--memory", "1KiB"}},
		{"often", 20, 1, []string{"--steps", "60", "--lr", "1e30"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSlurm(t, 2)
			s.restarts = c.restarts
			p := s.script(t, "train.sbatch", slices.Concat([]string{filepath.Join(t.TempDir(), "run")}, smaller, c.more)...)
			s.start(t, p)
			p.ends(c.code)
			if _, err := os.Stat(filepath.Join(s.step, "scontrol")); err == nil {
				t.Errorf("back into the queue:\n%s", p.err.String())
			}
		})
	}
}

// The other script measures the links between tasks, on which train plans.
func TestSlurmScriptMeasuresLinks(t *testing.T) {
	t.Parallel()
	s := newSlurm(t, 2)
	platform := filepath.Join(t.TempDir(), "platform.json")
	p := s.script(t, "links.sbatch", platform)
	s.start(t, p)
	p.ends(0)
	works(t, slices.Concat([]string{"train", "--devices", "cpu*2", "--platform", platform, "--steps", "2"}, smaller)...)
	if !strings.Contains(p.out.String(), "rank 1, cpu") {
		t.Errorf("it printed %s", p.out.String())
	}
}
