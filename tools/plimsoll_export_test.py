"""Tests of plimsoll_export.py: python3 tools/plimsoll_export_test.py, with torch, and bin/plimsoll built (PLIMSOLL=another)."""

import contextlib
import io
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import plimsoll_export as pe
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

PLIMSOLL = os.environ.get("PLIMSOLL", str(Path(__file__).parents[1] / "bin" / "plimsoll"))
SHARES = (100, 70, 50, 40)


def plan(chain, *flags):
    """Returns the plan that plimsoll makes of a chain."""
    with tempfile.TemporaryDirectory() as folder:
        c, p = f"{folder}/c.json", f"{folder}/p.json"
        pe.write(chain, c)
        subprocess.run([PLIMSOLL, "plan", "-q", "-c", c, "-o", p, *flags], check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(p).read_text())


def ops(text):
    """Returns a plan of the text form."""
    names = {"Fall": "forward_all", "Fck": "forward_checkpoint", "F": "forward_discard", "B": "backward", "O": "offload"}
    split = [(op.rstrip("0123456789"), int(op.lstrip("FallckBO"))) for op in text.split()]
    return {"format": pe.FORMATS["plan"], "ops": [{"op": names[op], "layer": l} for op, l in split]}


class Live(TorchDispatchMode):
    """Tracks storages from the op that returns them until they die: an oracle for what the profiler's events say, less what
    kernels take inside."""

    def __init__(self):
        super().__init__()
        self.storages, self.peak = WeakIdKeyDictionary(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        y = func(*args, **(kwargs or {}))
        old = {id(t.untyped_storage()) for t in tensors((args, kwargs))}
        for t in tensors(y):
            if id(t.untyped_storage()) not in old:
                self.storages[t.untyped_storage()] = t.untyped_storage().nbytes()
        self.peak = max(self.peak, self.live())
        return y

    def live(self, without=()):
        skip = {id(t.untyped_storage()) for t in without}
        return sum(n for s, n in self.storages.items() if id(s) not in skip)


def tensors(tree):
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def saved_by_hooks(layer, x):
    """Returns the bytes that the backward of a layer needs beyond its input: storages that autograd saves, once each, and the output."""
    storages = {}

    def pack(t):
        storages[pe.storage(t)] = t.untyped_storage().nbytes()
        return t.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = layer(pe.differentiable(x, x.is_floating_point()))
    storages[pe.storage(y)] = y.untyped_storage().nbytes()
    known = {pe.storage(t) for t in (x, *layer.modules().parameters(), *layer.modules().buffers(), *layer.parameters)}
    return sum(n for address, n in storages.items() if address not in known), y.detach()


class Examples(unittest.TestCase):
    """The three examples: measured, planned by plimsoll, run."""

    def each(self):
        for name in ("mlp", "resnet", "gpt"):
            model, x, loss, names = pe.build(name, "cpu", 1)
            with self.subTest(name):
                yield name, model, x, loss, pe.split(model, x, names)

    def test_plans_give_the_gradients_in_their_peak(self):
        ran = 0
        for name, model, x, loss, layers in self.each():
            chain = pe.export(layers, x, loss, name, repeats=3, warmup=1)
            for share in SHARES:
                got = pe.compare(plan(chain, "--memory", f"{share}%"), layers, x, loss, model)
                print(f"{name:6} {share:3} %: predicted {got.predicted_peak_bytes:>11,} B, measured {got.measured_peak_bytes:>11,} B, "
                      f"plain {got.plain_peak_bytes:>11,} B, gradients differ by {got.difference:.2g}", flush=True)  # fmt: skip
                got.check()
                self.assertEqual(got.difference, 0)
                self.assertGreater(got.measured_peak_bytes, 0.9 * got.predicted_peak_bytes, "the plan counts what is not there")
                self.assertLessEqual(got.plain_peak_bytes, chain_peak(chain))
                ran += 1
        self.assertEqual(ran, 12)

    def test_saved_bytes_are_what_autograd_saves(self):
        ran = 0
        for name, model, x, loss, layers in self.each():
            chain = pe.export(layers, x, loss, name, repeats=1, warmup=1)
            for layer, entry in zip(layers, chain["layers"]):
                saved, x = saved_by_hooks(layer, x)
                self.assertEqual(entry["saved_bytes"], saved, f"{name}, {layer.name}")
                self.assertEqual(entry["output_bytes"], x.untyped_storage().nbytes())
                self.assertEqual(entry["gradient_bytes"], x.nbytes)
                ran += 1
        self.assertEqual(ran, 34 + 19 + 10)
        # gpt: the gradient of the tied weight is there already when the first layer adds to it.
        self.assertGreater(chain["layers"][0]["backward_overhead_bytes"], 0.9 * layers[0].parameters[0].nbytes)

    def test_the_profiler_sees_the_storages_that_live(self):
        for _, model, x, loss, layers in self.each():
            with Live() as live:
                y = pe.Layer("model", layers)(x)
            with pe.Memory("cpu") as memory:
                z = pe.Layer("model", layers)(x)
            self.assertEqual(memory.kept(), live.live())
            self.assertGreaterEqual(memory.peak(), live.peak)
            self.assertLess(memory.peak(), 1.2 * live.peak)
            del y, z

    def test_export_leaves_the_model_as_it_was(self):
        for name, model, x, loss, layers in self.each():
            state = {k: v.clone() for k, v in model.state_dict().items()}
            generator, grads = torch.get_rng_state(), [torch.ones_like(p) for p in model.parameters()]
            for p, g in zip(model.parameters(), grads):
                p.grad = g
            pe.export(layers, x, loss, name, repeats=1, warmup=0)
            self.assertTrue(all(torch.equal(v, state[k]) for k, v in model.state_dict().items()))
            self.assertTrue(torch.equal(generator, torch.get_rng_state()))
            self.assertTrue(all(p.grad is g and torch.equal(g, torch.ones_like(g)) for p, g in zip(model.parameters(), grads)))


def chain_peak(chain):
    """Returns the peak of the step that recomputes nothing, by the rules of docs/formats.md."""
    layers, held, peak = chain["layers"], chain["input_bytes"], 0
    for e in layers:
        held += e["saved_bytes"]
        peak = max(peak, held + e["forward_overhead_bytes"])
    delta = 0
    for i, e in reversed(list(enumerate(layers))):
        made = layers[i - 1]["gradient_bytes"] if i else chain["input_bytes"]
        peak = max(peak, held + delta + made + e["backward_overhead_bytes"])
        held, delta = held - e["saved_bytes"], made
    return peak


class Steps(unittest.TestCase):
    """What a step along a plan does beside the plain one."""

    REPEATS = "Fck1 F2 Fall3 Fall4 B4 B3 Fck1 Fall2 B2 Fall1 B1"

    def step(self, model, x, loss, text, names=None, context=contextlib.nullcontext):
        """Compares a step along a plan, twice with the update of an optimizer, with plain ones: weights, buffers, losses."""
        gave = []
        start = {k: v.clone() for k, v in model.state_dict().items()}
        layers = pe.split(model, x, names)
        for planned in (False, True):
            model.load_state_dict(start)
            torch.manual_seed(5)
            sgd, values = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9), []
            for _ in range(2):
                sgd.zero_grad()
                with context():
                    value = pe.run(ops(text), layers, x, loss) if planned else loss(model(x))
                if not planned:
                    value.backward()
                sgd.step()
                values.append(value.detach().clone())
            gave.append([*values, torch.get_rng_state(), *(v.clone() for v in model.state_dict().values())])
        for a, b in zip(*gave):
            self.assertTrue(torch.equal(a, b))
        return gave

    def test_dropout_and_batchnorm_are_repeated(self):
        model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)), nn.Linear(8, 8), nn.Dropout(0.3))
        model = nn.ModuleDict({"a": nn.Sequential(*model[0]), "b": model[1], "c": model[2]})
        whole = Listed(model["a"], model["b"], model["c"])
        x = torch.randn(16, 8)
        gave = self.step(whole, x, lambda y: y.square().mean(), self.REPEATS, ["a", "b", "c"])
        self.assertIn(2, [v.item() for v in gave[1] if v.dtype == torch.int64])  # num_batches_tracked

    def test_autocast(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
        self.step(model, torch.randn(16, 8), lambda y: y.float().square().mean(), self.REPEATS, context=lambda: torch.autocast("cpu", torch.bfloat16))

    def test_autocast_keeps_the_peak(self):
        model, x = nn.Sequential(*(nn.Linear(128, 128) for _ in range(6))), torch.randn(64, 128)
        with torch.autocast("cpu", torch.bfloat16):
            layers = pe.split(model, x)
            chain = pe.export(layers, x, lambda y: y.float().square().mean(), repeats=1)
        made = plan(chain, "--memory", "70%")
        with torch.autocast("cpu", torch.bfloat16), pe.Memory("cpu") as memory:
            pe.run(made, layers, x, lambda y: y.float().square().mean())
        self.assertLessEqual(x.nbytes + memory.peak(pe.gradients(layers)), made["predicted"]["peak_bytes"] + pe.MARGIN_BYTES)

    def test_frozen_layers(self):
        model, seen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)), []
        model[0].requires_grad_(False)
        self.step(model, torch.randn(16, 8), lambda y: y.square().mean(), self.REPEATS)
        self.assertIsNone(model[0].weight.grad)
        layers = pe.split([model[0], lambda x: (seen.append(x.requires_grad), x.tanh())[1], model[2]], torch.randn(16, 8))
        seen.clear()
        pe.run(ops(self.REPEATS), layers, torch.randn(16, 8), lambda y: y.square().mean())
        self.assertEqual(seen, [False] * 2)  # no gradient that nobody needs

    def test_gradients_of_the_batch_flow_on(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
        w = torch.randn(16, 8, requires_grad=True)
        layers = pe.split(model, w * 2)
        pe.run(ops(self.REPEATS), layers, w * 2, lambda y: y.square().mean())
        got, w.grad = w.grad, None
        model(w * 2).square().mean().backward()
        self.assertTrue(torch.equal(got, w.grad))

    def test_gradients_are_added(self):
        model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(16, 8)
        layers = pe.split(model, x)
        for _ in range(2):
            pe.run(ops(self.REPEATS), layers, x, lambda y: y.square().mean())
        twice = model[0].weight.grad
        model.zero_grad()
        pe.run(ops(self.REPEATS), layers, x, lambda y: y.square().mean())
        self.assertTrue(torch.equal(twice, 2 * model[0].weight.grad))

    def test_a_store_that_a_function_keeps_by_itself_counts(self):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mask = x > 0  # no save_for_backward
                return 2 * x

            @staticmethod
            def backward(ctx, g):
                return 2 * g * ctx.mask

        chain = pe.export(pe.split([Twice.apply, nn.Linear(64, 64)], torch.randn(64, 64)), torch.randn(64, 64, requires_grad=True), torch.mean, repeats=1)
        self.assertEqual(chain["layers"][0]["saved_bytes"], 64 * 64 * 4 + 64 * 64)


class Listed(nn.Module):
    def __init__(self, a, b, c):
        super().__init__()
        self.a, self.b, self.c = a, b, c

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class Splits(unittest.TestCase):
    def names(self, *model):
        return [layer.name for layer in pe.split(model, torch.randn(4, 8))]

    def refused(self, error, text, f):
        with self.assertRaisesRegex(error, text):
            f()

    def test_views_and_changes_in_place_belong_to_the_layer_before(self):
        self.assertEqual(self.names(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Identity(), nn.Linear(8, 6), nn.Unflatten(1, (2, 3))), ["0+1+2", "3+4"])
        self.assertEqual(self.names(nn.Flatten(), nn.Identity(), nn.Linear(8, 8)), ["0+1+2"])

    def test_sequentials_are_taken_apart(self):
        layers = pe.split(nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())), torch.randn(4, 8))
        self.assertEqual([layer.name for layer in layers], ["0", "1.0", "1.1"])

    def test_changes_of_the_input_in_place_are_refused(self):
        self.refused(pe.ChainError, "layer 0 changes its input in place", lambda: self.names(nn.ReLU(inplace=True), nn.Linear(8, 8)))
        self.refused(pe.ChainError, "layer 1 changes its input in place", lambda: self.names(nn.Linear(8, 8), lambda x: x.relu_() + 1))

    def test_branches_are_refused(self):
        kept = {}

        def keep(x):
            kept["x"] = x
            return torch.sin(x)

        self.refused(pe.ChainError, "layer 2 also uses what layer 1 takes or computes", lambda: self.names(nn.Linear(8, 8), keep, lambda y: y + kept["x"]))

        def inner(x):
            kept["x"] = torch.exp(x)
            return kept["x"] + 1

        self.refused(pe.ChainError, "layer 3 also uses what layer 1", lambda: self.names(nn.Linear(8, 8), inner, nn.Tanh(), lambda y: y + kept["x"]))
        self.refused(pe.ChainError, "layer 0 returns a tuple", lambda: self.names(lambda x: (x, x)))

    def test_named_submodules_must_be_the_whole_module(self):
        class Skips(Listed):
            def forward(self, x):
                y = self.a(x)
                return self.c(self.b(y) + y)

        class Again(Listed):
            def forward(self, x):
                y = self.a(x)
                self.b(y)
                return self.c(y)

        x, parts = torch.randn(4, 8), [nn.Linear(8, 8) for _ in range(3)]
        abc = ["a", "b", "c"]
        self.refused(pe.ChainError, "between b and c the model computes something", lambda: pe.split(Skips(*parts), x, abc))
        self.refused(pe.ChainError, "c takes what a returns, not what b does: the layers branch", lambda: pe.split(Again(*parts), x, abc))
        self.refused(pe.ChainError, "between a and c the model computes", lambda: pe.split(Listed(*parts), x, ["a", "c"]))
        self.refused(pe.ChainError, "between b and the model's output", lambda: pe.split(Listed(*parts), x, ["a", "b"]))
        self.refused(pe.ChainError, "no submodule d", lambda: pe.split(Listed(*parts), x, ["a", "d"]))
        self.refused(pe.ChainError, "a is called twice", lambda: pe.split(Listed(parts[0], parts[0], parts[1]), x, ["a", "c"]))
        self.refused(pe.ChainError, "Listed is no nn.Sequential", lambda: pe.split(Listed(*parts), x))
        self.assertEqual(len(pe.split(Listed(*parts), x, abc)), 3)

    def test_dictionaries_and_keywords(self):
        class Words(Listed):
            def forward(self, *, ids=None, scale=1.0):
                return self.c(self.b(shift=0.5, input=self.a(ids)))

        class Shifted(nn.Linear):
            def forward(self, input, shift):
                return super().forward(input) + shift

        torch.manual_seed(3)
        model, batch = Words(nn.Linear(8, 8), Shifted(8, 8), nn.Linear(8, 8)), {"ids": torch.randn(16, 8)}
        layers, loss = pe.split(model, batch, ["a", "b", "c"]), lambda y: y.square().mean()
        self.assertEqual([layer.name for layer in layers], ["a", "b", "c"])
        got = pe.compare({**ops(Steps.REPEATS), "predicted": {"peak_bytes": 1 << 20}}, layers, batch, loss, model)
        self.assertEqual(got.difference, 0)
        chain = pe.export(layers, batch, loss, repeats=1)
        self.assertEqual((chain["input_bytes"], chain["batch"]), (16 * 8 * 4, 16))
        two = {**batch, "mask": torch.ones(16)}
        self.refused(pe.ChainError, "^the batch is a dict of ids, mask: one tensor goes into a chain; give a module", lambda: pe.split(model, two, ["a"]))
        self.refused(pe.ChainError, "^the batch is a dict of nothing", lambda: pe.export(layers, {}, loss))
        self.refused(pe.ChainError, "^the batch is a list: one tensor", lambda: pe.split(model, [batch["ids"]], ["a"]))
        self.refused(pe.ChainError, "take a tensor: give ids itself", lambda: pe.split(nn.Sequential(nn.Linear(8, 8)), batch))

        class Said(nn.Module):
            def forward(self, x):
                return {"logits": x}

        self.refused(pe.ChainError, "c returns a dict: one tensor goes", lambda: pe.split(Listed(model.a, model.c, Said()), batch["ids"], ["a", "b", "c"]))

    def test_what_a_module_does_between_its_submodules_is_not_lost(self):
        def between(change):
            class Changes(Listed):
                def forward(self, x):
                    return self.c(self.b(change(self.a(x))))

            return lambda: pe.split(Changes(*(nn.Linear(8, 8) for _ in range(3))), torch.randn(4, 8), ["a", "b", "c"])

        self.refused(pe.ChainError, "between a and b the model computes something", between(lambda y: F.relu(y, inplace=True)))
        self.refused(pe.ChainError, "between a and b the model computes something", between(lambda y: y.detach()))
        self.refused(pe.ChainError, "do not compute what the model does", between(lambda y: (y.data.mul_(2), y)[1]))

    def test_batches_of_another_size(self):
        model, x, _, names = pe.build("resnet", "cpu", 1)
        layers = pe.split(model, x, names)
        self.assertEqual(layers[-2].name, "pool+view")
        text = " ".join(f"Fall{i}" for i in range(1, 21)) + " " + " ".join(f"B{i}" for i in range(20, 0, -1))
        pe.run(ops(text), layers, x[:5], lambda y: y.square().mean())
        got = pe.gradients(layers)
        model.zero_grad()
        model(x[:5]).square().mean().backward()
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, pe.gradients(layers), strict=True)))


