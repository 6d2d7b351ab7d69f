package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// folder holds the figures of one package.
type folder struct {
	path      string   // below the module's root
	files     []string // names, sorted
	arrows    map[arrow]*uses
	methods   map[string]int // by type
	fields    map[string]int // by struct type; an embedded one is a field
	functions []function
}

// function is a function or method.
type function struct {
	name  string // "file.go:12 name"
	lines int    // from func to the closing brace
}

// arrow goes from a file that names something to the file that declares it; both are indices into folder.files.
type arrow struct{ from, to int }

// uses says why there is an arrow.
type uses struct {
	first string   // "file.go:12"
	names []string // in order of their first use
}

func (u *uses) String() string { return u.first + " uses " + strings.Join(u.names, ", ") }

// measure counts in the files of a type-checked package.
func measure(path string, set *token.FileSet, files []*ast.File, p *types.Package, info *types.Info) *folder {
	f := &folder{path: path, arrows: map[arrow]*uses{}, methods: map[string]int{}, fields: map[string]int{}}
	for _, tree := range files {
		f.files = append(f.files, fileOf(set, tree.Package))
		f.declarations(set, tree)
	}
	slices.Sort(f.files)
	f.draw(set, p, info)
	return f
}

// fileOf returns the name of the file of a position.
func fileOf(set *token.FileSet, at token.Pos) string { return filepath.Base(set.File(at).Name()) }

// declarations counts lines of functions, methods of types and fields of structs in a file.
func (f *folder) declarations(set *token.FileSet, tree *ast.File) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			first, last := set.Position(n.Pos()).Line, set.Position(n.End()).Line
			f.functions = append(f.functions, function{fmt.Sprintf("%s:%d %s", fileOf(set, n.Pos()), first, n.Name.Name), last - first + 1})
			if n.Recv != nil {
				f.methods[receiver(n.Recv.List[0].Type)]++
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				f.fields[n.Name.Name] = max(f.fields[n.Name.Name], fieldsOf(s))
			}
		}
		return true
	})
}

// receiver returns the name of the type of a method.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.ParenExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	name, _ := e.(*ast.Ident)
	return name.String()
}

func fieldsOf(s *ast.StructType) (n int) {
	for _, field := range s.Fields.List {
		n += max(1, len(field.Names))
	}
	return n
}

// draw finds the arrows. An identifier that stands for a type, function, method, variable, constant or field of the package points at
// the file that declares it. So a method points at the file of its receiver's type.
func (f *folder) draw(set *token.FileSet, p *types.Package, info *types.Info) {
	index := map[string]int{}
	for i, name := range f.files {
		index[name] = i
	}
	for _, name := range slices.SortedFunc(maps.Keys(info.Uses), func(a, b *ast.Ident) int { return cmp.Compare(a.Pos(), b.Pos()) }) {
		object := info.Uses[name]
		if object.Pkg() != p || !object.Pos().IsValid() {
			continue
		}
		file := fileOf(set, name.Pos())
		a := arrow{index[file], index[fileOf(set, object.Pos())]}
		if a.from == a.to {
			continue
		}
		if f.arrows[a] == nil {
			f.arrows[a] = &uses{first: fmt.Sprintf("%s:%d", file, set.Position(name.Pos()).Line)}
		}
		if known := f.arrows[a]; !slices.Contains(known.names, name.Name) {
			known.names = append(known.names, name.Name)
		}
	}
}
