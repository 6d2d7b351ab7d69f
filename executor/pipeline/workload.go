package pipeline

import (
	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
)

// Workload is a compiled model with its optimizer.
type Workload = executor.Workload

// Compile compiles a model for libraries that need the same workspaces as lib, which add gradients to others, too. Errors: those of
// executor.Compile.
func Compile(m *models.Model, lib kernels.Library, opt kernels.Update) (*Workload, error) {
	return executor.Compile(m, models.Accumulation(lib), opt)
}
