"""Train small tokenizers with Hugging Face's tokenizers, and write what they make of some texts, for plimsoll to read.

    python torch_tokenizers.py OUT              OUT/NAME/tokenizer.json and OUT/NAME/answers.json, one folder for each form
    python torch_tokenizers.py encode FOLDER FILE OUT
                                                the tokens of a text, as little-endian 32-bit numbers
    python torch_tokenizers.py noise FILE N     N random pieces of text
    python torch_tokenizers.py full OUT         OUT/t5 and OUT/albert with SentencePiece's own map of characters, which is large

Maps of characters are SentencePiece's, which has to be there.
"""

import functools
import io
import json
import pathlib
import random
import struct
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
CORPUS = ["The quick brown fox jumps over the lazy dog, and the dog isn't amused: 12345 times, it's said.",
          "Der schnelle braune Fuchs springt über den faulen Hund; l'été à Paris, déjà vu.", "func main() {\n\tfmt.Println(\"hello, world\")\n}\n\n",
          "Быстрая лиса прыгает через ленивую собаку.", "速い茶色の狐は怠け者の犬を飛び越える。", "We'll see what they've done, I'd say; they're here.  Two  spaces."] * 20
TEXTS = ["", " ", "Hello, world!", "  leading and trailing  ", "I'LL we'Ve it'S 'tis ‘quotes’ ſ'ſ 'ſa", "12345678 1,234.5 ٣٤٥ Ⅷ ½", "a\n\n\nb\r\n c \t\n d\t\te   f",
         "naïve café, cafe\u0301, A\u030a, \u1100\u1161\u11a8", "日本語のテキスト と 空白　全角", "emoji 👩‍👩‍👧‍👦 🇩🇪 e\u0301", "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c<|endof", "<s>hi</s> <unk> there",
         "\u00a0non\u00a0breaking\u2003em \u200bzero", "func f(x int) { return x+1 } // ok\n\n", "!!!???...---\n\nabc", "x" * 50, "the the the", "▁mark ▁ ▁▁a", "\x00\x01\x7f", " \n", "a \n \n b", "don't DON'T",
         "\u2028line\u2029para\x85next\x0bvt\x0cff\x1cfs", "<|end|><|end|>x", "<|endoftext|> a", "tab\tand space \t mixed", "1a2b3c", "_under_score__", "(((a)))", "''s ' s",
         "``quoted'' [MASK] x  <mask>  y", "Ｆｕｌｌ　ｗｉｄｔｈ ½ Ⅷ …", "soft\u00adhyphen", "你好 world 한국어 \u1100\u1161", "İstanbul ẞ ΑΣ", "z" * 40, "[CLS] a [SEP]", "\ufffd\u0378x\u166d"]


def on_bytes(split, ignore, compose):
    t = Tokenizer(models.BPE(ignore_merges=ignore))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)]
    if split:
        steps.insert(0, pre_tokenizers.Split(Regex(split), "isolated"))
        t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    else:
        t.pre_tokenizer = steps[0]
    if compose:
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False), AddedToken("<|end|>", normalized=False), AddedToken("<|end|><|end|>", normalized=False)])
    return t


def on_characters(normalizer, step):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    own = ["<unk>", "<s>", "</s>"]
    t.train_from_iterator(CORPUS[:2] * 20 + CORPUS[3:4] * 20, trainers.BpeTrainer(vocab_size=550, show_progress=False, special_tokens=own + [f"<0x{b:02X}>" for b in range(256)] + ["▁▁"]))
    state = json.loads(t.to_str())
    state["added_tokens"] = [a | {"normalized": False} for a in state["added_tokens"] if a["content"] in own]
    state["model"]["merges"].insert(0, ["▁", "▁"])
    t = Tokenizer.from_str(json.dumps(state))
    t.pre_tokenizer = step
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


RULES = ["A0\t20", "3000\t20", "200B\t20", "AD\t", "7F\t", "2026\t2E 2E 2E", "BD\t31 2044 32", "2167\t56 49 49 49", "65 301\tE9", "41 30A\tC5", "D A\t20", "A\t20", "9\t20", "D\t20"]
RULES += [f"{0xFF00 + c:X}\t{0x20 + c:X}" for c in range(1, 0x5F)]