class Plans(unittest.TestCase):
    """Plans that cannot be run are refused before anything is computed."""

    def refused(self, text, content):
        model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(4, 8)
        layers = pe.split(model, x)
        with self.assertRaisesRegex(pe.PlanError, text):
            pe.run(content, layers, x, torch.sum)
        self.assertIsNone(model[0].weight.grad)

    def test_other_kinds_of_plans(self):
        self.refused(r"op 2 \(offload 1\): only plans that recompute", ops("Fall1 O1 Fall2 Fall3 B3 B2 B1"))
        self.refused("several devices", {"format": pe.FORMATS["plan"], "stages": []})
        self.refused("the plan is for 4 layers, the model has 3 with the loss", ops("Fall1 Fall2 Fall3 Fall4 B4 B3 B2 B1"))
        self.refused("not those of all layers", ops("Fall1 Fall2 Fall3 B3 B1 B2"))

    def test_plans_that_break_a_rule(self):
        self.refused(r"op 2 \(forward_all 3\): the input of layer 3 is not in memory", ops("Fall1 Fall3 Fall2 B3 B2 B1"))
        self.refused(r"op 4 \(backward 3\): what layer 3 saves is not in memory", ops("Fall1 Fall2 Fck3 B3 B2 B1"))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "p.json")
            self.refused("No such file", str(path))
            path.write_text("{")
            self.refused("p.json", str(path))
            path.write_text('{"format": "plimsoll.chain/v1"}')
            self.refused("no plan file", str(path))


