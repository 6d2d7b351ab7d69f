"""Trains parts of language models with Plimsoll and with PyTorch, and compares: adapters with PEFT, frozen weights with requires_grad.

    python torch_lora.py bin/plimsoll FOLDER [bfloat16]

It prints a row for each case and ends with 1 if a loss or a logit differs by more than it may. Needs torch, transformers and peft.
"""

import json
import pathlib
import subprocess
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

LENGTH, STEPS, RATE = 24, 3, 0.5
TEXT = ("the rays of light which differ in colour differ in degrees of refrangibility")[: LENGTH]
MOST_LOSS, MOST_LOGIT = 1e-4, 1e-5


def llama():
    c = transformers.LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)
    c.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
    return transformers.LlamaForCausalLM(c), "llama-2-32-4-2-88,rms_norm_eps=1e-06,rope_theta=10000"


def gpt2():
    c = transformers.GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                tie_word_embeddings=False)
    return transformers.GPT2LMHeadModel(c), "gpt2-2-32"


def sample():
    """The record that every batch is made of: LENGTH tokens, each followed by its label."""
    tokens = list((TEXT + "\n").encode())
    return torch.tensor([tokens[:-1]]), torch.tensor([tokens[1:]])


def run(*command):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def losses_of(folder):
    return [r["loss"] for r in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if "loss" in r and "step" in r]


def train(model, parameters):
    x, y = sample()
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(x).logits[0], y[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    plimsoll, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": TEXT[0], "completion": TEXT[1:]}) + "\n" for _ in range(40)))
    bad = 0
    for name, make, targets, frozen in [
        ("llama", llama, ["q_proj", "v_proj"], "model.embed_tokens,model.layers.0,*q_proj*"),
        ("llama", llama, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], "*norm*"),
        ("gpt2", gpt2, ["c_attn", "c_proj"], "transformer.wte,transformer.wpe,*bias"),
    ]:
        for kind in ("lora", "freeze"):
            torch.manual_seed(1)
            base, ours = make()
            base.eval()
            for p in base.parameters():
                torch.nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.1)
            weights = folder / f"{name}.safetensors"
            save_file({k: v.clone() for k, v in base.state_dict().items()}, weights, {"format": "pt"})
            out = folder / f"{name}-{kind}-{len(targets)}"
            command = [plimsoll, "train", "-m", ours, "--length", LENGTH, "--batch", 2, "--data", f"jsonl:{data}", "--classes", 256, "--steps", STEPS,
                       "--optimizer", "sgd", "--option", "sgd.momentum=0", "--lr", RATE, "--weight-decay", 0, "--init", weights, "--out", out, "--force"]
            if kind == "lora":
                start = out.with_suffix(".start")
                model = get_peft_model(base, LoraConfig(r=4, lora_alpha=6, target_modules=targets, fan_in_fan_out=name == "gpt2"))
                for k, p in model.named_parameters():
                    if "lora_B" in k:
                        torch.nn.init.normal_(p, 0.0, 0.1)
                model.save_pretrained(start)
                run(*command, "--lora", start)
                what = "+".join(targets)
            else:
                model, what = base, frozen
                run(*command, "--freeze", frozen)
                match = lambda n, p: any(__import__("fnmatch").fnmatchcase(n[:i], p) for i in range(1, len(n) + 1) if i == len(n) or n[i] == ".")
                for k, p in model.named_parameters():
                    p.requires_grad = not any(match(k, pattern) for pattern in frozen.split(","))
            want = train(model, [p for p in model.parameters() if p.requires_grad])
            got = losses_of(out)
            loss = max(abs(a - b) / abs(b) for a, b in zip(got, want, strict=True))
            x, _ = sample()
            trained = model(x).logits
            if kind == "lora":  # the adapter that Plimsoll wrote, in PEFT, against PEFT's own
                again, _ = make()
                again.load_state_dict(load_file(weights))
                loaded = PeftModel.from_pretrained(again, out).eval()(x).logits
            else:
                again, _ = make()
                again.load_state_dict(load_file(out / "final.safetensors"))
                loaded = again.eval()(x).logits
            logit = ((loaded - trained).abs().max() / trained.abs().max()).item()
            judged = json.loads(run(plimsoll, "evaluate", "--json", "-m", ours, "--length", LENGTH, "--batch", 1, "--data", f"jsonl:{data}", "--classes", 256,
                                    "--weights", *((weights, "--lora", out) if kind == "lora" else (out,))))["loss"]
            x, y = sample()
            there = torch.nn.functional.cross_entropy(loaded[0], y[0]).item()
            ok = loss <= MOST_LOSS and logit <= MOST_LOGIT and abs(judged - there) <= MOST_LOSS * there
            bad += not ok
            print(f"| {name} | {kind} {what} | {want[0]:.6f} | {want[-1]:.6f} | {loss:.1e} | {logit:.1e} | {abs(judged - there) / there:.1e} | {'yes' if ok else 'NO'} |", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