@functools.cache
def charsmap(full):
    """SentencePiece's map of characters: its own, or a small one of RULES."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto

    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("\n".join(sorted(RULES)) + "\n")
        rules.flush()
        how, out = dict(normalization_rule_name="nmt_nfkc") if full else dict(normalization_rule_tsv=rules.name), io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=100, hard_vocab_limit=False, minloglevel=2, **how)
    model = proto.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def word_piece(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    own = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, show_progress=False, special_tokens=own))
    t.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    return t


def unigram(first, after, split, mask, full=False, fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([*first, normalizers.Precompiled(charsmap(full)), *after])
    marks = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks]) if split else marks
    own = ["<pad>", "</s>", "<unk>"] + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=len(own) + 300, show_progress=False, special_tokens=own, unk_token="<unk>"))
    state = json.loads(t.to_str())
    state["model"]["byte_fallback"] = fallback
    state["added_tokens"] = [a | {"normalized": False} for a in state["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(state))
    t.add_special_tokens([AddedToken(mask, lstrip=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    return t


QUOTES = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
SPACES = [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]

FORMS = {
    "gpt2": lambda: on_bytes(None, False, False),
    "llama3": lambda: on_bytes(HEAD + r"\p{N}{1,3}" + TAIL, True, False),
    "qwen2": lambda: on_bytes(HEAD + r"\p{N}" + TAIL, False, True),
    "llama2": lambda: on_characters(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
    "mistral": lambda: on_characters(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    "bert": lambda: word_piece(True),
    "bert-cased": lambda: word_piece(False),
    "t5": lambda: unigram([], SPACES, False, "<mask>"),
    "xlm-roberta": lambda: unigram([], [], True, "<mask>", fallback=True),
    "albert": lambda: unigram(QUOTES, [], True, "[MASK]"),
}
FULL = {"t5": lambda: unigram([], [], False, "<mask>", True), "albert": lambda: unigram(QUOTES, [], True, "[MASK]", True)}


def write(out, forms):
    for name, make in forms.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        t = make()
        if t.pre_tokenizer is None or name == "llama2":
            state = json.loads(t.to_str())
            state["pre_tokenizer"] = None
            t = Tokenizer.from_str(json.dumps(state))
        (folder / "tokenizer.json").write_text(t.to_str(pretty=False))
        (folder / "answers.json").write_text(json.dumps([{"text": x, "tokens": t.encode(x, add_special_tokens=False).ids, "sample": t.encode(x).ids} for x in TEXTS]))


def noise(n, seed=1):
    """Text of many scripts, spaces, numbers and marks."""
    r = random.Random(seed)
    parts = [c for x in CORPUS[:6] for c in x.split()] + TEXTS + [" ", "\n", "\t", "  ", "\r\n", "'s", "'LL", "123", "é", "e\u0301", "ß", "\u3000", "한국", "\u0e01\u0e33"]
    return "".join(r.choice(parts) if r.random() < 0.8 else chr(r.choice([r.randrange(32, 127), r.randrange(160, 0x600), r.randrange(0x900, 0x3000), r.randrange(0x4E00, 0x9FFF)])) for _ in range(n))


def main():
    if sys.argv[1] == "encode":
        t = Tokenizer.from_file(str(pathlib.Path(sys.argv[2]) / "tokenizer.json"))
        ids = t.encode(pathlib.Path(sys.argv[3]).read_bytes().decode(), add_special_tokens=False).ids
        return pathlib.Path(sys.argv[4]).write_bytes(struct.pack(f"<{len(ids)}I", *ids))
    if sys.argv[1] == "noise":
        return pathlib.Path(sys.argv[2]).write_bytes(noise(int(sys.argv[3])).encode())
    if sys.argv[1] == "full":
        return write(pathlib.Path(sys.argv[2]), FULL)
    write(pathlib.Path(sys.argv[1]), FORMS)


if __name__ == "__main__":
    main()
