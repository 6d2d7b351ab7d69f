package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode"

	"google.golang.org/protobuf/encoding/protowire"

	"plimsoll/models/importer"
)

// The messages of onnx.proto (ONNX 1.19, Apache-2.0, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), as far as a
// graph to train has them. A message keeps parts of the file's bytes: the elements of tensors are not copied.

// The limits of a file: a graph with more is none that somebody has trained, and takes more memory than its file.
const (
	mostBytes      = importer.MostBytes // a message of protobuf
	mostNames      = 1 << 18            // inputs and outputs of all nodes
	mostAttributes = 1 << 19
	mostName       = 4 << 10 // bytes
)

// graph is a GraphProto.
type graph struct {
	importer.Graph

	outside           []outside
	names, attributes int // so far
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
	g := &graph{Graph: importer.Graph{Tensors: map[string]*importer.Tensor{}, Advice: advice}}
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
	case !seen || len(g.Nodes) == 0:
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
			if len(g.Nodes) == importer.MostNodes {
				return fmt.Errorf("it has more than %d nodes", importer.MostNodes)
			}
			return g.readNode(f.bytes)
		case 5:
			t, at, err := readTensor(f.bytes)
			if err == nil && len(g.Tensors) == importer.MostTensors {
				err = fmt.Errorf("it has more than %d initializers", importer.MostTensors)
			}
			if err == nil {
				g.Tensors[t.Name] = t
			}
			if at != nil {
				g.outside = append(g.outside, *at)
			}
			return err
		case 11:
			return readPort(f.bytes, &g.Inputs)
		case 12:
			return readPort(f.bytes, &g.Outputs)
		case 15:
			return fmt.Errorf("it has sparse initializers, which are not read")
		}
		return nil
	})
}

func (g *graph) readNode(message []byte) error {
	n, domain := &importer.Node{Attributes: map[string]*importer.Attribute{}}, ""
	g.Nodes = append(g.Nodes, n)
	err := fields(message, func(f field) error {
		if f.number < 1 || f.number > 7 || f.number == 6 {
			return nil
		}
		if f.number == 5 {
			if g.attributes++; g.attributes > mostAttributes {
				return fmt.Errorf("its nodes have more than %d attributes", mostAttributes)
			}
			return readAttribute(n, f)
		}
		text, err := f.text()
		switch f.number {
		case 1:
			n.In = append(n.In, text)
		case 2:
			n.Out = append(n.Out, text)
		case 3:
			n.Name = text
		case 4:
			n.Op = text
		case 7:
			domain = text
		}
		if g.names++; err == nil && g.names > mostNames {
			err = fmt.Errorf("its nodes have more than %d inputs and outputs", mostNames)
		}
		return err
	})
	n.Label = fmt.Sprintf("node %q (%s)", title(n), n.Op)
	if domain != "" && domain != "ai.onnx" || n.Op != "" && unicode.IsLower(rune(n.Op[0])) {
		n.Err = fmt.Errorf("the op is not supported")
	}
	return err
}

// title is a node's name, or that of its output.
func title(n *importer.Node) string {
	if n.Name == "" && len(n.Out) > 0 {
		return n.Out[0]
	}
	return n.Name
}

func readAttribute(n *importer.Node, message field) error {
	a, name := &importer.Attribute{}, ""
	err := fields(message.bytes, func(f field) (err error) {
		switch f.number {
		case 1:
			name, err = f.text()
		case 2:
			a.F = math.Float32frombits(uint32(f.value))
		case 3:
			a.I = int64(f.value)
		case 4:
			a.S, err = f.text()
		case 5:
			a.Tensor, _, err = readTensor(f.bytes)
		case 8:
			a.Ints, err = appendInts(a.Ints, f, importer.MostElements)
		case 6, 7, 9, 10, 11, 14, 15, 21, 22, 23:
			a.Other = true
		}
		return err
	})
	n.Attributes[name] = a
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

// outside is where another file has the elements of a tensor (onnx.proto, TensorProto.external_data).
type outside struct {
	tensor   *importer.Tensor
	location string
	offset   int64
	length   int64 // 0: to the end of the file
}

// read takes a StringStringEntryProto of the field.
func (o *outside) read(entry []byte) error {
	var key, value string
	err := fields(entry, func(f field) (err error) {
		switch f.number {
		case 1:
			key, err = f.text()
		case 2:
			value, err = f.text()
		}
		return err
	})
	if err != nil {
		return err
	}
	switch key {
	case "location":
		o.location = value
	case "offset", "length":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("external data has the %s %q: want a number of bytes", key, value)
		}
		if key == "offset" {
			o.offset = n
		} else {
			o.length = n
		}
	}
	return nil
}

