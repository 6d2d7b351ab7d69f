package data

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/parquet-go/parquet-go"

	"plimsoll/internal/units"
)

var parquetInfo = Info{
	Name:    "parquet:PATH",
	Summary: "rows with text, with text and label, with prompt and completion, or with messages; a file, or the .parquet files of a folder",
	Text:    true,
	Source:  "files of the user",
	Open: func(path string, o Options) (Dataset, error) {
		files, err := filesOf(path, ".parquet")
		if err != nil {
			return nil, fmt.Errorf("data set parquet: %w", err)
		}
		return openRecords("parquet:"+path, o, rowsOf(files))
	},
}

// rowsOf returns the rows of files. A file that cannot be read ends them with its error.
func rowsOf(files []string) iter.Seq[row] {
	return func(yield func(row) bool) {
		for _, file := range files {
			goOn := true
			if err := readParquet(file, func(r row) bool { goOn = yield(r); return goOn }); err != nil && goOn {
				goOn = yield(row{place: file, err: err})
			}
			if !goOn {
				return
			}
		}
	}
}

// readParquet yields the rows of a file until yield returns false. Errors: ErrUnreadable, ErrCorrupt, ErrTooLarge.
func readParquet(path string, yield func(row) bool) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	calling := false
	defer func() { // the library panics at some files that are damaged
		if p := recover(); p != nil {
			if calling {
				panic(p)
			}
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	all, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	schema, err := columnsOf(all)
	if err != nil {
		return err
	}
	rows := parquet.NewGenericReader[any](all, schema)
	defer func() { _ = rows.Close() }()
	buffer := make([]any, 1)
	for number := 1; ; number++ {
		buffer[0] = nil
		n, err := rows.Read(buffer)
		if n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("%w: row %d: %w", ErrCorrupt, number, err)
			}
			return nil
		}
		fields, _ := buffer[0].(map[string]any)
		calling = true
		if !yield(row{place: fmt.Sprintf("%s, row %d", path, number), fields: fields}) {
			return nil
		}
		calling = false
	}
}

// columnsOf is the part of a file's schema that records have. Errors: ErrCorrupt for none, ErrTooLarge.
func columnsOf(f *parquet.File) (*parquet.Schema, error) {
	group := parquet.Group{}
	var names []string
	for _, field := range f.Schema().Fields() {
		names = append(names, field.Name())
		switch field.Name() {
		case "text", "label", "prompt", "completion", "messages":
			group[field.Name()] = field
		}
	}
	if len(group) == 0 {
		return nil, fmt.Errorf("%w: its columns are %v: want text, or prompt and completion, or messages", ErrCorrupt, names)
	}
	size := int64(0)
	for _, g := range f.Metadata().RowGroups {
		for _, c := range g.Columns {
			if _, wanted := group[c.MetaData.PathInSchema[0]]; wanted {
				size += c.MetaData.TotalUncompressedSize
			}
		}
	}
	if size < 0 || size > mostText {
		return nil, fmt.Errorf("%w: its text has %s, and a data set at most %s", ErrTooLarge, units.Bytes(size), units.Bytes(mostText))
	}
	return parquet.NewSchema("records", group), nil
}
