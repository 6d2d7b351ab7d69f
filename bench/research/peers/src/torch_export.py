"""Models of images and small transformers in PyTorch, exported as .pt2 archives or ONNX files, to compare ours with.

    python3 torch_export.py MODEL OUT [--format pt2] [--steps 3] [--rate R] [--image N] [--batch N] [--small] [--keep]

MODEL is one of torchvision's, with 10 classes, segmentation.NAME of its models for segmentation, timm.NAME of timm's, or one of this file: tiny, branches, skips, axes, vision, mobile, windows, pixels and hf_NAME read images, the
others tokens. Draws weights, samples and labels from a seed and takes steps of gradient descent on the same batch. OUT
is a folder: model.pt2 or model.onnx is the model before the first step, in training mode, as torch.export.save or the classical ONNX
exporter (dynamo=False) writes it. images.f32 has the images (N,C,H,W), reference.json tokens, labels and losses. Dropout and stochastic
depth are off: their random numbers are not ours. Where no rate is given, steady chooses one. --small compresses an archive, and leaves out the
sample inputs and the folders of this machine. --keep keeps a file of the same model that is there already.
"""
import argparse
import copy
import json
import pathlib
import re
import warnings
import zipfile

import torch
import torch.nn.functional as F
from torch import nn


class Tiny(nn.Module):
    """A stem, a residual block of grouped convolutions, a concatenation and a classifier: most ops in few bytes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4, eps=1e-3, momentum=0.2), nn.ReLU(), nn.MaxPool2d(2))
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, 1, 1, groups=2), nn.BatchNorm2d(4)
        self.narrow = nn.Conv2d(4, 2, 1)
        self.pool = nn.AvgPool2d(3, 1, 1)
        self.fc = nn.Sequential(nn.Linear(6 * 16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10))

    def forward(self, x):
        x = self.stem(x)
        y = F.relu(self.bn1(self.conv1(x)) + x)
        y = torch.cat([y, self.pool(self.narrow(y))], 1)
        return self.fc(torch.flatten(y, 1))


class Affine(nn.Module):
    """x W + b, written out."""

    def __init__(self, inner, out):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(inner, out)), nn.Parameter(torch.randn(out))

    def forward(self, x):
        return x @ self.w + self.b


class Branches(nn.Module):
    """Layers joined as DenseNet joins them, shapes computed from the batch, which is open, a mean for a pool."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3 + 2 * i, 2, 3, 1, 1) for i in range(4)])
        self.fc1, self.fc2, self.fc3 = nn.Linear(11, 6, bias=False), Affine(6, 7), nn.Linear(7, 10)

    def forward(self, x):
        all = [x]
        for conv in self.convs:
            all.append(F.relu(conv(torch.cat(all, 1))))
        x = torch.cat(all, 1).mean([2, 3])
        return self.fc3(self.fc2(F.relu(self.fc1(x.view(x.size(0), 1 * x.size(1))))))


class Skips(nn.Module):
    """Skips over many convolutions, within others, as in a U-Net."""

    def __init__(self, levels=3, convs=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1)
        block = lambda inner: nn.Sequential(*[m for i in range(convs) for m in (nn.Conv2d(inner if i == 0 else 4, 4, 3, 1, 1), nn.ReLU())])
        self.down, self.up = nn.ModuleList([block(4) for _ in range(levels)]), nn.ModuleList([block(8) for _ in range(levels)])
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        x, skips = self.stem(x), []
        for block in self.down:
            x = block(x)
            skips.append(x)
        for block in self.up:
            x = block(torch.cat([x, skips.pop()], 1))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    """Attention and an MLP behind norms: heads out of one projection or out of three, attention by PyTorch's function or written out."""

    def __init__(self, width, heads, length, written):
        super().__init__()
        self.heads, self.written = heads, written
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.ModuleList([nn.Linear(width, width, bias=i > 0) for i in range(3)]) if written else nn.Linear(width, 3 * width)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("seen", torch.ones(length, length).tril().view(1, 1, length, length))

    def attention(self, x):
        n, t, c = x.shape
        parts = [f(x) for f in self.qkv] if self.written else self.qkv(x).split(c, 2)
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        if self.written:
            scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
            scores = scores.masked_fill(self.seen[:, :, :t, :t] == 0, float("-inf"))
            y = self.drop(scores.softmax(-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.drop(self.attention(self.ln_1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh" if self.written else "none")))


class Decoder(nn.Module):
    """GPT-2's architecture: learned positions, blocks, a last norm, and a classifier, whose weight can be the embedding's."""

    def __init__(self, width=16, heads=2, blocks=2, length=12, vocabulary=40, written=False):
        super().__init__()
        self.length, self.vocabulary = length, vocabulary
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads, length, written) for _ in range(blocks)])
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if not written:
            self.head.weight = self.tokens.weight
            nn.init.normal_(self.tokens.weight, std=0.1)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Written(Decoder):
    """Attention as its formula, with a mask in a buffer, batch and length open."""

    def __init__(self):
        super().__init__(written=True)


class Modules(nn.Module):
    """PyTorch's own nn.TransformerEncoderLayer with a causal mask, of post-norm layers and pre-norm ones."""

    def __init__(self, width=12, heads=3, vocabulary=30, length=8, causal=True):
        super().__init__()
        self.length, self.vocabulary, self.causal = length, vocabulary, causal
        self.tokens = nn.Embedding(vocabulary, width)
        layer = lambda first: nn.TransformerEncoderLayer(width, heads, 20, activation=F.gelu, batch_first=True, norm_first=first)
        self.layers, self.head = nn.ModuleList([layer(False), layer(True)]), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1]) if self.causal else None
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=self.causal)
        return self.head(x)


