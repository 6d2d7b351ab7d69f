package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// charsmap replaces characters as SentencePiece's models say. It is a double array trie of texts (Aoe 1989, An Efficient Digital Search
// Algorithm by Using a Double-Array Structure). The replacements of the texts follow, each with a 0 after it.
type charsmap struct {
	units []uint32
	texts string
}

// readCharsmap reads precompiled_charsmap.
func readCharsmap(encoded string) (*charsmap, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	const header, unit = 4, 4
	if len(data) < header {
		return nil, errors.New("it has no size")
	}
	size := int64(binary.LittleEndian.Uint32(data))
	if data = data[header:]; size == 0 || size%unit != 0 || size > int64(len(data)) {
		return nil, errors.New("its trie does not fit into it")
	}
	m := &charsmap{texts: string(data[size:])}
	for at := int64(0); at < size; at += unit {
		m.units = append(m.units, binary.LittleEndian.Uint32(data[at:]))
	}
	if !utf8.ValidString(m.texts) {
		return nil, errors.New("its texts are not UTF-8")
	}
	return m, nil
}

// unit returns a unit of the trie; a place outside it is a unit that leads nowhere.
func (m *charsmap) unit(at uint32) uint32 {
	if int64(at) >= int64(len(m.units)) {
		return noUnit
	}
	return m.units[at]
}

// Bits of a unit. A unit that leads nowhere has a label that is no byte.
const (
	noUnit    = 1 << 31
	labelBits = 1<<31 | 0xff
	leafBit   = 1 << 8
)

func offsetOf(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// replacement returns the replacement of the shortest text of the map that a text begins with.
func (m *charsmap) replacement(text string) (string, bool) {
	at := offsetOf(m.unit(0))
	for i := 0; i < len(text) && text[i] != 0; i++ {
		at ^= uint32(text[i])
		unit := m.unit(at)
		if unit&labelBits != uint32(text[i]) {
			return "", false
		}
		at ^= offsetOf(unit)
		if unit&leafBit != 0 {
			return m.text(m.unit(at) &^ noUnit)
		}
	}
	return "", false
}

// text returns the text at a place.
func (m *charsmap) text(at uint32) (string, bool) {
	if int64(at) >= int64(len(m.texts)) || !utf8.RuneStart(m.texts[at]) {
		return "", false
	}
	text, _, _ := strings.Cut(m.texts[at:], "\x00")
	return text, true
}

// apply replaces the characters of a text: those that are seen as one, where they are short, else each by itself.
func (m *charsmap) apply(text string) string {
	const short = 6 // bytes
	var b strings.Builder
	for text != "" {
		var seen string
		seen, text = firstSeen(text)
		if len(seen) < short {
			if now, is := m.replacement(seen); is {
				b.WriteString(now)
				continue
			}
		}
		for _, r := range seen {
			if now, is := m.replacement(string(r)); is {
				b.WriteString(now)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
