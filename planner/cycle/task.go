package cycle

// ref names an op of a replay: the position in the sequence, and one length of the sequence more for each step before. none: no op.
type ref int32

const none ref = -1

// task is an op as the player needs it.
type task struct {
	ticks                int64
	takes                int64 // bytes of the device when it starts
	leaves               int64 // bytes that its end adds to those in use; below 0: frees
	hostTakes, hostGives int64 // bytes of the host, at its start and its end
	waits, waitsEnd      int32 // in ledger.waits
}

// free is bytes of the device that are free when several ops have ended.
type free struct {
	bytes int64
	holds [3]ref
}
