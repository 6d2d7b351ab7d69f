package onnx

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of onnx.proto (ONNX 1.19, Apache-2.0, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), as far as a
// graph to train has them. A message keeps parts of the file's bytes: the elements of tensors are not copied.

// What a file may have: a graph with more is none that somebody has trained, and takes more memory than its file.
const (
	mostBytes      = 2<<30 - 1 // a message of protobuf
	mostNodes      = 1 << 14
	mostNames      = 1 << 18 // inputs and outputs of all nodes
	mostAttributes = 1 << 19
	mostTensors    = 1 << 17
	mostAxes       = 8
	mostName       = 4 << 10 // bytes
	mostElements   = 1 << 12 // of a constant that is computed with, and of an attribute
)

// graph is a GraphProto.
type graph struct {
	nodes           []*node
	tensors         map[string]*tensor // its initializers
	inputs, outputs []port

	names, attributes int // so far
}

// port is a ValueInfoProto: an input or output of the graph. An axis whose extent is open is 0.
type port struct {
	name  string
	dtype int64
	shape []int64
}

// node is a NodeProto.
type node struct {
	name, op, domain string
	in, out          []string
	attributes       map[string]*attribute
}

// attribute is an AttributeProto.
type attribute struct {
	i      int64
	f      float32
	s      string
	ints   []int64
	tensor *tensor
	other  bool // it is of a type that no op here has
}

// tensor is a TensorProto. Its elements are in raw, or in list, as protobuf has a packed field.
type tensor struct {
	name      string
	dims      []int64
	dtype     int64
	raw, list []byte
	listType  protowire.Number // the field's number
	external  bool
}

// Types of elements.
const (
	typeFloat, typeInt32, typeInt64, typeBool, typeDouble = 1, 6, 7, 9, 11
)

// typeNames are those that messages name.
var typeNames = map[int64]string{
	typeFloat: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", typeInt32: "int32", typeInt64: "int64", 8: "string", typeBool: "bool",
	10: "float16", typeDouble: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}

func typeName(t int64) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", t)
}

// field is a field of a message: a number, or bytes.
type field struct {
	number protowire.Number
	wire   protowire.Type
	value  uint64
	bytes  []byte
}

// text returns a field's bytes as a name.
func (f field) text() (string, error) {
	if f.wire != protowire.BytesType || len(f.bytes) > mostName {
		return "", fmt.Errorf("a name of %d bytes (field %d of wire type %d): want at most %d", len(f.bytes), f.number, f.wire, mostName)
	}
	return string(f.bytes), nil
}

