"""A table of models: exported by PyTorch as .pt2 archives, imported, trained for three steps beside PyTorch, and trained under a limit.

    go build -C bench/research -o ../../out/exported ./peers/exported
    python3 torch_table.py out/exported bin/plimsoll out/pt2 [MODEL ...]

Without models it takes all of FAMILIES: torchvision's classifiers and models for segmentation, families of timm and of transformers, at small
sizes, and a few models as people write them. Each has 10 classes or a small vocabulary, images of 64 pixels unless it needs more, a batch of 2 to
4, and a rate at which rounding does not grow (see torch_export.py). The last column is from `plimsoll validate`, which trains a step within the
first share of store-all's peak, of 50, 75, 90, 97 and 100 %, that a plan fits: whether all plans have store-all's bits and the predicted peak.
Prints a row of a table for each.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys

from PIL import Image

TIMM = """resnet18 resnet26d resnetv2_50 seresnet18 regnetx_002 regnety_002 regnetz_b16 efficientnet_b0 tf_efficientnetv2_b0 mobilenetv1_100
mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small convnext_atto convnextv2_atto vit_tiny_patch16_224 deit_tiny_patch16_224
deit_tiny_distilled_patch16_224 deit3_small_patch16_224 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 beit_base_patch16_224
beitv2_base_patch16_224 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 maxvit_pico_rw_256 maxvit_rmlp_pico_rw_256 nfnet_l0 poolformer_s12 vovnet39a
ghostnet_050 mobilevit_xxs""".split()

TORCHVISION = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mobilenet_v2
mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d wide_resnet50_2 shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t
vgg11 vgg11_bn vit_b_32""".split()

SEGMENTATION = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()

TEXTS = """transformers llama qwen2 qwen3 mistral phi3 opt bloom gpt_neox gptj gpt_neo gemma gemma2 gemma3 phi falcon stablelm olmo olmo2 cohere
starcoder2 granite smollm3 mpt codegen helium glm nemotron exaone4 bert roberta distilbert electra albert camembert xlm_roberta mpnet modernbert
deberta_v2 mobilebert squeezebert roformer layoutlm ernie megatron_bert llama_masked bert_masked t5_encoder hf_vit hf_deit hf_convnext hf_resnet""".split()

OWN = "tiny zeros unet functions mobile windows vision whisper_encoder".split()

FAMILIES = OWN + TEXTS + TORCHVISION + ["segmentation." + name for name in SEGMENTATION] + ["timm." + name for name in TIMM]


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1] if lines else ""


def export(name, folder, *more):
    """The last line of the error with which PyTorch refuses, or nothing."""
    script = pathlib.Path(__file__).with_name("torch_export.py")
    made = subprocess.run([sys.executable, script, name, folder, *more], capture_output=True, text=True)
    return last_line(made.stderr) if made.returncode != 0 else ""


def data(folder):
    """Flags for samples of the model's kind, where those that its shape suggests do not fit it: other tokens, and pixels with classes."""
    reference = json.loads((folder / "reference.json").read_text())
    if reference.get("tokens"):
        tokens = [token % 40 for token in range(4096)]
        (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        return ["--data", f"nanogpt:{folder / 'tokens.bin'}"]
    if len(reference["labels"]) == reference["batch"]:
        return []
    return ["--data", "shapes" if reference["image"] >= 16 else f"masks:{masks(folder, reference['image'])}"]


def masks(folder, size):
    """A folder of pictures with a class for each pixel, of the size that a model has."""
    draw, out = random.Random(1), folder / "masks"
    for kind, mode, most, channels in (("images", "RGB", 255, 3), ("masks", "L", 9, 1)):
        (out / kind).mkdir(parents=True, exist_ok=True)
        for i in range(20):
            Image.frombytes(mode, (size, size), bytes(draw.randint(0, most) for _ in range(size * size * channels))).save(out / kind / f"{i}.png")
    return out


def limited(program, folder):
    """Whether all plans within a limit between the smallest and store-all's peak have its bits and the peak that was predicted; else the error."""
    batch = str(json.loads((folder / "reference.json").read_text())["batch"])
    for share in ("50%", "75%", "90%", "97%", "100%"):
        made = subprocess.run([program, "validate", "-m", folder / "model.pt2", "--batch", batch, *data(folder), "--memory", share, "--steps", "1",
                               "--quiet"], capture_output=True, text=True)
        if made.returncode == 0:
            return "same bits and peak at " + share
        if "no strategy fits" not in made.stderr:
            break
    return last_line(made.stderr)[:160]


def row(exported, plimsoll, out, name):
    folder = out / name
    error = export(name, folder, "--steps", "0")
    if error:
        return [name, "no", "", error, "", "", "", ""]
    read = subprocess.run([exported, folder], capture_output=True, text=True)
    if "0 losses" not in read.stderr:  # it is refused before its losses are looked at
        reason = last_line(read.stderr).split("model.pt2: ")[-1].split("; ")[0]
        return [name, "yes", "no", reason, "", "", "", ""]
    plan = limited(plimsoll, folder)
    error = export(name, folder, "--keep")
    if error:
        return [name, "yes", "yes", error, "", "", "", plan]
    reference = json.loads((folder / "reference.json").read_text())
    read = subprocess.run([exported, folder], capture_output=True, text=True)
    rows = [line for line in read.stdout.splitlines() if line.startswith(f"| {name} |")]
    if not rows:
        return [name, "yes", "yes", last_line(read.stderr), "", "", "", plan]
    losses = f"{reference['losses'][0]:.6f} to {reference['losses'][-1]:.6f}"
    verdict = "" if read.returncode == 0 else "losses differ"
    return [name, "yes", "yes", verdict, f"{reference['rate']:.0e}", losses, rows[0].split("|")[-2].strip(), plan]


def main():
    exported, plimsoll, out = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    print("| model | exported | imported | first refusal | rate | losses of PyTorch | ours differ by at most | under a limit |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in sys.argv[4:] or FAMILIES:
        print("| " + " | ".join(row(exported, plimsoll, out, name)) + " |", flush=True)
        for large in (out / name).glob("model.pt2"):
            large.unlink()


if __name__ == "__main__":
    main()
