"""Write the folders of small models of transformers, with the losses that PyTorch computes, for plimsoll to read.

    python torch_folders.py FAMILY OUT          a folder that save_pretrained writes, and reference.json with tokens, labels and losses
    python torch_folders.py check FOLDER [--tokens FILE --length N]
                                                whether from_pretrained takes all tensors of a folder, and for a decoder the mean loss over the
                                                tokens that evaluate holds out of a file of plimsoll tokenize

FAMILY is one of those below. Labels are drawn, so that the losses are those of any tokens; SGD takes three steps on one batch. Models of images
have theirs in images.f32 (N,C,H,W).
"""

import argparse
import json
import pathlib

import torch
import torch.nn.functional as F
import transformers
from torch import nn

LLAMA = dict(vocab_size=96, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, initializer_range=0.1, bos_token_id=0, eos_token_id=0, pad_token_id=None)
GPT2 = dict(vocab_size=96, n_positions=24, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
            initializer_range=0.1, bos_token_id=0, eos_token_id=0)
BERT = dict(vocab_size=96, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3)
DISTIL = dict(vocab_size=96, dim=16, hidden_dim=24, n_layers=2, n_heads=4, max_position_embeddings=32, dropout=0.0, attention_dropout=0.0,
              seq_classif_dropout=0.0, initializer_range=0.3)
VIT = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4, num_labels=5, initializer_range=0.3)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}

FAMILIES = {
    "llama": ("Llama", LLAMA | dict(rope_parameters={"rope_type": "default", "rope_theta": 5e5}, rms_norm_eps=1e-5)),
    "llama3": ("Llama", LLAMA | dict(rope_parameters=LLAMA3)),
    "llama-linear": ("Llama", LLAMA | dict(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0})),
    "llama-biases": ("Llama", LLAMA | dict(attention_bias=True, mlp_bias=True, head_dim=6, pad_token_id=3, num_key_value_heads=None, hidden_act="gelu", tie_word_embeddings=True)),
    "qwen2": ("Qwen2", LLAMA),
    "qwen3": ("Qwen3", LLAMA | dict(num_hidden_layers=4, head_dim=8, intermediate_size=16)),
    "qwen3-tied": ("Qwen3", LLAMA | dict(num_hidden_layers=4, head_dim=8, intermediate_size=16, tie_word_embeddings=True)),
    "mistral": ("Mistral", LLAMA | dict(sliding_window=32, head_dim=4)),
    "gpt2": ("GPT2", GPT2),
    "gpt2-inner": ("GPT2", GPT2 | dict(n_inner=40, activation_function="relu", layer_norm_epsilon=1e-6)),
    "phi3": ("Phi3", LLAMA | dict(pad_token_id=0)),
    "phi3-partial": ("Phi3", LLAMA | dict(pad_token_id=0, num_attention_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75})),
    "gemma": ("Gemma", LLAMA | dict(head_dim=6, pad_token_id=0, initializer_range=0.2)),
    "bert": ("Bert", BERT), "bert-classes": ("Bert", BERT | dict(num_labels=5, hidden_act="gelu_new")),
    "roberta": ("Roberta", BERT | dict(type_vocab_size=1, hidden_act="relu", pad_token_id=1)), "roberta-classes": ("Roberta", BERT | dict(num_labels=5, pad_token_id=1)),
    "distilbert": ("DistilBert", DISTIL), "distilbert-classes": ("DistilBert", DISTIL),
    "vit": ("ViT", VIT),
}
CLASSES = {"gpt2": "GPT2LMHeadModel", "gpt2-inner": "GPT2LMHeadModel", "vit": "ViTForImageClassification"} | {
    name + head: family + suffix for name, family in (("bert", "BertFor"), ("roberta", "RobertaFor"), ("distilbert", "DistilBertFor"))
    for head, suffix in (("", "MaskedLM"), ("-classes", "SequenceClassification"))}
LENGTH, BATCH, STEPS, RATE = 24, 4, 3, 0.3


