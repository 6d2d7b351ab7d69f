package schedule

import (
	"strconv"
	"strings"
)

// String returns the text form, one token per op: "Fck1 F2 Fall3 B3".
func (s Sequence) String() string {
	var b []byte
	for i, o := range s {
		if i > 0 {
			b = append(b, ' ')
		}
		b = o.append(b)
	}
	return string(b)
}

// Parse reads the text form; tokens are separated by white space. Errors: *ParseError.
func Parse(text string) (Sequence, error) {
	tokens := strings.Fields(text)
	seq := make(Sequence, len(tokens))
	for i, token := range tokens {
		op, reason := parseOp(token)
		if reason != "" {
			return nil, &ParseError{i, token, reason}
		}
		seq[i] = op
	}
	return seq, nil
}

// parseOp splits a token into letters and layer.
func parseOp(token string) (op Op, reason string) {
	digits := strings.TrimLeftFunc(token, func(r rune) bool { return r < '0' || r > '9' })
	letters := strings.TrimSuffix(token, digits)
	layer, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case digits == "":
		return Op{}, "has no layer"
	case err != nil || layer < 1 || layer > MaxLayer:
		return Op{}, "has a layer that is not a number from 1"
	}
	if k, ok := KindOf(letters); ok && !k.OfState() {
		return Op{k, int(layer)}, ""
	}
	return Op{}, "is none of Fall, Fck, F, B, O, P with a layer"
}
