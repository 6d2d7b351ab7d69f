//go:build cuda && linux && amd64

package cuda

import (
	"embed"
	"path"
	"strings"
	"sync"

	"plimsoll/kernels/cuda/sources"
)

//go:embed ptx/*.ptx.gz
var embedded embed.FS

// images returns the modules' PTX by name. Each is unpacked when it is first asked for.
var images = readImages()

func readImages() map[string]func() []byte {
	all := map[string]func() []byte{}
	files, err := embedded.ReadDir("ptx")
	if err != nil {
		panic("BUG: embedded PTX cannot be read: " + err.Error())
	}
	for _, f := range files {
		module, _, _ := strings.Cut(f.Name(), ".")
		all[module] = sync.OnceValue(func() []byte { return readImage(module) })
	}
	return all
}

func readImage(module string) []byte {
	text, err := sources.ReadPTX(embedded, path.Join("ptx", module))
	if err != nil {
		panic("BUG: embedded PTX cannot be read: " + err.Error())
	}
	return text
}

// imageOf returns the PTX of a module; nil where there is none.
func imageOf(module string) []byte {
	if read := images[module]; read != nil {
		return read()
	}
	return nil
}
