package checkpoint

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"strconv"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/atomicfile"
)

// sumName is the last tensor of a checkpoint: the SHA-256 of every byte of the file before it.
const sumName = "checkpoint.sha256"

// Encode writes a checkpoint of a model to w. It holds one tensor at a time.
func Encode(w io.Writer, from Source, m Meta) error {
	metadata, err := m.encode()
	if err != nil {
		return err
	}
	h := sha256.New()
	tensors := append(collect(from, training, m.Batches), safetensors.Tensor{
		Info: safetensors.Info{Name: sumName, DType: safetensors.U8, Shape: []int{sha256.Size}},
		Data: func(w io.Writer) error { _, err := w.Write(h.Sum(nil)); return err },
	})
	return safetensors.Write(io.MultiWriter(w, h), metadata, tensors)
}

// Export writes a model's weights and buffers to path, with the names, shapes and metadata that PyTorch expects. about is metadata besides.
func Export(path string, from Source, batches Batches, about map[string]string) error {
	return atomicfile.WriteFile(path, func(w io.Writer) error { return EncodeWeights(w, from, batches, about) })
}

// EncodeWeights writes the bytes of Export's file to w.
func EncodeWeights(w io.Writer, from Source, batches Batches, about map[string]string) error {
	return safetensors.Write(w, ofPyTorch(about), collect(from, inference, batches))
}

// WeightsBytes returns how many bytes EncodeWeights writes.
func WeightsBytes(from Source, about map[string]string) (int64, error) {
	return safetensors.Size(ofPyTorch(about), collect(from, inference, Batches{}))
}

// ofPyTorch returns the metadata of PyTorch's files with more about the model.
func ofPyTorch(about map[string]string) map[string]string {
	metadata := map[string]string{"format": "pt"}
	maps.Copy(metadata, about)
	return metadata
}

// Metadata fields of a shard: its number from 0, and how many there are. The other fields are those of the checkpoint, the
// same in each of its shards.
const (
	shardField  = "shard"
	shardsField = "shards"
)

// encodeShard writes one of so many shards.
func encodeShard(w io.Writer, from Source, m Meta, k, of int) error {
	extra := maps.Clone(m.Extra)
	if extra == nil {
		extra = map[string]string{}
	}
	for field, n := range map[string]int{shardField: k, shardsField: of} {
		if _, taken := extra[field]; taken {
			return fmt.Errorf("checkpoint: the extra field %q has the name of one of a checkpoint's own", field)
		}
		extra[field] = strconv.Itoa(n)
	}
	m.Extra = extra
	return Encode(w, from, m)
}