// fields calls read for each field of a message.
func fields(message []byte, read func(f field) error) error {
	for len(message) > 0 {
		f := field{}
		var n int
		if f.number, f.wire, n = protowire.ConsumeTag(message); n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		switch f.wire {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(message)
			f.value = uint64(v)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(f.number, f.wire, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := read(f); err != nil {
			return err
		}
	}
	return nil
}

// readModel reads a ModelProto.
func readModel(message []byte) (*graph, error) {
	g := &graph{tensors: map[string]*tensor{}}
	seen, functions := false, 0
	err := fields(message, func(f field) error {
		switch {
		case f.number == 7 && f.wire == protowire.BytesType:
			seen = true
			return g.read(f.bytes)
		case f.number == 25:
			functions++
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !seen || len(g.nodes) == 0:
		return nil, fmt.Errorf("it has no graph")
	case functions > 0:
		return nil, fmt.Errorf("it has %d functions of its own: export it without, as torch.onnx.export(..., export_modules_as_functions=False) does", functions)
	}
	return g, nil
}

func (g *graph) read(message []byte) error {
	return fields(message, func(f field) error {
		if f.wire != protowire.BytesType {
			return nil
		}
		switch f.number {
		case 1:
			if len(g.nodes) == mostNodes {
				return fmt.Errorf("it has more than %d nodes", mostNodes)
			}
			return g.readNode(f.bytes)
		case 5:
			t, err := readTensor(f.bytes)
			if err == nil && len(g.tensors) == mostTensors {
				err = fmt.Errorf("it has more than %d initializers", mostTensors)
			}
			if err == nil {
				g.tensors[t.name] = t
			}
			return err
		case 11:
			return readPort(f.bytes, &g.inputs)
		case 12:
			return readPort(f.bytes, &g.outputs)
		case 15:
			return fmt.Errorf("it has sparse initializers, which are not read")
		}
		return nil
	})
}

func (g *graph) readNode(message []byte) error {
	n := &node{attributes: map[string]*attribute{}}
	g.nodes = append(g.nodes, n)
	return fields(message, func(f field) error {
		if f.number < 1 || f.number > 7 || f.number == 6 {
			return nil
		}
		if f.number == 5 {
			if g.attributes++; g.attributes > mostAttributes {
				return fmt.Errorf("its nodes have more than %d attributes", mostAttributes)
			}
			return n.readAttribute(f)
		}
		text, err := f.text()
		switch f.number {
		case 1:
			n.in = append(n.in, text)
		case 2:
			n.out = append(n.out, text)
		case 3:
			n.name = text
		case 4:
			n.op = text
		case 7:
			n.domain = text
		}
		if g.names++; err == nil && g.names > mostNames {
			err = fmt.Errorf("its nodes have more than %d inputs and outputs", mostNames)
		}
		return err
	})
}

func (n *node) readAttribute(message field) error {
	a, name := &attribute{}, ""
	err := fields(message.bytes, func(f field) (err error) {
		switch f.number {
		case 1:
			name, err = f.text()
		case 2:
			a.f = math.Float32frombits(uint32(f.value))
		case 3:
			a.i = int64(f.value)
		case 4:
			a.s, err = f.text()
		case 5:
			a.tensor, err = readTensor(f.bytes)
		case 8:
			a.ints, err = appendInts(a.ints, f, mostElements)
		case 6, 7, 9, 10, 11, 14, 15, 21, 22, 23:
			a.other = true
		}
		return err
	})
	n.attributes[name] = a
	return err
}

// appendInts appends the numbers of a repeated field, packed or not.
func appendInts(ints []int64, f field, most int) ([]int64, error) {
	if f.wire == protowire.VarintType {
		ints = append(ints, int64(f.value))
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if b = b[n:]; len(ints) == most {
			break
		}
		ints = append(ints, int64(v))
	}
	if len(ints) >= most {
		return nil, fmt.Errorf("a list (field %d) has %d numbers or more", f.number, most)
	}
	return ints, nil
}

func readTensor(message []byte) (*tensor, error) {
	t := &tensor{}
	err := fields(message, func(f field) (err error) {
		switch f.number {
		case 1:
			t.dims, err = appendInts(t.dims, f, mostAxes+1)
		case 2:
			t.dtype = int64(f.value)
		case 8:
			t.name, err = f.text()
		case 9:
			t.raw = f.bytes
		case 4, 5, 7, 10:
			err = t.readList(f)
		case 13, 14:
			t.external = t.external || f.number == 13 || f.value != 0
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.name, err)
	}
	return t, nil
}

// readList reads elements that a field has, packed, all at once.
func (t *tensor) readList(f field) error {
	if f.wire != protowire.BytesType || t.list != nil {
		return fmt.Errorf("its elements (field %d) are not packed in one list", f.number)
	}
	t.list, t.listType = f.bytes, f.number
	return nil
}

func readPort(message []byte, to *[]port) error {
	if len(*to) == mostTensors {
		return fmt.Errorf("it has more than %d inputs or outputs", mostTensors)
	}
	p := port{}
	err := fields(message, func(f field) (err error) {
		switch f.number {
		case 1:
			p.name, err = f.text()
		case 2:
			err = p.readType(f.bytes)
		}
		return err
	})
	*to = append(*to, p)
	return err
}

// readType reads a TypeProto: a tensor's.
func (p *port) readType(message []byte) error {
	return fields(message, func(f field) error {
		if f.number != 1 {
			return fmt.Errorf("%q is no tensor", p.name)
		}
		return fields(f.bytes, func(f field) error {
			switch f.number {
			case 1:
				p.dtype = int64(f.value)
			case 2:
				return fields(f.bytes, p.readDim)
			}
			return nil
		})
	})
}

func (p *port) readDim(dim field) error {
	if len(p.shape) == mostAxes {
		return fmt.Errorf("%q has more than %d axes", p.name, mostAxes)
	}
	extent := int64(0)
	err := fields(dim.bytes, func(f field) error {
		if f.number == 1 {
			extent = int64(f.value)
		}
		return nil
	})
	p.shape = append(p.shape, extent)
	return err
}

// check refuses a tensor whose bytes are not in the file, or not as many as its shape and type say.
func (t *tensor) check() error {
	if t.external {
		return fmt.Errorf("tensor %q is in a file of its own (external data): export all into one file, as torch.onnx.export(..., external_data=False) does below 2 GiB", t.name)
	}
	n, err := t.elements()
	if err != nil {
		return err
	}
	size := map[int64]int64{typeFloat: 4, typeInt32: 4, typeInt64: 8, typeBool: 1, typeDouble: 8}[t.dtype]
	switch {
	case size == 0:
		return fmt.Errorf("tensor %q is of %s, which is not read: want float32", t.name, typeName(t.dtype))
	case t.list == nil && int64(len(t.raw)) != n*size:
		return fmt.Errorf("tensor %q of shape %v has %d bytes, want %d", t.name, t.dims, len(t.raw), n*size)
	case t.list != nil && t.listType == 4 && (t.dtype != typeFloat || int64(len(t.list)) != 4*n):
		return fmt.Errorf("tensor %q of shape %v has %d bytes of floats, want %d", t.name, t.dims, len(t.list), 4*n)
	}
	return nil
}

// elements returns how many a tensor has.
func (t *tensor) elements() (int64, error) {
	n := int64(1)
	for _, d := range t.dims {
		if d < 0 || d > mostBytes || n*d > mostBytes {
			return 0, fmt.Errorf("tensor %q has a shape of %v", t.name, t.dims)
		}
		n *= d
	}
	return n, nil
}

// float returns element i of a tensor of float32 that was checked.
func (t *tensor) float(i int) float32 {
	b := t.raw
	if t.list != nil {
		b = t.list
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

// numbers returns the elements of a small tensor that was checked.
func (t *tensor) numbers() ([]float64, error) {
	n, err := t.elements()
	if err != nil || n > mostElements {
		return nil, fmt.Errorf("tensor %q of shape %v has more than %d elements, too many for a constant that is computed with", t.name, t.dims, mostElements)
	}
	if t.list != nil && t.listType != 4 {
		return t.listed(int(n))
	}
	all := make([]float64, n)
	for i := range all {
		all[i] = t.number(i)
	}
	return all, nil
}

// number returns element i of a tensor that was checked and whose elements are no list of integers.
func (t *tensor) number(i int) float64 {
	switch t.dtype {
	case typeFloat:
		return float64(t.float(i))
	case typeInt32:
		return float64(int32(binary.LittleEndian.Uint32(t.raw[4*i:])))
	case typeInt64:
		return float64(int64(binary.LittleEndian.Uint64(t.raw[8*i:])))
	case typeDouble:
		return math.Float64frombits(binary.LittleEndian.Uint64(t.raw[8*i:]))
	}
	return float64(t.raw[i]) // typeBool
}

// listed returns the elements of a packed list of integers.
func (t *tensor) listed(n int) ([]float64, error) {
	ints, err := appendInts(nil, field{number: t.listType, wire: protowire.BytesType, bytes: t.list}, mostElements+1)
	if err != nil || len(ints) != n || t.listType == 10 {
		return nil, fmt.Errorf("tensor %q of shape %v has %d numbers in a list (field %d): want %d", t.name, t.dims, len(ints), t.listType, n)
	}
	all := make([]float64, n)
	for i, v := range ints {
		all[i] = float64(v)
	}
	return all, nil
}
