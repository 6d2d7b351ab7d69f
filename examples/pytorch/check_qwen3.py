# Computes the held-out loss of the trained Qwen3 with transformers.
import json

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("runs/qwen3/final"), AutoTokenizer.from_pretrained("runs/qwen3/final")
records = [json.loads(line) for line in open("sums.jsonl")]
total = count = 0
for record in records[-len(records) // 10 :]:
    prompt, completion = tokenizer(record["prompt"]).input_ids, tokenizer(record["completion"]).input_ids + [tokenizer.eos_token_id]
    tokens = torch.tensor([prompt + completion])
    with torch.no_grad():
        logits = model(tokens).logits[0, len(prompt) - 1 : -1]
    total += cross_entropy(logits, tokens[0, len(prompt) :], reduction="sum").item()
    count += len(completion)
print(f"loss {total / count:.5f}")
