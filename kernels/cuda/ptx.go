//go:build cuda && linux && amd64

package cuda

import (
	"embed"
	"path"
	"strings"
)

//go:embed ptx/*.ptx
var ptx embed.FS

// images are the modules' PTX by name.
var images = readImages()

func readImages() map[string][]byte {
	all := map[string][]byte{}
	files, err := ptx.ReadDir("ptx")
	for _, f := range files {
		if err == nil {
			all[strings.TrimSuffix(f.Name(), ".ptx")], err = ptx.ReadFile(path.Join("ptx", f.Name()))
		}
	}
	if err != nil {
		panic("BUG: embedded PTX cannot be read: " + err.Error())
	}
	return all
}
