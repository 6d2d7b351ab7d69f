package periodic

import "errors"

var (
	// ErrStages means that the stages of the request cannot be scheduled by this strategy; the message names the stage.
	ErrStages = errors.New("bad allocation")
	// ErrOptions means that an option has a value that the strategy cannot use.
	ErrOptions = errors.New("bad option")
)
