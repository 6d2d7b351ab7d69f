// Package interop reads what other tools write about schedules:
//
//   - PyTorch's table of pipeline ops, a CSV with a row for each rank, becomes a flush plan (Schedule), which can be run
//     on its own costs or on a chain's;
//   - the actions of checkpoint_schedules become a sequence (Actions).
//
// Readers only read: whether a schedule is legal and ends is the answer of a run, not an error. A file that cannot be
// read is a fields.FileError with file, line, field and value.
package interop