def build(family):
    name, sizes = FAMILIES[family]
    config = getattr(transformers, name + "Config")(**sizes)
    model = getattr(transformers, CLASSES.get(family, name + "ForCausalLM"))(config)
    for p in model.parameters():  # norms and biases that differ from their normal start
        if p.dim() == 1:
            nn.init.normal_(p, 1.0 if torch.all(p == 1) else 0.0, 0.2)
    return model.train()


def losses(model, samples, labels, steps, rate):
    descent, all_losses = torch.optim.SGD(model.parameters(), lr=rate), []
    for _ in range(steps):
        descent.zero_grad()
        loss = F.cross_entropy(model(samples).logits.flatten(0, -2), labels.flatten())
        loss.backward()
        descent.step()
        all_losses.append(loss.item())
    return all_losses


def write(family, out, dtype, shard):
    torch.manual_seed(1)
    model = build(family)
    if dtype:
        model = model.to(dtype)
    model.save_pretrained(out, max_shard_size=shard)
    (out / "generation_config.json").unlink(missing_ok=True)
    model = model.float()
    samples, labels, about = draw(model.config)
    if samples.is_floating_point():
        (out / "images.f32").write_bytes(samples.numpy().tobytes())
    (out / "reference.json").write_text(json.dumps(about | {
        "model": family, "torch": torch.__version__, "batch": BATCH, "rate": RATE, "labels": labels.flatten().tolist(),
        "parameters": sum(p.numel() for p in model.parameters()), "losses": losses(model, samples, labels, STEPS, RATE),
    }))


def draw(config):
    """Samples, labels, and the reference's fields of their sizes."""
    head = config.architectures[0]
    if config.model_type == "vit":
        image = config.image_size
        return torch.randn(BATCH, config.num_channels, image, image), torch.randint(config.num_labels, (BATCH,)), {"image": image, "classes": config.num_labels, "tokens": None}
    tokens = torch.randint(config.vocab_size, (BATCH, LENGTH))
    if config.pad_token_id is not None:
        tokens[0, -3:] = config.pad_token_id
    each = not head.endswith("SequenceClassification")
    classes = config.vocab_size if each else config.num_labels
    labels = torch.randint(classes, (BATCH, LENGTH) if each else (BATCH,))
    return tokens, labels, {"image": LENGTH, "classes": classes, "tokens": tokens.flatten().tolist()}


def check(folder, file, length):
    """The mean loss of the last tenth of a file, in whole samples."""
    head = getattr(transformers, transformers.AutoConfig.from_pretrained(folder).architectures[0])
    model, about = head.from_pretrained(folder, output_loading_info=True)
    if any(about[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise SystemExit(f"from_pretrained: {about}")
    if any(p.dtype != torch.float32 for p in model.parameters()):
        raise SystemExit("from_pretrained: not float32")
    if file is None:
        return
    header = torch.frombuffer(bytearray(file.read_bytes()[:1024]), dtype=torch.int32)
    tokens = torch.frombuffer(bytearray(file.read_bytes()[1024:]), dtype=torch.int16 if header[0] == 20240520 else torch.int32).long() & 0xFFFF
    held = tokens[len(tokens) - len(tokens) // 10:]
    if (len(held) - 1) % length:
        raise SystemExit(f"{len(held)} tokens are no whole samples of {length}")
    with torch.no_grad():
        logits = model.eval()(input_ids=held[:-1].reshape(-1, length)).logits.double()
    print(F.cross_entropy(logits.flatten(0, 1), held[1:]).item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("family", choices=[*FAMILIES, "check"])
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--dtype", choices=("bfloat16", "float16"))
    p.add_argument("--shard", default="5GB")
    p.add_argument("--tokens", type=pathlib.Path)
    p.add_argument("--length", type=int)
    a = p.parse_args()
    if a.family == "check":
        return check(a.out, a.tokens, a.length)
    write(a.family, a.out, a.dtype and getattr(torch, a.dtype), a.shard)


if __name__ == "__main__":
    main()