class CommandLine(unittest.TestCase):
    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = pe.main(arguments)
        return code, out.getvalue(), err.getvalue()

    def test_a_model_of_ones_own(self):
        with tempfile.TemporaryDirectory() as folder:
            model, c, p = (str(Path(folder, name)) for name in ("mine.py", "c.json", "p.json"))
            Path(model).write_text(
                "import torch\ndef build():\n"
                "    return torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(5))), torch.randn(256, 64), lambda y: y.square().mean()\n"
            )
            code, out, err = self.call("export", f"{model}:build", "-o", c, "--repeats", "1")
            self.assertEqual((code, err), (0, ""))
            self.assertIn("6 layers with the loss", out)
            subprocess.run([PLIMSOLL, "plan", "-q", "-c", c, "-o", p, "--memory", "80%"], check=True, stdout=subprocess.DEVNULL)
            code, out, err = self.call("run", f"{model}:build", "-p", p, "--json")
            self.assertEqual((code, err, json.loads(out)["difference"]), (0, "", 0))
            code, out, err = self.call("run", "gpt", "-p", p)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("the plan is for 6 layers, the model has 11 with the loss", err)
            self.assertEqual(self.call("export", f"{model}:make", "-o", c)[0], 2)
            other = str(Path(folder, "other.py"))
            Path(other).write_text("import torch\ndef build():\n    return torch.nn.Linear(2, 2), {'a': torch.ones(1), 'b': torch.ones(1)}, torch.sum\n")
            code, out, err = self.call("export", f"{other}:build", "-o", c)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1))
            self.assertIn("the batch is a dict of a, b", err)
            less = json.loads(Path(p).read_text())
            less["predicted"]["peak_bytes"] //= 2
            Path(p).write_text(json.dumps(less))
            code, out, err = self.call("run", f"{model}:build", "-p", p)
            self.assertEqual(code, 1)
            self.assertIn("should take at most", err)

    def test_an_archive(self):
        with tempfile.TemporaryDirectory() as folder:
            model, archive = str(Path(folder, "mine.py")), str(Path(folder, "m.pt2"))
            Path(model).write_text(
                "import torch\nfrom torch import nn\nclass Net(nn.Sequential):\n    def forward(self, image):\n        return super().forward(image)\n"
                "def build():\n    net = Net(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 10))\n"
                "    return net, {'image': torch.randn(8, 3, 16, 16)}, lambda y: y.sum()\n"
                "def none():\n    return [torch.relu], torch.ones(1), torch.sum\n"
            )
            code, out, err = self.call("pt2", f"{model}:build", "-o", archive)
            self.assertEqual((code, err, out), (0, "", f"{archive}: 7,962 numbers train, 0 are frozen\n"))
            trained = subprocess.run([PLIMSOLL, "train", "-m", archive, "--steps", "2", "--batch", "8", "-q"], check=True, capture_output=True, text=True)
            self.assertIn("trained   m.pt2", trained.stdout.replace(folder + "/", ""))
            code, out, err = self.call("pt2", f"{model}:none", "-o", str(Path(folder, "n.pt2")))
            self.assertEqual((code, out, err.count("\n")), (2, "", 1))
            self.assertEqual(sorted(p.name for p in Path(folder).glob("*.pt2")), ["m.pt2"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
