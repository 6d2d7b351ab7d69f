package models

// LlamaForm is how decoders like Llama differ from it. The zero value is Llama's.
type LlamaForm struct {
	HeadDim    int  // channels of a head; 0 means Width/Heads
	QKVBias    bool // queries, keys and values have biases
	OutputBias bool // what follows attention has one
	MLPBias    bool // the products of the MLP have biases
	NormHeads  bool // an RMSNorm of each head of queries and keys comes before rotation, as in Qwen3
	Joined     bool // files have queries, keys and values as one tensor, and gate and up, as Phi-3 does
	FromOne    bool // norms scale by 1 + weight, as in Gemma
	Turned     int  // channels of a head that rotation turns; 0: all
	Padding    int  // 1 + the token whose row of the embedding is not trained by it; 0: none
	// EmbedFactor scales the embedding, as in Gemma; 0: nothing does.
	EmbedFactor float32
}
