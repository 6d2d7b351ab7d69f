package world

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var nobody = Identity{Rank: -1, LocalRank: -1}

// Every launcher's variables say who a process is.
func TestLaunchersSayWhoIsWho(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		env   map[string]string
		given Identity
		want  Identity
	}{
		{"torchrun", map[string]string{"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}, nobody,
			Identity{5, 8, 1, "node0:29500", "torchrun"}},
		{"torchrun, whose agent has the port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "::1", "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True"}, nobody,
			Identity{0, 2, 0, "[::1]:29501", "torchrun"}},
		{"torchrun, whose agent leaves the port alone", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "False"}, nobody,
			Identity{0, 2, -1, "a:29500", "torchrun"}},
		{"torchrun under srun", map[string]string{
			"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "n[1-2]",
		}, nobody, Identity{3, 4, 1, "10.0.0.1:1", "torchrun"}},
		{"Kubeflow", map[string]string{"PET_NNODES": "4", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29400", "JOB_COMPLETION_INDEX": "2"}, nobody,
			Identity{2, 4, -1, "job-node-0-0.job:29400", "Kubeflow"}},
		{"Slurm", map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}, nobody,
			Identity{3, 4, 1, "gpu07:26663", "Slurm"}},
		{"a script of Slurm", map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "gpu[07-08]"}, nobody, Identity{}},
		{"Slurm with PMI", map[string]string{"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "a,b", "MASTER_ADDR": "c"}, nobody,
			Identity{1, 2, -1, "c:29400", "PMI"}},
		{"mpiexec on one machine", map[string]string{"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, nobody,
			Identity{1, 2, 1, "127.0.0.1:29400", "PMI"}},
		{"mpirun on one machine", map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, nobody,
			Identity{1, 2, 1, "127.0.0.1:29400", "Open MPI"}},
		{"mpirun on many", map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "head", "MASTER_PORT": "7"}, nobody,
			Identity{1, 4, -1, "head:7", "Open MPI"}},
		{"an indexed job", map[string]string{"JOB_COMPLETION_INDEX": "2"}, Identity{Rank: -1, Size: 3, LocalRank: -1, Address: "job-0.svc:29400"},
			Identity{2, 3, -1, "job-0.svc:29400", "Kubernetes"}},
		{"one of many independent jobs", map[string]string{"JOB_COMPLETION_INDEX": "2"}, nobody, Identity{}},
		{"flags", nil, Identity{1, 2, 0, "h:1", ""}, Identity{1, 2, 0, "h:1", "as given"}},
		{"flags over variables", map[string]string{"RANK": "x", "WORLD_SIZE": "y", "LOCAL_RANK": "z", "MASTER_ADDR": "?", "MASTER_PORT": "!"}, Identity{1, 2, 0, "h:1", ""},
			Identity{1, 2, 0, "h:1", "torchrun"}},
		{"one process", map[string]string{"RANK": "0", "WORLD_SIZE": "1"}, nobody, Identity{0, 1, -1, "", "torchrun"}},
		{"nothing", nil, nobody, Identity{}},
	} {
		id, ok, err := Identify(c.given, get(c.env))
		if err != nil || id != c.want || ok != (c.want.Size > 0) {
			t.Errorf("%s: %+v, %v, %v; want %+v", c.name, id, ok, err, c.want)
		}
	}
}

