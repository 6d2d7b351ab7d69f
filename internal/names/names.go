// Package names finds what somebody meant who wrote a name that nothing has: "resnet5O", "--memroy".
package names

import (
	"fmt"
	"slices"
	"strings"
)

// UnknownError says that a name is none of those known.
type UnknownError struct {
	Kind  error // what has such names, as in "unknown model"; errors.Is finds it
	Name  string
	Known []string // in the order in which they are listed
}

// Unknown returns the error for a name that is none of those known.
func Unknown(kind error, name string, known []string) error {
	return &UnknownError{kind, name, known}
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%v %q: %sknown are %s", e.Kind, e.Name, Hint(e.Closest(), ""), strings.Join(e.Known, ", "))
}

// Unwrap returns the kind.
func (e *UnknownError) Unwrap() error { return e.Kind }

// Closest returns the known names that may be meant.
func (e *UnknownError) Closest() []string { return Closest(e.Name, e.Known) }

// Hint is a question after names that may be meant, each behind the prefix, and a blank; "" when there are none.
func Hint(closest []string, prefix string) string {
	if len(closest) == 0 {
		return ""
	}
	return "did you mean " + prefix + strings.Join(closest, " or "+prefix) + "? "
}

// mostClosest is how many names a question can have.
const mostClosest = 3

// Closest returns the known names with the fewest slips between them and the name, whatever the case of letters. Slips may be a
// third of the name's letters; at most three names are returned. A known name that begins with the name counts as one slip.
func Closest(name string, known []string) (closest []string) {
	fewest := max(1, len([]rune(name))/3)
	for _, k := range known {
		d := slips(strings.ToLower(name), strings.ToLower(k))
		if len(name) > 2 && strings.HasPrefix(strings.ToLower(k), strings.ToLower(name)) {
			d = min(d, 1)
		}
		if d < fewest {
			fewest, closest = d, nil
		}
		if d == fewest {
			closest = append(closest, k)
		}
	}
	return closest[:min(len(closest), mostClosest)]
}

// slips counts the letters that are missing, too many, wrong, or in the other order than the one beside them, on the way from a
// to b (F. Damerau, "A technique for computer detection and correction of spelling errors", 1964). O(len(a)·len(b)).
func slips(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1) // of the first i letters of x and the first j of y
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range x {
		for j := range y {
			wrong := 1
			if x[i] == y[j] {
				wrong = 0
			}
			least := min(rows[i][j+1]+1, rows[i+1][j]+1, rows[i][j]+wrong)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				least = min(least, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = least
		}
	}
	return rows[len(x)][len(y)]
}

// In returns the error for a name that is none of those known, nil for one that is.
func In(kind error, name string, known []string) error {
	if slices.Contains(known, name) {
		return nil
	}
	return Unknown(kind, name, known)
}
