package main

// This file holds the settings and results of torchgpipe: C. Kim et al. 2020, "torchgpipe: On-the-fly Pipeline Parallelism for Training
// Giant Models", section 4. Where the paper does not give a setting, the setting comes from the benchmarks folder of its repository
// (version 0.0.5).

const (
	paperMemory    = 22 << 30 // bytes of a Tesla P40 (section 4)
	paperBandwidth = 12e9     // bytes/s between devices: our assumption for PCIe 3.0 x16, the paper gives none
)

// size is the two numbers of a family's model: (B, C) of a U-Net, (L, F) of an AmoebaNet-D.
type size [2]int

// giant is a row of the paper's memory table.
type giant struct {
	setting    string // "pipeline-4"
	devices    int
	micros     int // microbatches of a batch; 1: no pipeline
	size       size
	parameters string // theirs
	memory     string // theirs, of all devices
}

// collection is one memory table.
type collection struct {
	family                string // prefix of the models' names
	title                 string
	image, batch, classes int
	state                 int // copies of the weights that the optimizer keeps
	source                string
	rows                  []giant
}

// collections returns the memory tables.
func collections() []collection {
	return []collection{
		{
			family: "unet", title: "U-Net (B, C)", image: 192, batch: 32, classes: 1,
			source: "the paper, section 4.2.2; microbatches: benchmarks/unet-memory",
			rows: []giant{
				{"naive-1", 1, 1, size{6, 72}, "362.2M", "20.3 GiB"},
				{"pipeline-1", 1, 32, size{11, 128}, "2.21B", "20.5 GiB"},
				{"pipeline-2", 2, 32, size{24, 128}, "4.99B", "43.4 GiB"},
				{"pipeline-4", 4, 32, size{24, 160}, "7.80B", "79.1 GiB"},
				{"pipeline-8", 8, 32, size{48, 160}, "15.82B", "154.1 GiB"},
			},
		},
		{
			family: "amoebanet", title: "AmoebaNet-D (L, F)", image: 224, batch: 128, classes: 1000, state: 1,
			source: "benchmarks/amoebanetd-memory, after GPipe's table 1; the paper has no such table",
			rows: []giant{
				{"naive-1", 1, 1, size{18, 208}, "81.5M", "out of memory"},
				{"pipeline-1", 1, 128, size{18, 416}, "319.0M", "4.48 GiB"},
				{"pipeline-2", 2, 128, size{18, 544}, "542.7M", "9.46 GiB"},
				{"pipeline-4", 4, 128, size{36, 544}, "1.06B", "18.71 GiB"},
				{"pipeline-8", 8, 128, size{72, 512}, "1.84B", "31.45 GiB"},
			},
		},
	}
}

// measuredClasses is the number of classes of the data that the chains were measured with.
const measuredClasses = 10

// race is a row of a speed table.
type race struct {
	devices, micros int
	batch           int
	paper           float64 // their speed-up
}

// speeds is one speed table.
type speeds struct {
	model  string
	title  string
	image  int
	chain  string // file with our times
	source string
	// The times are scaled so that images/s are those of the paper's own baseline, over which the table's speed-ups are. The
	// baseline is one device that keeps everything or, with always, gpipe-checkpoint in the first race. A single microbatch is
	// recomputed then.
	baseline float64
	always   bool
	races    []race
}

// allSpeeds returns the speed tables.
func allSpeeds() []speeds {
	return []speeds{
		{
			model: "unet-5-64", title: "U-Net (5, 64)", image: 192, chain: "unet-5-64.json", baseline: 28.5,
			source: "the paper, section 4.2.3; (B, C) and the image: benchmarks/unet-speed; baseline: naive-1",
			races:  []race{{1, 2, 80, 0.858}, {2, 32, 512, 1.246}, {4, 16, 512, 2.352}, {8, 40, 640, 3.105}},
		},
		{
			model: "amoebanet-18-256", title: "AmoebaNet-D (18, 256)", image: 224, chain: "amoebanet-18-256.json", baseline: 26.733, always: true,
			source: "the paper, section 4.2.1; batches and the baseline's images/s: benchmarks/amoebanetd-speed; baseline: n = 2, m = 1",
			races: []race{
				{2, 1, 96, 1}, {2, 4, 256, 1.54}, {2, 32, 1280, 1.77},
				{4, 1, 160, 1.00}, {4, 4, 360, 1.67}, {4, 32, 1152, 2.71},
				{8, 1, 196, 0.93}, {8, 4, 480, 2.62}, {8, 32, 1280, 4.95},
			},
		},
	}
}

// The ablation (section 4.1 and table 1; batch, microbatches and devices: benchmarks/unet-timeline).
const (
	ablationDevices = 4
	ablationMicros  = 8
	ablationBatch   = 128
)

// paperAblation is table 1: the images/s with each component added to those before it.
var paperAblation = map[string]float64{"clock-cycle": 30.662, "dependency": 41.306, "streams": 55.191, "portals": 58.477}