func get(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// The error about a wrong variable or flag names it.
func TestWrongVariablesAreNamed(t *testing.T) {
	t.Parallel()
	good := map[string]map[string]string{
		"torchrun": {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500"},
		"kubeflow": {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "h", "PET_MASTER_PORT": "1"},
		"slurm":    {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "a[1-2]"},
		"mpi":      {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
		"openmpi":  {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
	}
	addresses := map[string]bool{"MASTER_ADDR": true, "PET_MASTER_ADDR": true, "SLURM_STEP_NODELIST": true, "MPI_LOCALNRANKS": true, "OMPI_COMM_WORLD_LOCAL_SIZE": true}
	tried := 0
	for launcher, env := range good {
		if _, ok, err := Identify(nobody, get(env)); !ok || err != nil {
			t.Fatalf("%s: %v", launcher, err)
		}
		for name := range env {
			bad := []string{"", "x", "-1", "1e3", "0x1", "99999999", "99999999999999999999", "1 ", "\x1b[31m"}
			if addresses[name] {
				bad = []string{"", "a[", "["}
			}
			for _, value := range bad {
				changed := maps.Clone(env)
				changed[name] = value
				optional := value == "" && (strings.Contains(name, "LOCAL") || strings.HasSuffix(name, "PORT") || name == "SLURM_STEP_NODELIST") && !addresses[name]
				_, ok, err := Identify(nobody, get(changed))
				switch {
				case name == "SLURM_STEP_NODELIST" && value == "": // not srun
					if ok || err != nil {
						t.Errorf("%s=%q: %v, %v", name, value, ok, err)
					}
				case optional:
					if !ok || err != nil {
						t.Errorf("%s=%q: %v", name, value, err)
					}
				case addresses[name] && name != "SLURM_STEP_NODELIST": // anything may be a name; without one, none is known
					if value == "" && (!errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "MASTER_ADDR")) {
						t.Errorf("%s=%q: %v", name, value, err)
					}
				case !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), name) || strings.ContainsRune(err.Error(), '\x1b'):
					t.Errorf("%s=%q: %v", name, value, err)
				}
				tried++
			}
		}
	}
	if tried < 130 {
		t.Errorf("only %d cases", tried)
	}
	for _, c := range []struct {
		given Identity
		says  string
	}{
		{Identity{Rank: 2, Size: 2, LocalRank: -1, Address: "h:1"}, "rank 2 of 2"},
		{Identity{Rank: -1, Size: 2, LocalRank: -1, Address: "h:1"}, "nobody says its rank"},
		{Identity{Rank: 1, LocalRank: -1, Address: "h:1"}, "nobody says how many there are"},
		{Identity{Rank: 1, Size: 2, LocalRank: -1}, "MASTER_ADDR"},
		{Identity{Rank: 1, Size: 2, LocalRank: -1, Address: "h"}, "host:port"},
		{Identity{Rank: 1, Size: 2, LocalRank: -1, Address: "h:0"}, "host:port"},
		{Identity{Rank: 1, Size: 2, LocalRank: -1, Address: ":80"}, "host:port"},
		{Identity{Rank: 1, Size: 1 << 20, LocalRank: -1, Address: "h:1"}, "the number of processes is 1048576"},
	} {
		if _, _, err := Identify(c.given, get(nil)); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %s", c.given, err, c.says)
		}
	}
}

func TestFirstHostOfSlurmsList(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "node[01-03,07],login1": "node01", "node[7]": "node7", "gpu[03-05,9]-a,x": "gpu03-a", "r[0-1]n[08-09]": "r0n08",
		"a-b.c_d,e[1-2]": "a-b.c_d", "n[1": "", "n]": "", "n[]": "", "n[a-b]": "", "": "", ",a": "", "[1-2]": "1", "a b": "", "a\n": "", "n[1]]": "", "ä": "",
	} {
		if got, err := firstHost(list); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", list, got, err, want)
		}
	}
}

// compress writes hosts as Slurm does: ranges of the same prefix in brackets.
func compress(r *rand.Rand) (list, first string) {
	const digits = "0123456789"
	for range 1 + r.IntN(3) {
		name := "n" + strings.Repeat("x", r.IntN(3))
		entry, host := name, name
		if r.IntN(3) > 0 {
			number := string(digits[r.IntN(10)]) + string(digits[r.IntN(10)])
			entry, host = entry+"["+number+"-99,107]", host+number
		}
		if r.IntN(2) > 0 {
			entry, host = entry+"-s", host+"-s"
		}
		if first == "" {
			first = host
		} else {
			list += ","
		}
		list += entry
	}
	return list, first
}

func TestFirstHostOfRandomLists(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		list, want := compress(r)
		if got, err := firstHost(list); got != want || err != nil {
			t.Fatalf("%q: %q, %v, want %q", list, got, err, want)
		}
	}
}

func FuzzFirstHost(f *testing.F) {
	f.Add("node[01-03,07],login1")
	f.Add("r[0-1]n[08-09]")
	f.Fuzz(func(t *testing.T, list string) {
		if host, err := firstHost(list); err == nil && (host == "" || len(host) > len(list) || strings.ContainsAny(host, "[], \n")) {
			t.Errorf("%q: %q", list, host)
		}
	})
}

// A library does not know the flags of the program: no text in this package and those below it names one.
func TestTextsNameNoFlags(t *testing.T) {
	t.Parallel()
	literals := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				if literals++; flagName.MatchString(text.Value) {
					t.Errorf("%s: %s", path, text.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || literals < 300 {
		t.Errorf("%d texts, %v", literals, err)
	}
}

var flagName = regexp.MustCompile(`--[a-z]|\bworld\.(rank|master|allreduce)\b`)