// readTensor reads a TensorProto, and where its elements are if that is another file.
func readTensor(message []byte) (*importer.Tensor, *outside, error) {
	t := &importer.Tensor{}
	var list *field // elements that a field has, packed
	at, external := outside{tensor: t}, false
	err := fields(message, func(f field) (err error) {
		switch f.number {
		case 1:
			t.Dims, err = appendInts(t.Dims, f, importer.MostAxes+1)
		case 2:
			t.DType = importer.DType(f.value)
		case 8:
			t.Name, err = f.text()
		case 9:
			t.Raw = f.bytes
		case 4, 5, 7, 10:
			if f.wire != protowire.BytesType || list != nil {
				return fmt.Errorf("its elements (field %d) are not packed in one list", f.number)
			}
			list = &f
		case 13:
			external, err = true, at.read(f.bytes)
		case 14:
			external = external || f.value != 0
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if list != nil {
		t.Raw, t.Err = list.elements(t)
	}
	if !external {
		return t, nil, nil
	}
	t.Err = fmt.Errorf("tensor %q is in a file of its own (external data), as only initializers may be", t.Name)
	return t, &at, nil
}

// elements returns the bytes of a tensor whose elements are a packed list: of floats they are the list's, integers are widened.
func (f field) elements(t *importer.Tensor) ([]byte, error) {
	integers := t.DType == importer.Int32 || t.DType == importer.Int64 || t.DType == importer.Bool
	switch {
	case f.number == 4 && t.DType == importer.Float32:
		return f.bytes, nil
	case f.number != 5 && f.number != 7 || !integers:
		return nil, fmt.Errorf("tensor %q of %v has its elements in a list of another type (field %d)", t.Name, t.DType, f.number)
	}
	ints, err := appendInts(nil, f, importer.MostElements+1)
	if err != nil {
		return nil, fmt.Errorf("tensor %q of shape %v: %w", t.Name, t.Dims, err)
	}
	var raw []byte
	for _, v := range ints {
		raw, _ = binary.Append(raw, binary.LittleEndian, v) // of int64, which has no error
	}
	t.DType = importer.Int64
	return raw, nil
}

func readPort(message []byte, to *[]importer.Port) error {
	if len(*to) == importer.MostTensors {
		return fmt.Errorf("it has more than %d inputs or outputs", importer.MostTensors)
	}
	p := importer.Port{}
	err := fields(message, func(f field) (err error) {
		switch f.number {
		case 1:
			p.Name, err = f.text()
		case 2:
			err = readType(&p, f.bytes)
		}
		return err
	})
	*to = append(*to, p)
	return err
}

// readType reads a TypeProto: a tensor's.
func readType(p *importer.Port, message []byte) error {
	return fields(message, func(f field) error {
		if f.number != 1 {
			return fmt.Errorf("%q is no tensor", p.Name)
		}
		return fields(f.bytes, func(f field) error {
			switch f.number {
			case 1:
				p.DType = importer.DType(f.value)
			case 2:
				return fields(f.bytes, func(dim field) error { return readDim(p, dim) })
			}
			return nil
		})
	})
}

func readDim(p *importer.Port, dim field) error {
	if len(p.Shape) == importer.MostAxes {
		return fmt.Errorf("%q has more than %d axes", p.Name, importer.MostAxes)
	}
	extent := int64(0)
	err := fields(dim.bytes, func(f field) error {
		if f.number == 1 {
			extent = int64(f.value)
		}
		return nil
	})
	p.Shape = append(p.Shape, extent)
	return err
}
