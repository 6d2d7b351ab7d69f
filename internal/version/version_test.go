package version

import (
	"os"
	"regexp"
	"testing"
)

// The release is the newest that the changelog has.
func TestTheChangelogHasTheRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)( \(unreleased\)|, \d{4}-\d{2}-\d{2})$`).FindStringSubmatch(string(text))
	if len(heading) == 0 || heading[1] != Release {
		t.Errorf("the first heading is %q, the release %s", heading, Release)
	}
	if s := String(); s != Release { // a test is built from no commit
		t.Errorf("the version is %s", s)
	}
}
