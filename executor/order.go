package executor

import "plimsoll/executor/internal/hazard"

// OrderError says that two actions of a step may run at the same time on the same bytes.
type OrderError = hazard.Error
