package world

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// protocol is the version of the protocol of messages. Processes of one program have the same.
const protocol = 1

// kind says what a message is about.
type kind string

const (
	hello    kind = "hello"    // member: I am rank so-and-so
	waiting  kind = "waiting"  // hub: these ranks are missing
	refused  kind = "refused"  // hub: there will be no world, or none with you
	welcome  kind = "welcome"  // hub: everybody is here
	gather   kind = "gather"   // member: its part of a collective
	gathered kind = "gathered" // hub: all parts
	post     kind = "post"     // member to hub to all members
	beat     kind = "beat"     // member: alive
	beaten   kind = "beaten"   // hub: heard
	fail     kind = "fail"     // member: I have failed; hub: the world has ended
	leave    kind = "leave"    // member: I have done
	left     kind = "left"     // hub: all have done
)

// message is a message between members and the hub; a kind uses some of the fields.
type message struct {
	Kind kind `json:"kind"`

	Hello   *introduction `json:"hello,omitempty"`
	Missing []int         `json:"missing,omitempty"`
	Refusal *refusal      `json:"refusal,omitempty"`
	Welcome *start        `json:"welcome,omitempty"`

	Round int      `json:"round,omitempty"` // of a collective
	What  string   `json:"what,omitempty"`  // the collective is
	Data  []byte   `json:"data,omitempty"`
	Parts [][]byte `json:"parts,omitempty"` // by rank

	Topic string `json:"topic,omitempty"`
	From  int    `json:"from,omitempty"`

	Sent     int64    `json:"sent,omitempty"` // ns since 1970, by the member's clock
	Now      int64    `json:"now,omitempty"`  // by rank 0's
	Status   string   `json:"status,omitempty"`
	Statuses []string `json:"statuses,omitempty"` // by rank

	Failure *RankError `json:"failure,omitempty"`
}

// introduction is who a member says it is.
type introduction struct {
	Protocol int               `json:"protocol"`
	Rank     int               `json:"rank"`
	Size     int               `json:"size"`
	Host     string            `json:"host"`
	Process  int               `json:"process"`
	Agree    map[string]string `json:"agree,omitempty"`
	Proof    []byte            `json:"proof,omitempty"` // of the secret, bound to the connection
}

// start holds the data that rank 0 issues when all ranks are here.
type start struct {
	Epoch string   `json:"epoch"`
	Key   []byte   `json:"key"` // of this epoch, for what is opened beside the control plane
	Hosts []string `json:"hosts"`
}

// refusal is one of the errors with which a rendezvous ends.
type refusal struct {
	Refused  *RefusalError      `json:"refused,omitempty"`
	Missing  *MissingError      `json:"missing,omitempty"`
	Disagree *DisagreementError `json:"disagree,omitempty"`
	Failed   *RankError         `json:"failed,omitempty"`
}

// refusalOf returns the refusal to send to a process that is turned away; nil: none.
func refusalOf(err error) *refusal {
	switch e := err.(type) {
	case *RefusalError:
		return &refusal{Refused: e}
	case *MissingError:
		return &refusal{Missing: e}
	case *DisagreementError:
		return &refusal{Disagree: e}
	case *RankError:
		return &refusal{Failed: e}
	}
	return nil
}

func (r *refusal) error() error {
	switch {
	case r == nil:
	case r.Refused != nil:
		return r.Refused
	case r.Missing != nil:
		return r.Missing
	case r.Disagree != nil:
		return r.Disagree
	case r.Failed != nil:
		return r.Failed
	}
	return errors.New("rank 0 refuses, and does not say why")
}

// ErrTooLong says that a message has more than Options.Longest bytes.
var ErrTooLong = errors.New("the message is too long")

// encode returns a message with its length before it.
func encode(m *message, longest int) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	if err := json.NewEncoder(&b).Encode(m); err != nil {
		return nil, fmt.Errorf("a message of kind %s: %w", m.Kind, err)
	}
	frame := b.Bytes()
	if len(frame)-4 > longest {
		return nil, fmt.Errorf("%w: %d bytes of a %s, %d are allowed", ErrTooLong, len(frame)-4, m.Kind, longest)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

// decode reads a message; memory is taken as its bytes arrive. Errors: ErrTooLong, io.EOF, those of the connection and of JSON.
func decode(r io.Reader, longest int) (*message, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(length[:]))
	if n > int64(longest) {
		return nil, fmt.Errorf("%w: %d bytes, %d are allowed", ErrTooLong, n, longest)
	}
	text, err := io.ReadAll(io.LimitReader(r, n))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) < n {
		return nil, io.ErrUnexpectedEOF
	}
	m := &message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, &formatError{err}
	}
	return m, nil
}

// formatError says that what came is no message.
type formatError struct{ err error }

func (e *formatError) Error() string { return "what came is no message: " + e.err.Error() }
func (e *formatError) Unwrap() error { return e.err }

// lost reports whether an error of decode is one of the connection, and not of what came over it.
func lost(err error) bool {
	_, bad := errors.AsType[*formatError](err)
	return !bad && !errors.Is(err, ErrTooLong)
}