class Encoder(Modules):
    """Without a mask: every position sees all."""

    def __init__(self):
        super().__init__(causal=False)


class Transformers(nn.Module):
    """GPT-2 of Hugging Face's transformers, whose mask is computed in the graph."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.length, self.vocabulary = 12, 40
        self.model = GPT2LMHeadModel(GPT2Config(
            vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, attn_pdrop=0.0, initializer_range=0.1, bos_token_id=0, eos_token_id=0))

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False, return_dict=False)[0]


class Vision(nn.Module):
    """A vision transformer: patches, a class token, learned positions, PyTorch's own attention, LayerScale, the mean of the patches beside the class."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.scales = nn.ParameterList([nn.Parameter(torch.full((8,), 0.3)) for _ in range(2)])
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(2)])
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block, scale in zip(self.blocks, self.scales):
            x = x + scale * block(x)
        return self.head(torch.cat([x[:, 0], x[:, 1:].mean(1)], 1))


class Mobile(nn.Module):
    """Squeeze-and-excite, hard activations, a shuffle of channels, a norm of channels last and a linear layer there."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.depthwise, self.norm, self.inner, self.outer = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.gamma = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = F.hardswish(self.bn(self.stem(x)))
        x = x * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        a, b = x.chunk(2, 1)
        x = torch.cat([torch.tanh(a), torch.sigmoid(b)], 1)
        y = self.outer(F.gelu(self.inner(self.norm(self.depthwise(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)
        return self.head((x + self.gamma * y).mean((2, 3)))


class Windowed(nn.Module):
    """Attention in windows, a table of relative positions, and images that are padded and rolled: two blocks of a Swin, written out."""

    def __init__(self, shift):
        super().__init__()
        self.shift, self.norm, self.qkv, self.out = shift, nn.LayerNorm(8), nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.q_bias, self.v_bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))
        self.register_buffer("k_bias", torch.zeros(8), persistent=False)
        self.table = nn.Parameter(torch.randn(9, 2))
        at = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        between = at[:, :, None] - at[:, None, :] + 1
        self.register_buffer("index", (3 * between[0] + between[1]).flatten())

    def mask(self, x, size):
        mask, count = x.new_zeros((size, size)), 0
        for rows in ((0, -2), (-2, -1), (-1, None)):
            for columns in ((0, -2), (-2, -1), (-1, None)):
                mask[rows[0]:rows[1], columns[0]:columns[1]] = count
                count += 1
        mask = mask.view(size // 2, 2, size // 2, 2).permute(0, 2, 1, 3).reshape(-1, 4)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    def forward(self, x):
        n, h, w, c = x.shape
        y = F.pad(self.norm(x), (0, 0, 0, h % 2, 0, w % 2))
        size = y.shape[1]
        if self.shift:
            y = torch.roll(y, (-1, -1), (1, 2))
        y = y.view(n, size // 2, 2, size // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        qkv = F.linear(y, self.qkv.weight, torch.cat([self.q_bias, self.k_bias, self.v_bias]))
        q, k, v = qkv.reshape(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (0.5 * q) @ k.transpose(-2, -1) + self.table[self.index].view(4, 4, 2).permute(2, 0, 1).unsqueeze(0)
        if self.shift:
            mask = self.mask(x, size)
            scores = (scores.view(n, len(mask), 2, 4, 4) + mask.unsqueeze(1).unsqueeze(0)).view(-1, 2, 4, 4)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, c))
        y = y.view(n, size // 2, size // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n, size, size, c)
        if self.shift:
            y = torch.roll(y, (1, 1), (1, 2))
        return x + y[:, :h, :w, :].contiguous()


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.blocks, self.reduce = nn.Conv2d(3, 8, 2, 2), nn.Sequential(Windowed(False), Windowed(True)), nn.Linear(32, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, x):
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        x = F.pad(x, (0, 0, 0, 1, 0, 1))
        x = self.reduce(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1))
        return self.head(self.norm(x).mean((1, 2)))


class Pixels(nn.Module):
    """A class for each pixel: images that are made larger and smaller, in between and to the nearest, and padded on one side."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6)
        self.inner, self.side, self.head = nn.Conv2d(6, 6, 3, 1, 1), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 10, 1)

    def forward(self, x):
        y = F.relu(self.bn(self.stem(F.pad(x, (0, 1, 0, 1)))))
        z = F.interpolate(self.inner(y), (3, 5), mode="bilinear", align_corners=True)
        z = F.interpolate(z, scale_factor=(2.4, 1.5), mode="bilinear") + F.interpolate(z, size=(7, 7), mode="nearest")
        z = F.interpolate(self.side(z), scale_factor=2, mode="nearest")
        y = F.interpolate(y, (14, 14), mode="bilinear", align_corners=False)
        return F.interpolate(self.head(y + z), x.shape[-2:], mode="bilinear", align_corners=False)


