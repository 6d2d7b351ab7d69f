package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// listed is a package as `go list -json` prints it.
type listed struct {
	ImportPath, Dir   string
	GoFiles, CgoFiles []string
	ImportMap         map[string]string
	DepOnly           bool
	Module            *struct{ Path string }
}

// load measures the packages of the module in a folder, as they are built on linux/amd64 with cgo and CUDA. Nothing is compiled: all
// imports are type-checked from source, without bodies, and names of C stay unresolved. So the figures are the same on every machine.
func load(root string) ([]*folder, error) {
	all, err := list(root)
	if err != nil {
		return nil, err
	}
	c := &checker{token.NewFileSet(), map[string]*checked{}}
	for _, l := range all {
		c.packages[l.ImportPath] = &checked{ready: make(chan struct{})}
	}
	folders, faults := make([]*folder, len(all)), make([]error, len(all))
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for i := range next {
				folders[i], faults[i] = c.check(all[i])
				close(c.packages[all[i].ImportPath].ready)
			}
		}()
	}
	for i := range all {
		next <- i // imports come before the packages that import them
	}
	close(next)
	var own []*folder
	for i, l := range all {
		<-c.packages[l.ImportPath].ready
		if folders[i] != nil {
			own = append(own, folders[i])
		}
	}
	return own, errors.Join(faults...)
}

// list returns the packages of the module in a folder and all that they import, imports first.
func list(root string) (all []listed, err error) {
	cmd := exec.Command("go", "list", "-deps", "-tags", "cuda", "-json=ImportPath,Dir,GoFiles,CgoFiles,ImportMap,DepOnly,Module", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

// checker type-checks packages side by side.
type checker struct {
	set      *token.FileSet
	packages map[string]*checked // by import path
}

// checked is a package whose types are known once ready is closed.
type checked struct {
	ready chan struct{}
	types *types.Package
}

// check type-checks a package. It measures packages of the module, and returns nil for those that they import.
// Errors: a file cannot be parsed, or one of the module does not type-check.
func (c *checker) check(l listed) (*folder, error) {
	if l.ImportPath == "unsafe" {
		c.packages["unsafe"].types = types.Unsafe
		return nil, nil
	}
	var files []*ast.File
	var faults []error
	for _, name := range append(l.GoFiles, l.CgoFiles...) {
		f, err := parser.ParseFile(c.set, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{
		Importer:         imports{c, l},
		IgnoreFuncBodies: l.DepOnly,
		FakeImportC:      true,
		Sizes:            types.SizesFor("gc", "amd64"),
		Error: func(err error) {
			if !strings.Contains(err.Error(), "invalid type") { // it follows from another error, or from a type of C
				faults = append(faults, err)
			}
		},
	}
	if l.DepOnly {
		info = nil // its errors, as of functions without bodies, are nobody's here
	}
	c.packages[l.ImportPath].types, _ = config.Check(l.ImportPath, c.set, files, info) // errors went to faults
	if l.DepOnly {
		return nil, nil
	}
	return measure(strings.TrimPrefix(l.ImportPath, l.Module.Path+"/"), c.set, files, c.packages[l.ImportPath].types, info), errors.Join(faults...)
}

// imports resolves the imports of one package.
type imports struct {
	*checker
	by listed
}

func (i imports) Import(path string) (*types.Package, error) {
	if mapped, ok := i.by.ImportMap[path]; ok {
		path = mapped
	}
	p := i.packages[path]
	if p == nil {
		return nil, fmt.Errorf("go list named no package %s, which %s imports", path, i.by.ImportPath)
	}
	<-p.ready
	return p.types, nil
}

// loadCommitted measures the packages of the commit that last changed the baseline. Errors: the folder has no history, or no such commit.
func loadCommitted(root string) ([]*folder, error) {
	dir, err := os.MkdirTemp("", "layers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	script := `commit=$(git log -1 --format=%H -- ` + baselineFile + `) && [ -n "$commit" ] && git archive "$commit" | tar -x -C "$0"`
	cmd := exec.Command("sh", "-c", script, dir)
	cmd.Dir = root
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("git: %w", err)
	}
	return load(dir)
}
