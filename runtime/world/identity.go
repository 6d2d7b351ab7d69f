package world

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
)

// Identity says which of the processes this one is.
type Identity struct {
	Rank, Size, LocalRank int    // LocalRank: among those of this machine, -1 where nobody says
	Address               string // host:port where rank 0 listens
	Launcher              string // who said so, for errors and documents
}

// These errors report a wrong or missing identity of this process, from the user and a launcher's variables.
var (
	// ErrIdentity says that the user and the variables do not say which process this is.
	ErrIdentity = errors.New("which process this is")
	// ErrNoRank is an ErrIdentity: no one says its rank.
	ErrNoRank = fmt.Errorf("%w: nobody says its rank", ErrIdentity)
	// ErrNoSize is an ErrIdentity: no one says how many processes there are.
	ErrNoSize = fmt.Errorf("%w: nobody says how many there are", ErrIdentity)
)

const (
	// mostRanks bounds what a garbled variable can ask for.
	mostRanks = 1 << 16
	// defaultPort is where rank 0 listens when no launcher says where.
	defaultPort = 29400
)

// launcher holds the variables that one kind of launcher sets.
type launcher struct {
	name              string
	rank, size, local string   // variables; "" where it has none
	tells             []string // variables of which any tells that it was this one
}

// launchers are asked in this order: what starts single processes (torchrun) runs inside of what starts machines (Slurm).
var launchers = []launcher{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", []string{"RANK", "WORLD_SIZE"}},
	{"Kubeflow", "PET_NODE_RANK", "PET_NNODES", "", []string{"PET_NODE_RANK", "PET_NNODES"}},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", []string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
	{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", []string{"PMI_RANK", "PMI_SIZE"}},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", []string{"SLURM_STEP_NODELIST"}}, // a batch script has the others, too
	{"Kubernetes", "JOB_COMPLETION_INDEX", "", "", []string{"JOB_COMPLETION_INDEX"}},
}

// Identify reads the variables that launchers set. Argument given holds the user's values (-1, 0, "": not given), which take
// precedence. If there is no launcher and nothing is given, ok is false: a single process. An index of Kubernetes alone, without a
// size, is one of many independent runs. Errors: ErrNoRank, ErrNoSize, ErrIdentity, naming the variable.
func Identify(given Identity, getenv func(string) string) (id Identity, ok bool, err error) {
	l, found := launcherOf(getenv)
	if !found && given.Rank < 0 && given.Size == 0 || found && l.size == "" && given.Size == 0 {
		return Identity{}, false, nil
	}
	v := variables{getenv: getenv}
	id = Identity{
		Rank:      v.number(given.Rank >= 0, given.Rank, l.rank, fact{"the rank", ErrNoRank, 0}),
		Size:      v.number(given.Size > 0, given.Size, l.size, fact{"the number of processes", ErrNoSize, 1}),
		LocalRank: v.optional(given.LocalRank, l.local),
		Launcher:  l.name,
	}
	if v.err == nil && id.Rank >= id.Size {
		v.fail("rank %d of %d processes (%s): ranks count from 0", id.Rank, id.Size, id.Launcher)
	}
	if v.err == nil && id.Size > 1 {
		id.Address = v.address(given.Address)
	}
	return id, true, v.err
}

func launcherOf(getenv func(string) string) (l launcher, found bool) {
	for _, l := range launchers {
		if slices.ContainsFunc(l.tells, func(name string) bool { return getenv(name) != "" }) {
			return l, true
		}
	}
	return launcher{name: "as given"}, false
}

// variables reads variables and keeps the first error.
type variables struct {
	getenv func(string) string
	err    error
}

func (v *variables) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf("%w: "+format, append([]any{ErrIdentity}, args...)...)
	}
}

// fact is a number that is given, or that a variable says.
type fact struct {
	what    string
	missing error // where nobody says it
	least   int
}

// number returns the given number, or a variable's.
func (v *variables) number(given bool, value int, name string, of fact) int {
	source := name
	switch {
	case given:
		source = of.what
	case name == "":
		v.err = cmp.Or(v.err, of.missing)
		return 0
	default:
		value = v.parse(name)
	}
	if v.err == nil && (value < of.least || value > mostRanks) {
		v.fail("%s is %d: it must be from %d to %d", source, value, of.least, mostRanks)
	}
	return value
}

func (v *variables) parse(name string) int {
	text := v.getenv(name)
	if text == "" {
		v.fail("%s is not set", name)
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		v.fail("%s is %.40q, no whole number", name, text)
	}
	return n
}

func (v *variables) optional(value int, name string) int {
	if value >= 0 || name == "" || v.getenv(name) == "" {
		return max(value, -1)
	}
	return v.number(false, 0, name, fact{})
}

// address returns where rank 0 listens, from the first that says it.
func (v *variables) address(given string) string {
	switch {
	case given != "":
		return v.checked("the address of rank 0", given)
	case v.getenv("MASTER_ADDR") != "":
		return v.pair("MASTER_ADDR", "MASTER_PORT")
	case v.getenv("PET_MASTER_ADDR") != "":
		return v.pair("PET_MASTER_ADDR", "PET_MASTER_PORT")
	case v.getenv("SLURM_STEP_NODELIST") != "":
		return v.slurm()
	case v.allHere("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"), v.allHere("MPI_LOCALNRANKS", "PMI_SIZE"):
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(defaultPort))
	}
	v.fail("nothing says where rank 0 listens: set MASTER_ADDR and MASTER_PORT")
	return ""
}

// allHere reports whether an mpiexec has started all its processes on this machine.
func (v *variables) allHere(local, size string) bool {
	return v.getenv(local) != "" && v.getenv(local) == v.getenv(size)
}

// pair joins a host and a port, which torchrun's own store may have taken: then it is the next one.
func (v *variables) pair(host, port string) string {
	n := defaultPort
	if v.getenv(port) != "" {
		n = v.parse(port)
	}
	if v.getenv("TORCHELASTIC_USE_AGENT_STORE") == "True" && host == "MASTER_ADDR" {
		n++
	}
	if v.err == nil && (n < 1 || n > 65535) {
		v.fail("%s is %s: a port is from 1 to 65535", port, v.getenv(port))
	}
	return v.checked(host, net.JoinHostPort(v.getenv(host), strconv.Itoa(n)))
}

// slurm is on the first machine of the step, at a port that steps which run there at the same time hardly share.
func (v *variables) slurm() string {
	host, err := firstHost(v.getenv("SLURM_STEP_NODELIST"))
	if err != nil {
		v.fail("SLURM_STEP_NODELIST is %.80q: %v", v.getenv("SLURM_STEP_NODELIST"), err)
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s.%s", v.getenv("SLURM_JOB_ID"), v.getenv("SLURM_STEP_ID"))
	port := 20000 + hash.Sum32()%10000 // below those that systems give out
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func (v *variables) checked(name, address string) string {
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		v.fail("%s is %.80q: it must be host:port", name, address)
	}
	return address
}
