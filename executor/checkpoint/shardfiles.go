package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

var shardName = regexp.MustCompile(`^stage-(0|[1-9][0-9]{0,8})\.safetensors$`)

func shardFile(k int) string { return fmt.Sprintf("stage-%d.safetensors", k) }

// shardNumbers lists the shards in a folder, in order.
func shardNumbers(at *folder.Dir) (all []int, err error) {
	entries, err := at.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if m := shardName.FindStringSubmatch(e.Name()); m != nil {
			k, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			all = append(all, k)
		}
	}
	slices.Sort(all)
	return all, nil
}

// shardFiles lists the shards in a folder, in order.
func shardFiles(at *folder.Dir) (all []folder.File) {
	numbers, _ := shardNumbers(at) // of a folder that cannot be read: none
	for _, k := range numbers {
		all = append(all, folder.File{Dir: at, Name: shardFile(k)})
	}
	return all
}

// publishedName is the file, beside shards, with a Published.
const publishedName = "published.json"

// Published lists the shards of a checkpoint that several processes have saved, perhaps each on a disk of its own. It is written on
// each of these disks when all shards are durable.
type Published struct {
	Step   int64   `json:"step"`
	Shards []Saved `json:"shards"` // by number
}

// Saved is a file of a checkpoint.
type Saved struct {
	SHA256 string `json:"sha256"`       // that it ends with
	By     string `json:"by,omitempty"` // who has written it
}

// Lacks returns an error that names the shards that are not among files with these checksums; nil when there are none. Errors:
// ErrElsewhere.
func (p *Published) Lacks(sums []string) error {
	var all []string
	for k, s := range p.Shards {
		if !slices.Contains(sums, s.SHA256) {
			all = append(all, fmt.Sprintf("%s, which %s has saved", shardFile(k), s.By))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: of that of step %d there is no %s", ErrElsewhere, p.Step, brief(all))
}

// sumsIn returns the checksums of the shards in a folder that can be read.
func sumsIn(at *folder.Dir) (all []string) {
	for _, f := range shardFiles(at) {
		if sum, err := sumOf(in(f.Dir, f.Name)); err == nil {
			all = append(all, sum)
		}
	}
	return all
}

// sumOf returns the checksum that a file ends with, in hexadecimal digits.
func sumOf(f *safetensors.File, err error) (string, error) {
	if err != nil {
		return "", err
	}
	_, sum, err := f.Last(sha256.Size)
	return hex.EncodeToString(sum), errors.Join(err, f.Close())
}

func readPublished(at *folder.Dir) (*Published, error) {
	text, err := at.ReadFile(publishedName)
	if err != nil {
		return nil, err
	}
	p := &Published{}
	if err := json.Unmarshal(text, p); err != nil || len(p.Shards) == 0 {
		return nil, errors.Join(fmt.Errorf("%w: %s in %s", ErrFormat, publishedName, at.Path("")), err)
	}
	return p, nil
}