class Axes(nn.Module):
    """Axes of equal extents that are only told apart by what has been done to them: means, pools and heads in other orders."""

    def __init__(self):
        super().__init__()
        self.conv, self.row = nn.Conv2d(3, 4, 3, 1, 1), nn.Linear(4, 4)
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(16 + 36 + 16, 10)

    def forward(self, x):
        x = self.conv(x)
        rows = x.mean(2).transpose(1, 2)
        pools = F.adaptive_avg_pool2d(x, 3).permute(0, 2, 3, 1)
        y = self.row(x.mean(3, keepdim=True).squeeze(3))
        q, k, v = (f(y).view(-1, 2, 4, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.head(torch.cat([rows.flatten(1), pools.flatten(1), y.flatten(1)], 1))


class Causal(nn.Module):
    """A small decoder of Hugging Face's transformers: its class, its configuration's, and what its configuration has of its own."""

    def __init__(self, model, config, **more):
        super().__init__()
        import transformers

        self.length, self.vocabulary = 12, 40
        sizes = dict(
            vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, max_position_embeddings=32,
            initializer_range=0.1, bos_token_id=0, eos_token_id=0, pad_token_id=None, use_cache=False)
        self.model = getattr(transformers, model)(getattr(transformers, config)(**(sizes | more)))

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


class Texts(nn.Module):
    """A small encoder of texts of Hugging Face's transformers: its class, its configuration's, and what its configuration has of its own. One that
    classifies has a label for each sample."""

    def __init__(self, model, config, **more):
        super().__init__()
        import transformers

        self.length, self.vocabulary = 12, 40
        sizes = dict(
            vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, max_position_embeddings=32, initializer_range=0.1,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1, num_labels=5)
        made = getattr(transformers, config)(**(sizes | more))
        self.model, self.padding = getattr(transformers, model)(made), made.pad_token_id
        if "Classification" in model:
            self.classes = made.num_labels
            self.each = "Token" in model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


class Masked(nn.Module):
    """A decoder that reads a mask of padding beside its tokens. Texts have several lengths, and padding, behind them, has no label."""

    def __init__(self, model):
        super().__init__()
        self.model, self.length, self.vocabulary, self.lengths = model.model, model.length, model.vocabulary, (12, 9, 5)

    def inputs(self, tokens):
        return tokens, (torch.arange(self.length) < torch.tensor(self.lengths)[:, None]).long()

    def forward(self, input_ids, attention_mask=None):
        attention_mask = self.inputs(input_ids)[1] if attention_mask is None else attention_mask
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


class T5Encoder(nn.Module):
    """T5's encoder, whose attention has a learned bias of relative positions that all layers share, and a linear layer."""

    def __init__(self, **more):
        super().__init__()
        import transformers

        self.length, self.vocabulary = 12, 40
        config = transformers.T5Config(
            vocab_size=40, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=10,
            dropout_rate=0.0, initializer_factor=1.0, use_cache=False, **more)
        self.model, self.head = transformers.T5EncoderModel(config), nn.Linear(16, 40)

    def forward(self, tokens):
        return self.head(self.model(input_ids=tokens)[0])


class Images(nn.Module):
    """A small model of images of Hugging Face's transformers."""

    def __init__(self, model, config, **more):
        super().__init__()
        import transformers

        self.model = getattr(transformers, model)(getattr(transformers, config)(num_labels=10, **more))

    def forward(self, images):
        return self.model(images).logits


VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=64, patch_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)

DISTIL = dict(dim=16, n_layers=2, n_heads=4, hidden_dim=24, dropout=0.0, attention_dropout=0.0)

# Families of transformers, built with a few layers.
HUGGING = {
    "llama": lambda: Causal("LlamaForCausalLM", "LlamaConfig"), "qwen2": lambda: Causal("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3": lambda: Causal("Qwen3ForCausalLM", "Qwen3Config", head_dim=8), "mistral": lambda: Causal("MistralForCausalLM", "MistralConfig"),
    "phi3": lambda: Causal("Phi3ForCausalLM", "Phi3Config", pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0),
    "opt": lambda: Causal("OPTForCausalLM", "OPTConfig", ffn_dim=24, word_embed_proj_dim=16, dropout=0.0, init_std=0.1, pad_token_id=1),
    "bloom": lambda: Causal("BloomForCausalLM", "BloomConfig", n_head=4, n_layer=2, hidden_dropout=0.0, attention_dropout=0.0),
    "gpt_neox": lambda: Causal("GPTNeoXForCausalLM", "GPTNeoXConfig", rotary_pct=0.5, hidden_dropout=0.0, attention_dropout=0.0),
    "gptj": lambda: Causal("GPTJForCausalLM", "GPTJConfig", n_embd=16, n_layer=2, n_head=4, rotary_dim=2, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    "gpt_neo": lambda: Causal("GPTNeoForCausalLM", "GPTNeoConfig", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4, attention_dropout=0.0, embed_dropout=0.0, resid_dropout=0.0),
    "gemma": lambda: Causal("GemmaForCausalLM", "GemmaConfig", head_dim=8), "gemma2": lambda: Causal("Gemma2ForCausalLM", "Gemma2Config", head_dim=8),
    "gemma3": lambda: Causal("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
    "phi": lambda: Causal("PhiForCausalLM", "PhiConfig", num_key_value_heads=4, attention_dropout=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "falcon": lambda: Causal("FalconForCausalLM", "FalconConfig", hidden_dropout=0.0, attention_dropout=0.0),
    "stablelm": lambda: Causal("StableLmForCausalLM", "StableLmConfig", partial_rotary_factor=0.5), "olmo": lambda: Causal("OlmoForCausalLM", "OlmoConfig", pad_token_id=0),
    "olmo2": lambda: Causal("Olmo2ForCausalLM", "Olmo2Config", pad_token_id=0), "cohere": lambda: Causal("CohereForCausalLM", "CohereConfig", logit_scale=0.5),
    "starcoder2": lambda: Causal("Starcoder2ForCausalLM", "Starcoder2Config", residual_dropout=0.0, embedding_dropout=0.0), "granite": lambda: Causal("GraniteForCausalLM", "GraniteConfig", attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0),
    "smollm3": lambda: Causal("SmolLM3ForCausalLM", "SmolLM3Config", pad_token_id=0), "mpt": lambda: Causal("MptForCausalLM", "MptConfig", d_model=16, n_heads=4, n_layers=2, max_seq_len=32),
    "codegen": lambda: Causal("CodeGenForCausalLM", "CodeGenConfig", n_embd=16, n_layer=2, n_head=4, rotary_dim=2, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    "helium": lambda: Causal("HeliumForCausalLM", "HeliumConfig", head_dim=4), "glm": lambda: Causal("GlmForCausalLM", "GlmConfig", head_dim=4, pad_token_id=0),
    "nemotron": lambda: Causal("NemotronForCausalLM", "NemotronConfig"), "exaone4": lambda: Causal("Exaone4ForCausalLM", "Exaone4Config", sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
    "bert": lambda: Texts("BertForMaskedLM", "BertConfig"), "bert_class": lambda: Texts("BertForSequenceClassification", "BertConfig"),
    "bert_tokens": lambda: Texts("BertForTokenClassification", "BertConfig"),
    "roberta": lambda: Texts("RobertaForMaskedLM", "RobertaConfig"), "roberta_class": lambda: Texts("RobertaForSequenceClassification", "RobertaConfig"),
    "distilbert": lambda: Texts("DistilBertForMaskedLM", "DistilBertConfig", **DISTIL), "distilbert_class": lambda: Texts("DistilBertForSequenceClassification", "DistilBertConfig", seq_classif_dropout=0.0, **DISTIL),
    "electra": lambda: Texts("ElectraForMaskedLM", "ElectraConfig", embedding_size=16), "electra_class": lambda: Texts("ElectraForSequenceClassification", "ElectraConfig", embedding_size=8),
    "albert": lambda: Texts("AlbertForMaskedLM", "AlbertConfig", embedding_size=8), "camembert": lambda: Texts("CamembertForMaskedLM", "CamembertConfig"),
    "xlm_roberta": lambda: Texts("XLMRobertaForMaskedLM", "XLMRobertaConfig"), "mpnet": lambda: Texts("MPNetForMaskedLM", "MPNetConfig"),
    "modernbert": lambda: Texts("ModernBertForMaskedLM", "ModernBertConfig", attention_dropout=0.0, pad_token_id=0, local_attention=6, global_attn_every_n_layers=2),
    "deberta_v2": lambda: Texts("DebertaV2ForMaskedLM", "DebertaV2Config"), "mobilebert": lambda: Texts("MobileBertForMaskedLM", "MobileBertConfig", embedding_size=8, intra_bottleneck_size=16, true_hidden_size=16),
    "squeezebert": lambda: Texts("SqueezeBertForMaskedLM", "SqueezeBertConfig", embedding_size=16), "roformer": lambda: Texts("RoFormerForMaskedLM", "RoFormerConfig", embedding_size=16),
    "layoutlm": lambda: Texts("LayoutLMForMaskedLM", "LayoutLMConfig"), "ernie": lambda: Texts("ErnieForMaskedLM", "ErnieConfig"), "megatron_bert": lambda: Texts("MegatronBertForMaskedLM", "MegatronBertConfig"),
    "gpt2_class": lambda: Texts("GPT2ForTokenClassification", "GPT2Config", n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, classifier_dropout=0.0),
    "llama_masked": lambda: Masked(HUGGING["llama"]()), "opt_masked": lambda: Masked(HUGGING["opt"]()), "bert_masked": lambda: Masked(HUGGING["bert"]()),
    "t5_encoder": T5Encoder, "t5_gated": lambda: T5Encoder(feed_forward_proj="gated-gelu"),
    "hf_vit": lambda: Images("ViTForImageClassification", "ViTConfig", **VIT), "hf_deit": lambda: Images("DeiTForImageClassification", "DeiTConfig", **VIT),
    "hf_convnext": lambda: Images("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    "hf_resnet": lambda: Images("ResNetForImageClassification", "ResNetConfig", embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]),
}

class UNet(nn.Module):
    """A U-Net as people have it: GroupNorm, leaky ReLU, pools whose windows reach beyond the image, transposed convolutions, InstanceNorm."""

    def __init__(self):
        super().__init__()
        unit = lambda inner, out: nn.Sequential(nn.Conv2d(inner, out, 3, 1, 1), nn.GroupNorm(2, out), nn.LeakyReLU(0.1))
        self.down1, self.down2, self.bottom = unit(3, 4), unit(4, 6), unit(6, 8)
        self.pool, self.frozen = nn.MaxPool2d(2, ceil_mode=True), nn.BatchNorm2d(4)
        self.up2, self.up1 = nn.ConvTranspose2d(8, 6, 2, 2), nn.ConvTranspose2d(6, 4, 3, 2, 1, groups=2, bias=False)
        self.norm, self.join2, self.join1 = nn.InstanceNorm2d(6, affine=True), unit(12, 6), unit(8, 4)
        self.head = nn.Conv2d(4, 10, 1)

    def forward(self, x):
        self.frozen.eval()
        a = self.frozen(self.down1(x))
        b = self.down2(self.pool(a))
        x = self.join2(torch.cat([F.elu(self.norm(self.up2(self.bottom(self.pool(b))))), b], 1))
        return self.head(self.join1(torch.cat([self.up1(x), a], 1)))


class Functions(nn.Module):
    """What has no pattern: functions of numbers, sums of rows, tensors that are repeated, norms without parameters, GRN."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.scaled = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8, elementwise_affine=False), nn.LayerNorm(8, bias=False)
        self.gamma, self.beta, self.head = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8)), nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x).permute(0, 2, 3, 1)
        g = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
        x = x + torch.addcmul(self.beta, self.gamma, x * (g / (g.mean(-1, keepdim=True) + 1e-6)))
        x = self.scaled(F.avg_pool2d(self.norm(x).permute(0, 3, 1, 2), 3, 2, 1, ceil_mode=True, count_include_pad=False).permute(0, 2, 3, 1))
        x = x.flatten(1, 2)
        y = torch.exp(-x * x) + torch.log(1 + x * x) - torch.sqrt(x.abs() + 0.5) / 2 + F.softplus(x) + F.mish(x) + F.selu(x)
        y = y.clamp(-1, 50) + x.clamp(max=1) + F.hardtanh(x) + 1 / (1 + x.square()) + (x * x + 1) ** -0.7 + F.normalize(x, dim=-1)
        y = torch.stack([(y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True), y], 1).sum(1) * 0.5
        return self.head(y.var(1) + y.mean(1))


class Zeros(nn.Module):
    """Norms and deviations of vectors that are 0, of pixels whose windows are padding alone."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 6, 3, 1, 3, bias=False), nn.Linear(6, 10)

    def forward(self, x):
        x = self.stem(x).permute(0, 2, 3, 1)
        x = F.normalize(x, dim=-1) + x / (1 + x.std(-1, keepdim=True)) + x * torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return self.head(x.mean((1, 2)))


class Rows(nn.Module):
    """A model of rows of numbers N,F, as of a table: norms, a block with a shortcut, a product of two parts, and features that are repeated."""

    features = (13,)

    def __init__(self):
        super().__init__()
        self.norm, self.stem = nn.BatchNorm1d(13), nn.Linear(13, 16)
        self.block = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 16))
        self.gates, self.last, self.head = nn.Linear(16, 32), nn.BatchNorm1d(16), nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(self.norm(x))
        x = x + self.block(x)
        a, b = self.gates(x).chunk(2, dim=1)
        return self.head(F.relu(self.last(a * torch.sigmoid(b))).repeat(1, 2))


class Frames(nn.Module):
    """A network of frames N,C,T: convolutions with norms, a gate, and the mean over time or, where it is told how many there are, logits for each
    position."""

    features = (5, 24)

    def __init__(self, positions=0):
        super().__init__()
        self.positions = positions
        self.stem, self.norm1 = nn.Conv1d(5, 8, 5, 2, 2, bias=False), nn.BatchNorm1d(8)
        self.wide, self.norm2 = nn.Conv1d(8, 8, 3, padding=2, dilation=2, groups=4), nn.GroupNorm(2, 8)
        self.gate, self.pool, self.head = nn.Conv1d(8, 16, 1), nn.MaxPool1d(2), nn.Linear(8, 10)
        self.norm2.bias = None

    def forward(self, x):
        x = self.pool(F.relu(self.norm1(self.stem(x))))
        x = x + F.silu(self.norm2(self.wide(x)))
        x = F.glu(self.gate(x), 1)
        return self.head(x.transpose(1, 2) if self.positions else x.mean(2))


class Whisper(nn.Module):
    """Whisper's encoder of Hugging Face's transformers, of log-mel frames N,C,T, with the mean of its positions and a classifier."""

    features = (6, 24)

    def __init__(self):
        super().__init__()
        import transformers

        config = transformers.WhisperConfig(
            num_mel_bins=6, d_model=16, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=24, max_source_positions=12, dropout=0.0, attention_dropout=0.0,
            activation_dropout=0.0, encoder_layerdrop=0.0, vocab_size=40, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=24, pad_token_id=0, bos_token_id=0,
            eos_token_id=0, decoder_start_token_id=0, init_std=0.1)
        self.encoder, self.head = transformers.WhisperModel(config).encoder, nn.Linear(16, 10)

    def forward(self, frames):
        return self.head(self.encoder(frames).last_hidden_state.mean(1))


class Clamps(nn.Module):
    """Clamps of rows of a table whose numbers lie on the bounds, within and beyond them, with bounds of any size."""

    length, vocabulary = 6, 12

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(12, 16), nn.Linear(16, 12)
        with torch.no_grad():
            self.table.weight.mul_(2).round_().div_(2)

    def forward(self, tokens):
        x = self.table(tokens)
        y = x.clamp(-1, 0.5) + x.clamp(min=0) * 0.5 + x.clamp(max=-0.5) + x.clamp(min=torch.finfo(torch.float32).min) - x.clamp(-3e4, 1e5) * 0.25
        return self.head(y + (100 * x).clamp(-150, 1000) * 0.01 + x.clamp(2, 1))


class Turned(nn.Module):
    """A model that puts the batch behind other axes, in a shape whose first number is that of the batch by chance: it means nothing with another one."""

    features = (3, 4)

    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(12, 12), nn.Linear(12, 10)

    def forward(self, x):
        return self.head(F.relu(self.mix(x.transpose(0, 2).reshape(4, 12))))


OWN = {"turned": Turned, "clamps": Clamps, "rows": Rows, "frames": Frames, "positions": lambda: Frames(6), "whisper_encoder": Whisper, "zeros": Zeros, "unet": UNet, "functions": Functions, "windows": Windows, "pixels": Pixels, "axes": Axes, "vision": Vision, "mobile": Mobile, "tiny": Tiny, "branches": Branches, "skips": Skips, "sdpa": Decoder, "written": Written, "modules": Modules, "encoder": Encoder, "transformers": Transformers}

# Image, batch and rate of each, where they are not 64, 4 and a steady one, of tokens 3 and 0.1. Deep models with norms of few pixels have gradients of norm 1000 and more:
# at a rate of 1e-5 the third loss of ResNet-50 differs by 5 % between PyTorch and itself with other kernels, or in float64.
SIZES = {
    "rows": (1, 8, 0.1), "frames": (24, 4, 0.1), "turned": (4, 4, 0.3), "positions": (24, 4, 0.1), "whisper_encoder": (24, 4, 0.1), "unet": (11, 2, 0.1), "functions": (10, 2, 0.05), "zeros": (8, 2, 0.5), "windows": (14, 2, 0.05), "pixels": (14, 2, 1.0), "tiny": (16, 2, 0.05), "branches": (8, 2, 0.1), "skips": (8, 2, 0.5), "alexnet": (224, 2, 0.01), "vgg11": (224, 2, 1e-3), "vgg11_bn": (224, 2, 3e-5),
    "resnet50": (64, 4, 1e-8), "resnext50_32x4d": (64, 4, 1e-8), "mnasnet0_5": (64, 4, 1e-8), "resnet18": (64, 4, 1e-4), "regnet_x_400mf": (64, 4, 3e-8), "densenet121": (64, 4, 1e-4),
    "mobilenet_v2": (64, 4, 1e-6), "sdpa": (0, 3, 0.5), "written": (0, 3, 0.5), "modules": (0, 3, 0.1), "encoder": (0, 3, 0.1), "axes": (4, 2, 0.05), "vision": (8, 2, 0.05), "mobile": (16, 2, 0.05),
    "llama": (0, 3, 0.5), "qwen2": (0, 3, 0.5), "qwen3": (0, 3, 0.5), "mistral": (0, 3, 0.5), "phi3": (0, 3, 0.5), "opt": (0, 3, 0.1), "transformers": (0, 3, 0.5),
    "inception_v3": (139, 4, 1e-8), "maxvit_t": (224, 2, None), "squeezenet1_1": (128, 2, 0.01), "googlenet": (78, 4, 1e-6),
}


class Segmentation(nn.Module):
    """One of torchvision's models for segmentation, with its main output alone: a class for each pixel."""

    def __init__(self, name):
        super().__init__()
        import torchvision
        self.model = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=10)

    def forward(self, x):
        return self.model(x)["out"]


def build_timm(name, image):
    """A model of timm, for images of a size where it can be told."""
    import timm
    try:
        return timm.create_model(name, num_classes=10, img_size=image)
    except TypeError:
        return timm.create_model(name, num_classes=10)


def build(name, image=64):
    if name in OWN:
        return OWN[name]()
    if name in HUGGING:
        return HUGGING[name]()
    if name.startswith("timm."):
        return build_timm(name[len("timm."):], image)
    if name.startswith("segmentation."):
        return Segmentation(name[len("segmentation."):])
    import torchvision
    more = {"aux_logits": False, "init_weights": True} if name in ("inception_v3", "googlenet") else {"image_size": 64} if name.startswith("vit_") else {}
    return getattr(torchvision.models, name)(num_classes=10, **more)


def export(model, samples, out, format, small):
    if format == "onnx":
        export_onnx(model, samples, str(out / "model.onnx"))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n", min=1, max=512)},) if isinstance(model, (Modules, Transformers)) else None
        torch.export.save(torch.export.export(model.train(), getattr(model, "inputs", lambda x: (x,))(samples), strict=False, dynamic_shapes=shapes), out / "model.pt2")
    if small:
        repack(out / "model.pt2")


def repack(path):
    """Compresses an archive, leaves out its sample inputs, and shortens the paths of the user's files."""
    with zipfile.ZipFile(path) as z:
        entries = [(name, z.read(name)) for name in z.namelist() if not name.endswith("sample_inputs/model.pt")]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, data in entries:
            if name.endswith("models/model.json"):
                data = re.sub(r'File \\"[^"]*?((?:site-packages/)?[^/"]*(?:(?<=site-packages/)[^"]*)?)\\"', r'File \\"/\1\\"', data.decode()).encode()
            z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def export_onnx(model, samples, path):
    open_axes = {Branches: {0: "n"}, Written: {0: "n", 1: "t"}}.get(type(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (samples,), path, input_names=["samples"], output_names=["logits"], training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False, dynamo=False, opset_version=17, dynamic_axes=open_axes and {"samples": open_axes},
        )


def descend(model, samples, labels, rate, steps):
    """The losses of steps of gradient descent."""
    descent, losses = torch.optim.SGD(model.parameters(), lr=rate), []
    for _ in range(steps):
        descent.zero_grad()
        loss = loss_of(model(samples), labels)
        loss.backward()
        descent.step()
        losses.append(loss.item())
    return losses


def loss_of(logits, labels):
    return F.cross_entropy(logits, labels) if labels.dim() == 3 else F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def steady(model, samples, labels, steps):
    """The largest rate, of 1e-3, 1e-6 and 1e-8, at which rounding does not grow: PyTorch's losses in float32 and float64 are within 2e-5."""
    for power in (3, 6, 8):
        rate = 10.0 ** -power
        single = descend(copy.deepcopy(model), samples, labels, rate, steps)
        double = descend(copy.deepcopy(model).double(), samples.double() if samples.is_floating_point() else samples, labels, rate, steps)
        if all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(single, double)):
            return rate
    raise SystemExit("no rate is steady")


def draw(name, image=None, batch=None, rate=None):
    """A model in training mode without random numbers, samples, labels, tokens or pixels of a sample, classes and a rate; None: steady says it."""
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = build(name, image or SIZES.get(name, (64,))[0]).train()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
        if isinstance(m, nn.MultiheadAttention):
            m.dropout = 0.0
        if type(m).__name__ == "StochasticDepth":
            m.p = 0.0
        if type(m).__name__ == "DropPath":
            m.drop_prob = 0.0
        if isinstance(getattr(m, "drop_rate", None), float):  # timm's GhostNet drops by a function
            m.drop_rate = 0.0
    tokens = hasattr(model, "vocabulary")
    usual = SIZES.get(name, (0, 3, 0.1) if tokens else (64, 4, None))
    image, batch, rate = image or usual[0], batch or usual[1], usual[2] if rate is None else rate
    if tokens:
        image, classes = model.length, getattr(model, "classes", model.vocabulary)
        samples, labels = torch.randint(model.vocabulary, (batch, image)), torch.randint(classes, (batch, image) if getattr(model, "each", True) else (batch,))
        if hasattr(model, "padding"):  # positions pass over it
            samples[0, 4:6], samples[1, -3:] = model.padding, model.padding
        for i, n in enumerate(getattr(model, "lengths", ())):
            samples[i, n:], labels[i, n - 1:] = 0, -100
    else:
        classes = 10
        samples = torch.randn(batch, *getattr(model, "features", (3, image, image)))
        image, each = samples.shape[2] if samples.dim() > 2 else 1, getattr(model, "positions", 0)
        labels = torch.randint(classes, (batch, image, image) if name.startswith("segmentation.") or name in ("pixels", "unet") else (batch, each) if each else (batch,))
    return model, samples, labels, image, classes, rate


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--rate", type=float)
    p.add_argument("--image", type=int)
    p.add_argument("--batch", type=int)
    p.add_argument("--format", choices=("pt2", "onnx"), default="pt2")
    p.add_argument("--small", action="store_true")
    p.add_argument("--keep", action="store_true")
    a = p.parse_args()
    model, samples, labels, image, classes, rate = draw(a.model, a.image, a.batch, a.rate)
    tokens, batch = hasattr(model, "vocabulary"), len(samples)
    a.out.mkdir(parents=True, exist_ok=True)
    if not a.keep:
        export(copy.deepcopy(model), samples, a.out, a.format, a.small)  # which may run it, and so move running statistics
    if a.steps:
        rate = rate or steady(model, samples, labels, a.steps)
    losses = descend(model, samples, labels, rate or 0, a.steps)
    if not tokens:
        (a.out / "images.f32").write_bytes(samples.numpy().tobytes())
    (a.out / "reference.json").write_text(json.dumps({
        "model": a.model, "torch": torch.__version__, "image": image, "batch": batch, "classes": classes, "rate": rate or 0, "labels": labels.flatten().tolist(), "losses": losses,
        "tokens": samples.flatten().tolist() if tokens else None,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad and (p.grad is not None or not a.steps)),
    }))


if __name__ == "__main__":
    main()
