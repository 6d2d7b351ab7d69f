package checkpoint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

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
