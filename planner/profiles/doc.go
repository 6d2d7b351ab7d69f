// Package profiles reads chains as others have measured them: PipeDream's graph.txt, an operator graph with its profile, which becomes a
// chain (Graph), tables of layers, and our own chain files. A file that cannot be read is a fields.FileError with file, line, field and
// value.
package profiles
