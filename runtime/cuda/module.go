//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"plimsoll/runtime/cuda/driver"
)

// Module is loaded device code.
type Module struct {
	device *Device
	name   string
	module cu.Module
}

// Module loads device code, PTX or a cubin, once for each name: a second call with the same name returns the same module
// and does not look at the image.
func (d *Device) Module(name string, image []byte) (*Module, error) {
	var m *Module
	err := d.use("module "+name, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if m = d.modules[name]; m != nil {
			return nil
		}
		loaded, log, err := driver.LoadModule(image)
		if err != nil {
			return d.wrap("module "+name, explainLoad(callError("cuModuleLoadDataEx", err), log))
		}
		m = &Module{device: d, name: name, module: loaded}
		d.modules[name] = m
		return nil
	})
	return m, err
}

func explainLoad(err error, log string) error {
	if log == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, log)
}

// Function returns a kernel of the module.
func (m *Module) Function(name string) (cu.Function, error) {
	var f cu.Function
	op := fmt.Sprintf("function %s of module %s", name, m.name)
	err := m.device.use(op, func() (err error) {
		f, err = m.module.Function(name)
		return m.device.wrap(op, callError("cuModuleGetFunction", err))
	})
	return f, err
}
