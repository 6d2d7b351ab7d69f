package tokenizer

import (
	"maps"
	"slices"

	"plimsoll/internal/fields"
)

// unknown refuses the fields of an object that nobody has read; null is no value.
func unknown(o *fields.Object) error {
	if o.Err() != nil {
		return o.Err()
	}
	rest := o.Rest()
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		if string(rest[name]) != "null" {
			return &fields.Error{Field: name, Value: brief(rest[name]), Reason: "is not supported"}
		}
	}
	return nil
}

// brief shortens a value for a message.
func brief(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}
