package torchexport

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"
)

// Limits of an archive: one with more is no model that somebody has trained, and takes more memory than its file.
const (
	mostEntries  = 1 << 18
	mostInflated = 256 << 20 // bytes of all compressed entries; torch.export.save compresses none
	mostJSON     = 64 << 20  // bytes of a description
)

// archive is a zip file with one folder, whose entries are known by their names in it.
type archive struct {
	bytes    []byte
	entries  map[string]*zip.File
	inflated int64 // bytes so far
	data     map[string][]byte
}

// openArchive lists the entries. It refuses names that lead out of the folder, and names that are there twice.
func openArchive(b []byte) (*archive, error) {
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("it is no zip archive, as torch.export.save writes: %w", err)
	}
	if len(r.File) > mostEntries {
		return nil, fmt.Errorf("it has %d entries, more than %d", len(r.File), mostEntries)
	}
	a := &archive{bytes: b, entries: map[string]*zip.File{}, data: map[string][]byte{}}
	top := ""
	for _, f := range r.File {
		folder, name, inside := strings.Cut(f.Name, "/")
		switch {
		case !fs.ValidPath(strings.TrimSuffix(f.Name, "/")) || strings.Contains(f.Name, `\`):
			return nil, fmt.Errorf("entry %.100q: the name is no path inside the archive", f.Name)
		case !inside || top != "" && folder != top:
			return nil, fmt.Errorf("entry %.100q: want all entries in one folder, as torch.export.save writes them", f.Name)
		case a.entries[name] != nil:
			return nil, fmt.Errorf("entry %.100q is there twice", f.Name)
		}
		top = folder
		a.entries[name] = f
	}
	return a, nil
}

// read returns the bytes of an entry of at most so many, which it reads and checks once.
func (a *archive) read(name string, most int64) ([]byte, error) {
	if b, done := a.data[name]; done {
		return b, nil
	}
	b, err := a.load(name, most)
	if err == nil {
		a.data[name] = b
	}
	return b, err
}

// load returns the bytes of an entry. Those of a stored one are the archive's own.
func (a *archive) load(name string, most int64) ([]byte, error) {
	f := a.entries[name]
	if f == nil {
		return nil, fmt.Errorf("it has no entry %.100q: write it with torch.export.save", name)
	}
	if f.UncompressedSize64 > uint64(most) {
		return nil, fmt.Errorf("entry %.100q has %d bytes, more than %d", name, f.UncompressedSize64, most)
	}
	if f.Method == zip.Store {
		return a.stored(f, name)
	}
	size := int64(f.UncompressedSize64)
	if err := a.grow(size); err != nil {
		return nil, err
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("entry %.100q: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	var all bytes.Buffer // which grows with what is really there
	if _, err := io.Copy(&all, io.LimitReader(r, size+1)); err != nil {
		return nil, fmt.Errorf("entry %.100q: %w", name, err)
	}
	return all.Bytes(), nil
}

// grow counts bytes that are copied out of the archive.
func (a *archive) grow(bytes int64) error {
	if bytes > mostInflated || a.inflated+bytes > mostInflated+int64(len(a.bytes)) {
		return fmt.Errorf("its entries that are compressed or not contiguous have more than %d bytes: store them, after contiguous()", mostInflated)
	}
	a.inflated += bytes
	return nil
}

// stored returns the bytes of an entry that is not compressed.
func (a *archive) stored(f *zip.File, name string) ([]byte, error) {
	at, err := f.DataOffset()
	size := f.UncompressedSize64
	if err != nil || size != f.CompressedSize64 || at < 0 || uint64(at) > uint64(len(a.bytes)) || size > uint64(len(a.bytes))-uint64(at) {
		return nil, fmt.Errorf("entry %.100q: its %d bytes are not in the archive", name, size)
	}
	b := a.bytes[at : uint64(at)+size : uint64(at)+size]
	if crc32.ChecksumIEEE(b) != f.CRC32 {
		return nil, fmt.Errorf("entry %.100q: its checksum is wrong: the archive is damaged, export it again", name)
	}
	return b, nil
}

// text returns a short entry, such as a version.
func (a *archive) text(name string) (string, error) {
	b, err := a.read(name, 100)
	return strings.TrimSpace(string(b)), err
}

// decode reads a description.
func (a *archive) decode(name string, to any) error {
	b, err := a.read(name, mostJSON)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("entry %q: %w", name, err)
	}
	return nil
}
