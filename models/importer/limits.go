package importer

// Limits of a graph: one with more is none that somebody has trained, and takes more memory than its file.
const (
	MostBytes    = 2<<30 - 1 // of one tensor
	MostNodes    = 1 << 14
	MostTensors  = 1 << 17
	MostAxes     = 8
	MostElements = 1 << 12 // of a constant that is computed with, and of an attribute
)
