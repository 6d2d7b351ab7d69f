// Command notices prints the licenses of everything that is linked into the program, or is data in it: THIRD_PARTY_NOTICES.
//
//	go run ./internal/notices >THIRD_PARTY_NOTICES
//
// It fails for a license that the project does not take, and for a module without any.
package main

import (
	"bytes"
	"cmp"
	_ "embed" // for what no module says
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// program is everything that any build links: that for Linux with CUDA and HiGHS.
var program = []string{"list", "-deps", "-tags", "cuda highs", "-json=Dir,Standard,Module", "plimsoll/cmd/plimsoll"}

// pkg holds go list's data of a package.
type pkg struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// part is a text and whose it is.
type part struct {
	owners []string
	text   string
}

//go:embed others.txt
var others string // parts of modules, and data, of which the modules hold no license

func run(w io.Writer) error {
	packages, err := list()
	if err != nil {
		return err
	}
	byText := map[string]*part{}
	licensed := map[string]bool{} // by owner
	for _, p := range packages {
		owner, files, err := p.licenses()
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := add(byText, owner, file, licensed); err != nil {
				return err
			}
		}
		if owner != "" && !licensed[owner] {
			return fmt.Errorf("%s has no license", owner)
		}
	}
	return write(w, slices.SortedFunc(maps.Values(byText), func(a, b *part) int {
		return cmp.Or(slices.Compare(a.owners, b.owners), cmp.Compare(a.text, b.text))
	}))
}

// list returns all packages of the program but its own.
func list() (all []pkg, err error) {
	cmd := exec.Command("go", program...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if p.Module == nil || !p.Module.Main {
			all = append(all, p)
		}
	}
}

var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.(txt|md))?$`)

// licenses returns whose a package is, and the files with licenses in its folder and those above it, up to the module's.
func (p *pkg) licenses() (owner string, files []string, err error) {
	var root string
	switch {
	case p.Standard:
		goroot, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return "", nil, fmt.Errorf("go env: %w", err)
		}
		owner, root = "Go's standard library and runtime", strings.TrimSpace(string(goroot))
	case p.Module == nil:
		return "", nil, nil
	default:
		owner, root = p.Module.Path+" "+p.Module.Version, p.Module.Dir
	}
	for dir := p.Dir; strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", nil, err
		}
		for _, e := range entries {
			if !e.IsDir() && licenseName.MatchString(e.Name()) {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
		if dir == root {
			break
		}
	}
	return owner, files, nil
}

// kinds tell licenses by what stands in them; the first that fits counts. "" is a text beside a license.
var kinds = []struct{ mark, name string }{
	{"Apache License", "Apache 2.0"},
	{"Permission is hereby granted, free of charge", "MIT"},
	{"Redistribution and use in source and binary forms", "BSD"},
	{"Additional IP Rights Grant", ""},
	{"This product includes software", ""},
}

// add reads a license of an owner.
func add(byText map[string]*part, owner, file string, licensed map[string]bool) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := strings.Trim(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	for _, k := range kinds {
		if !strings.Contains(text, k.mark) {
			continue
		}
		if k.name != "" {
			licensed[owner] = true
			owner += ", " + k.name
		}
		p := byText[text]
		if p == nil {
			p = &part{text: text}
			byText[text] = p
		}
		if !slices.Contains(p.owners, owner) {
			p.owners = append(p.owners, owner)
			slices.Sort(p.owners)
		}
		return nil
	}
	if strings.HasPrefix(strings.ToUpper(filepath.Base(file)), "NOTICE") {
		return nil // copyrights of parts that a license names again
	}
	return fmt.Errorf("%s: %s is of a license that is neither MIT, BSD nor Apache 2.0", owner, file)
}

const head = `Plimsoll is under the Apache License 2.0, see LICENSE. The program contains the software and data of others that is listed here, each
under the terms below its name. Made by "make notices".
`

func write(w io.Writer, parts []*part) error {
	line := strings.Repeat("=", 100)
	var b strings.Builder
	fmt.Fprint(&b, head)
	for _, p := range parts {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", line, strings.Join(p.owners, "\n"), line, p.text)
	}
	fmt.Fprintf(&b, "\n%s", others)
	_, err := io.WriteString(w, b.String())
	return err
}
