package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
)

// frame holds the tokens that stand before and behind a text that is a sample by itself, as with add_special_tokens=True.
type frame struct{ before, behind []int32 }

// readFrame reads post_processor.
func readFrame(o *fields.Object) (f frame, err error) {
	steps, err := flatten(o, "post_processor", "processors")
	if err != nil {
		return f, err
	}
	for _, s := range steps {
		switch kind := s.String("type", ""); kind {
		case "ByteLevel": // which changes where tokens are, not which
			continue
		case "BertProcessing", "RobertaProcessing":
			f.before, f.behind = pairOfFrame(s, "cls"), pairOfFrame(s, "sep")
			s.Raw("trim_offsets") // where tokens are
			s.Raw("add_prefix_space")
		case "TemplateProcessing":
			f, err = readTemplate(s)
			s.Raw("pair") // of two texts
		default:
			s.Refuse("type", strconv.Quote(kind), "is none of BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing")
		}
		if err == nil {
			err = unknown(s)
		}
		if err != nil {
			return f, fmt.Errorf("post_processor: %w", err)
		}
	}
	return f, nil
}

// pairOfFrame reads a token and its number.
func pairOfFrame(o *fields.Object, name string) []int32 {
	var text string
	var n int32
	if all := o.Array(name); len(all) != 2 || json.Unmarshal(all[0], &text) != nil || json.Unmarshal(all[1], &n) != nil || n < 0 {
		o.Refuse(name, fmt.Sprintf("an array of %d", len(all)), "is no token and its number")
	}
	return []int32{n}
}

// part is one of a template: a special token, or the text.
type part struct {
	SpecialToken *struct {
		ID   string `json:"id"`
		Type int    `json:"type_id"`
	}
	Sequence *struct {
		ID   string `json:"id"`
		Type int    `json:"type_id"`
	}
}

// readTemplate reads the template of a single text.
func readTemplate(o *fields.Object) (f frame, err error) {
	tokens := o.Object("special_tokens")
	if o.Err() != nil {
		return f, o.Err()
	}
	numbers := tokens.Rest()
	texts := 0
	for i, raw := range o.Array("single") {
		var p part
		var special struct {
			IDs []int32 `json:"ids"`
		}
		err := json.Unmarshal(raw, &p)
		switch {
		case err != nil || (p.SpecialToken == nil) == (p.Sequence == nil):
			return f, fmt.Errorf("single[%d] is %s, want a SpecialToken or a Sequence", i, brief(raw))
		case p.Sequence != nil && (p.Sequence.ID != "A" || p.Sequence.Type != 0), p.SpecialToken != nil && p.SpecialToken.Type != 0:
			return f, fmt.Errorf("single[%d] is %s, which has another type than 0: that is not supported", i, brief(raw))
		case p.Sequence != nil:
			texts++
			continue
		case json.Unmarshal(numbers[p.SpecialToken.ID], &special) != nil || slices.ContainsFunc(special.IDs, func(n int32) bool { return n < 0 }):
			return f, fmt.Errorf("single[%d] is %s, which special_tokens has no numbers for", i, brief(raw))
		case texts == 0:
			f.before = append(f.before, special.IDs...)
		default:
			f.behind = append(f.behind, special.IDs...)
		}
	}
	if texts != 1 {
		return f, fmt.Errorf("single has the text %d times, want once", texts)
	}
	return f, nil
}
