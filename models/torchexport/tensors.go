package torchexport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"plimsoll/models/importer"
)

// stored says where an archive has a tensor.
type stored struct {
	Name   string `json:"-"`
	Path   string `json:"path_name"`
	Param  bool   `json:"is_param"`
	Pickle bool   `json:"use_pickle"`
	Meta   meta   `json:"tensor_meta"`

	tensor *importer.Tensor
}

// tensors are the tensors of a folder of an archive, in the order of its description.
type tensors struct {
	byName map[string]*stored
	all    []*stored
}

// UnmarshalJSON implements json.Unmarshaler. Of names for one tensor, such as an embedding's that the classifier shares, the first is its
// name, as model.named_parameters() has it.
func (t *tensors) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("want an object of tensors, have %.100s", b)
	}
	t.byName = map[string]*stored{}
	same := map[string]*stored{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		s := &stored{}
		if err := d.Decode(s); err != nil {
			return err
		}
		s.Name, _ = key.(string) // which keys are
		switch {
		case len(t.byName) == importer.MostTensors:
			return fmt.Errorf("it has more than %d tensors", importer.MostTensors)
		case t.byName[s.Name] != nil:
			return fmt.Errorf("tensor %.100q is there twice", s.Name)
		}
		identity := fmt.Sprint(s.Path, s.Meta.key())
		if first := same[identity]; first != nil && s.Param && first.Param {
			t.byName[s.Name] = first
			continue
		}
		same[identity], t.byName[s.Name] = s, s
		t.all = append(t.all, s)
	}
	return nil
}

// tensors reads the description of a folder, and finds the bytes of its tensors.
func (a *archive) tensors(folder, description string) (*tensors, error) {
	var config struct{ Config tensors }
	if err := a.decode(folder+description, &config); err != nil {
		return nil, err
	}
	for _, s := range config.Config.all {
		t, err := a.tensor(folder, s)
		if err != nil {
			return nil, fmt.Errorf("tensor %.100q: %w", s.Name, err)
		}
		s.tensor = t
	}
	for _, s := range config.Config.all {
		s.tensor.Trains, s.tensor.Frozen = s.trains(), s.Param && !s.Meta.Requires
	}
	config.Config.refuseOverlaps()
	return &config.Config, nil
}

// refuseOverlaps refuses every use of a tensor that shares bytes of its file with another one, if one of the two trains. Here they would be
// two parameters.
func (t *tensors) refuseOverlaps() {
	files := map[string][]*stored{}
	for _, s := range t.all {
		if len(s.tensor.Raw) > 0 {
			files[s.Path] = append(files[s.Path], s)
		}
	}
	for _, all := range files {
		slices.SortStableFunc(all, func(a, b *stored) int { return cmp.Compare(a.from(), b.from()) })
		furthest, trained := all[0], (*stored)(nil) // those that end last
		for i, s := range all {
			with := trained
			if s.trains() {
				with = furthest
			}
			if i > 0 && with != nil && with.to() > s.from() {
				s.tensor.Err = fmt.Errorf("tensor %q shares memory with %q in another layout, which is not supported: clone() it before the export",
					s.Name, with.Name)
			}
			if s.to() > furthest.to() {
				furthest = s
			}
			if s.trains() && (trained == nil || s.to() > trained.to()) {
				trained = s
			}
		}
	}
}

// trains reports whether a tensor is a parameter that is not frozen.
func (s *stored) trains() bool { return s.Param && s.Meta.Requires }

// from is where the bytes of a tensor begin in its file.
func (s *stored) from() int64 { return *s.Meta.Offset.Int * s.tensor.DType.Size() }

// to is where the bytes of a tensor end in its file.
func (s *stored) to() int64 {
	last := *s.Meta.Offset.Int
	for i, d := range s.tensor.Dims {
		last += (d - 1) * *s.Meta.Strides[i].Int
	}
	return (last + 1) * s.tensor.DType.Size()
}

