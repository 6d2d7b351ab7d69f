//go:build !linux

package host

// LongTurns would let threads that compute keep their core for longer where others want it too; this system cannot be told so.
func LongTurns() {}

func quietMonitor() {}

func ownTurn() {}
