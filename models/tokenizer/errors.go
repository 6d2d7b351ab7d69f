package tokenizer

import "errors"

// Errors of what is given.
var (
	// ErrVocabulary says that the files of a vocabulary are none, or do not fit together.
	ErrVocabulary = errors.New("tokenizer: bad vocabulary")
	// ErrToken says that a number is no token.
	ErrToken = errors.New("tokenizer: no such token")
)