// dtypes are the types that a meta can have, by PyTorch's numbers.
var dtypes = map[int64]importer.DType{
	1: 2, 2: 3, 3: 5, 4: importer.Int32, 5: importer.Int64, 6: 10, 7: importer.Float32, 8: importer.Float64, 12: importer.Bool, 13: 16,
}

// strided is the layout of tensors that are neither sparse nor quantized.
const strided = 7

// tensor returns a tensor of the archive. One that cannot be had, such as a pickle, is no error of the archive's: whoever reads it is
// refused.
func (a *archive) tensor(folder string, s *stored) (*importer.Tensor, error) {
	t := &importer.Tensor{Name: s.Name, DType: dtypes[s.Meta.DType]}
	for _, d := range s.Meta.Sizes {
		if d.Int == nil || *d.Int < 0 || len(t.Dims) == importer.MostAxes {
			return nil, fmt.Errorf("its sizes are no list of at most %d numbers", importer.MostAxes)
		}
		t.Dims = append(t.Dims, *d.Int)
	}
	n, err := t.Elements()
	switch {
	case err != nil:
		return nil, err
	case s.Pickle:
		t.Err = fmt.Errorf("tensor %q is a pickle, which is not read because that runs code: make it a plain tensor of the CPU before you export", s.Name)
	case t.DType.Size() == 0 || s.Meta.Layout != strided:
		t.Err = fmt.Errorf("tensor %q is of dtype %d and layout %d of PyTorch, and only plain float32 (7), float64, int32, int64 and bool are read",
			s.Name, s.Meta.DType, s.Meta.Layout)
	default:
		var raw []byte
		if raw, err = a.read(folder+s.Path, math.MaxInt64); err == nil {
			t.Raw, err = a.elements(raw, &s.Meta, t, n)
		}
	}
	return t, err
}

// elements returns the bytes of a tensor's elements in the order of its axes: those of its file, or a copy of what strides choose.
func (a *archive) elements(raw []byte, m *meta, t *importer.Tensor, n int64) ([]byte, error) {
	if m.Offset.Int == nil || *m.Offset.Int < 0 || len(m.Strides) != len(t.Dims) {
		return nil, fmt.Errorf("it has no offset, or %d strides for %d axes", len(m.Strides), len(t.Dims))
	}
	size := t.DType.Size()
	have := int64(len(raw)) / size
	last, dense := min(*m.Offset.Int, have), true
	strides, next := make([]int64, len(t.Dims)), int64(1)
	for i := len(t.Dims) - 1; i >= 0; i-- {
		s := m.Strides[i].Int
		if s == nil || *s < 0 || *s > importer.MostBytes {
			return nil, fmt.Errorf("its strides are no numbers from 0")
		}
		strides[i] = *s
		dense = dense && (*s == next || t.Dims[i] == 1)
		next *= t.Dims[i]
		last += *s * max(t.Dims[i]-1, 0)
		if last > have {
			break
		}
	}
	switch {
	case n == 0:
		return nil, nil
	case int64(len(raw))%size != 0 || last >= have:
		return nil, fmt.Errorf("its file has %d bytes, and sizes %v, strides and offset %d need more", len(raw), t.Dims, *m.Offset.Int)
	case dense:
		return raw[*m.Offset.Int*size:][: n*size : n*size], nil
	case n > have: // strides of 0 would make more of it than the file has
		return nil, fmt.Errorf("it is expanded, which is not read: call contiguous() before you export")
	}
	if err := a.grow(n * size); err != nil {
		return nil, err
	}
	return gathered(raw[*m.Offset.Int*size:], t.Dims, strides, size, n), nil
}

// gathered copies n elements of the sizes and strides.
func gathered(raw []byte, dims, strides []int64, size, n int64) []byte {
	all, indices, at := make([]byte, 0, n*size), make([]int64, len(dims)), int64(0)
	for range n {
		all = append(all, raw[at*size:(at+1)*size]...)
		for i := len(dims) - 1; i >= 0; i-- {
			at += strides[i]
			if indices[i]++; indices[i] < dims[i] {
				break
			}
			at -= strides[i] * dims[i]
			indices[i] = 0
		}
	}
	return all
}
