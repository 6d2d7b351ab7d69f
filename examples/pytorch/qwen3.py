# Writes qwen3, a folder of Hugging Face with a small Qwen3 of random weights and a tokenizer of bytes.
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
letters["<end>"] = len(letters)
tokenizer = Tokenizer(models.BPE(letters, []))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained("qwen3")
config = Qwen3Config(
    vocab_size=len(letters),
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=64,
)
Qwen3ForCausalLM(config).save_pretrained("qwen3")
