// Package version says which Plimsoll this is.
package version

import "runtime/debug"

// Release is the version by semantic versioning (semver.org): the newest heading of CHANGELOG.md. While it begins with 0, what files,
// flags and packages look like may change with the middle number.
const Release = "0.2.0"

// Commit returns the commit that the program was built from, with a + if files were changed since. It returns "" if the commit is not
// known, as in programs of go run and go test.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + changed
}

// String is both, for people: "0.2.0 (0697380072c9)".
func String() string {
	if c := Commit(); c != "" {
		return Release + " (" + c + ")"
	}
	return Release
}
