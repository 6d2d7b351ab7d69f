package resources

// GPU is the limits of a multiprocessor of one generation, from the tables of compute capabilities in NVIDIA's programming guide.
type GPU struct {
	Name    string // as the assembler names it
	Threads int
	Blocks  int
	Shared  int // bytes that blocks share
	Reserve int // bytes of shared memory that the system takes of each block
	Grain   int // bytes to which a block's shared memory is rounded up
}

// GPUs are the generations that the PTX is assembled for.
var GPUs = []GPU{
	{Name: "sm_75", Threads: 1024, Blocks: 16, Shared: 64 << 10, Grain: 256},
	{Name: "sm_80", Threads: 2048, Blocks: 32, Shared: 164 << 10, Reserve: 1 << 10, Grain: 128},
	{Name: "sm_86", Threads: 1536, Blocks: 16, Shared: 100 << 10, Reserve: 1 << 10, Grain: 128},
	{Name: "sm_89", Threads: 1536, Blocks: 24, Shared: 100 << 10, Reserve: 1 << 10, Grain: 128},
	Hopper,
	{Name: "sm_100", Threads: 2048, Blocks: 32, Shared: 228 << 10, Reserve: 1 << 10, Grain: 128},
}

// Hopper is a multiprocessor of an H100 or an H200.
var Hopper = GPU{Name: "sm_90", Threads: 2048, Blocks: 32, Shared: 228 << 10, Reserve: 1 << 10, Grain: 128}

// Registers of a multiprocessor are the same for all generations. A warp gets them in grains, and warps in groups of four.
const (
	warp          = 32
	warpGroup     = 4
	registers     = 64 << 10
	registerGrain = 256
)

// Resident returns the blocks of a kernel that a multiprocessor holds at once: the least that threads, blocks, registers and shared memory
// allow. Shared memory is all that a block has, declared or not.
func (g GPU) Resident(threads, perThread, shared int) int {
	warps := up(threads, warp) / warp
	blocks := min(g.Blocks, g.Threads/(warps*warp))
	if perThread > 0 {
		held := registers / up(perThread*warp, registerGrain) / warpGroup * warpGroup
		blocks = min(blocks, held/warps)
	}
	if shared > 0 {
		blocks = min(blocks, g.Shared/up(shared+g.Reserve, g.Grain))
	}
	return blocks
}

// up rounds up to a multiple.
func up(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
