#!/usr/bin/env python3
"""PyTorch models as Plimsoll's chains, and Plimsoll's plans as steps of PyTorch. Needs torch, nothing else.

    layers = split(model, x)                      # an nn.Sequential, a list of modules, or any module and names of its parts
    write(export(layers, x, loss), "c.json")      # measured; then: plimsoll plan -c c.json --memory 50% -o p.json
    value = run("p.json", layers, x, loss)        # one forward and backward along the plan; gradients are in .grad

and the same from the command line, for examples and for what a function of yours returns (a model, a batch and a loss, and
names, if the model is no nn.Sequential):

    plimsoll_export.py pt2 my_model.py:build -o model.pt2    # then: plimsoll train -m model.pt2
    plimsoll_export.py export my_model.py:build -o c.json
    plimsoll_export.py run my_model.py:build -p p.json

The files are those of docs/formats.md. A layer is what runs between two cut points: one tensor comes in, one goes out. Sizes
count storages, once each, as the allocator gives them out; weights and their gradients are static memory and in no size but
weight_bytes. The memory of an op is read from the events of torch.profiler, so temporaries inside PyTorch's kernels count as well.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import sys
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes to standard error
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
from torch import nn

FORMATS = {"chain": "plimsoll.chain/v1", "plan": "plimsoll.plan/v1"}

# What a step may take beyond its plan's peak and what it keeps to repeat layers: the value of the loss, the state of the random
# generator while it is looked at.
MARGIN_BYTES = 8 << 10


class ChainError(ValueError):
    """The model is not a chain of layers as a plan needs it; the message names the layer."""


class PlanError(ValueError):
    """The plan cannot be run; the message names the op."""


# --- Layers: from a model to a chain. ---


@dataclass
class Layer:
    """A part of the model from one cut point to the next: pieces that run one after the other."""

    name: str
    pieces: list[Callable]
    random: bool = False  # it draws random numbers
    changed: list[torch.Tensor] = field(default_factory=list)  # buffers that its forward changes, as BatchNorm's statistics
    parameters: list[torch.Tensor] = field(default_factory=list)  # that it uses, frozen ones included

    def __call__(self, x):
        for piece in self.pieces:
            x = piece(x)
        return x

    def modules(self):
        return nn.ModuleList(p for p in self.pieces if isinstance(p, nn.Module))

    def buffers(self):
        return list(self.modules().buffers())


def split(model, x, names=None):
    """Returns the layers of a model, found by running it once, layer after layer, on a batch.

    model: an nn.Sequential (those inside it are taken apart, too), a list of modules and functions that run one after the other, or
    any module with names of its submodules that do; "blocks.*" stands for all children of blocks. Between them the module may change
    shapes (flatten), nothing else. Where a piece returns its input, a view of it, or changes it in place, there is nothing to
    keep or drop in between: it becomes part of the layer before. Errors: ChainError.

    x: a tensor, or a dict of one, which the module takes by that keyword.

    The layers are right as long as the model stays in the mode (train or eval) it is in, and the same parameters need gradients.
    """
    keyword, x = entering(x)
    if keyword and not names:
        raise ChainError(f"the batch is a dict, and layers that run one after the other take a tensor: give {keyword} itself, or names of a module's submodules")
    pieces, want = named_pieces(model, x, keyword, names) if names else (sequence(model), None)
    if not pieces:
        raise ChainError("the model has no layers")
    whole = nn.ModuleList(m for _, m in pieces if isinstance(m, nn.Module))
    with undisturbed(whole.buffers(), whole.parameters(), x.device):
        layers = join(pieces, x)
    with undisturbed(whole.buffers(), whole.parameters(), x.device):
        got = study(layers, x)
    if want is not None and not torch.allclose(got, want, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ChainError("the submodules, one after the other, do not compute what the model does: it computes something between them")
    return layers


def entering(x):
    """Returns the keyword by which a model takes a batch, None where it is the first argument, and the tensor. Errors: ChainError."""
    if isinstance(x, torch.Tensor):
        return None, x
    if not isinstance(x, Mapping):
        raise ChainError(f"the batch is a {type(x).__name__}: one tensor goes into a chain, by itself or in a dict with the keyword that the model takes it by")
    tensors = [name for name, value in x.items() if isinstance(value, torch.Tensor)]
    if len(x) != 1 or not tensors:
        raise ChainError(f"the batch is a dict of {', '.join(map(str, x)) or 'nothing'}: one tensor goes into a chain; give a module that makes the others of it, or has them")
    return tensors[0], x[tensors[0]]


def call(model, x, keyword):
    return model(**{keyword: x}) if keyword else model(x)


def sequence(model, prefix=""):
    """Returns names and pieces of an nn.Sequential or a list."""
    if isinstance(model, nn.Module) and type(model).forward is not nn.Sequential.forward and not isinstance(model, nn.ModuleList):
        raise ChainError(f"{type(model).__name__} is no nn.Sequential: name the submodules that run one after the other")
    named = model.named_children() if isinstance(model, nn.Module) else ((str(i), m) for i, m in enumerate(model))
    pieces = []
    for name, m in named:
        inner = isinstance(m, nn.Module) and type(m).forward is nn.Sequential.forward
        pieces += sequence(m, f"{prefix}{name}.") if inner else [(prefix + name, m)]
    return pieces


def named_pieces(model, x, keyword, names):
    """Returns the named submodules, and views between them, of a module, as its forward runs them, seen by hooks, and its output."""
    wanted = {name: model.get_submodule(name) for name in expand(model, names)}
    trace = Trace()
    hooks = []
    try:
        for name, m in wanted.items():
            hooks.append(m.register_forward_pre_hook(trace.enter(name), with_kwargs=True))
            hooks.append(m.register_forward_hook(trace.leave(name), with_kwargs=True))
        with undisturbed(model.buffers(), model.parameters(), x.device), torch.no_grad():
            trace.left(None, "the input", x)
            y = call(model, x, keyword)
            trace.link("the model's output", y)
    finally:
        for h in hooks:
            h.remove()
    never = [name for name in wanted if name not in trace.ran]
    if never:
        raise ChainError(f"{never[0]} is never called: leave it out")
    return trace.pieces, y


def expand(model, names):
    """Returns the names with every "a.*" replaced by the children of a."""
    for name in names:
        try:
            inner = model.get_submodule(name.removesuffix(".*"))
        except AttributeError:
            raise ChainError(f"the model has no submodule {name}") from None
        if name.endswith(".*"):
            yield from (f"{name[:-1]}{child}" for child, _ in inner.named_children())
        else:
            yield name


class Trace:
    """What named submodules take and give while a module runs."""

    def __init__(self):
        self.pieces, self.ran, self.inside = [], [], None
        self.outputs = []  # (name, weak reference), so that a trace keeps nothing alive but the latest
        self.latest, self.version = None, 0

    def enter(self, name):
        def hook(module, args, kwargs):
            if self.inside:
                raise ChainError(f"{name} runs inside {self.inside}: name one of them")
            if name in self.ran:
                raise ChainError(f"{name} is called twice: a chain runs each of its layers once")
            tensors = places(args, kwargs)
            if len(tensors) != 1 or isinstance(tensors[0], int) and tensors[0] > 0:
                raise ChainError(f"{name} takes {len(tensors)} tensors: one goes from layer to layer, as the first argument or by a keyword")
            self.link(name, args[0] if tensors == [0] else kwargs[tensors[0]])
            self.inside = name

        return hook

    def leave(self, name):
        def hook(module, args, kwargs, output):
            self.inside = None
            plain = len(args) == 1 and not kwargs
            self.pieces.append((name, module if plain else Bound(module, places(args, kwargs)[0], args, kwargs)))
            self.ran.append(name)
            self.left(module, name, output)

        return hook

    def left(self, module, name, output):
        if not isinstance(output, torch.Tensor):
            raise ChainError(f"{name} returns a {type(output).__name__}: one tensor goes from layer to layer")
        self.latest, self.version = output, output._version
        self.outputs.append((name, weakref.ref(output)))

    def link(self, name, x):
        """Asserts that x is what the latest submodule returned, or a view of it, which becomes a piece."""
        y, before = self.latest, self.outputs[-1][0]
        if not isinstance(x, torch.Tensor):
            raise ChainError(f"{name} is a {type(x).__name__}: one tensor goes from layer to layer")
        if y._version != self.version or x is not y and (x.shape == y.shape or not same_bytes(x, y)):  # of equal shape: y.detach()
            for other, ref in self.outputs[:-1]:
                if ref() is not None and storage(ref()) == storage(x) != storage(y):
                    raise ChainError(f"{name} takes what {other} returns, not what {before} does: the layers branch there; name one submodule around both")
            raise ChainError(f"between {before} and {name} the model computes something: put it into a submodule, and name that")
        if x.shape != y.shape:
            self.pieces.append(("view", View(y.shape, x.shape)))


def places(args, kwargs):
    """Returns where the tensors of a call are: numbers of arguments, and keywords."""
    return [place for place, a in (*enumerate(args), *kwargs.items()) if isinstance(a, torch.Tensor)]


class Bound(nn.Module):
    """A module with further arguments, none of them a tensor, and the place of the tensor among them: 0 or a keyword."""

    def __init__(self, module, place, args, kwargs):
        super().__init__()
        self.module, self.keyword = module, None if place == 0 else place
        self.args = args[1:] if place == 0 else args
        self.kwargs = {k: v for k, v in kwargs.items() if k != place}

    def forward(self, x):
        if self.keyword:
            return self.module(*self.args, **{self.keyword: x}, **self.kwargs)
        return self.module(x, *self.args, **self.kwargs)


class View:
    """A change of shape, for batches of every size."""

    def __init__(self, before, after):
        self.rest = after[1:] if before[0] == after[0] else None
        self.shape = after

    def __call__(self, x):
        return x.view(self.shape if self.rest is None else (x.shape[0], *self.rest))


def storage(t):
    """Returns what tells storages apart while they live."""
    return t.untyped_storage().data_ptr()


def same_bytes(x, y):
    """Reports whether x is all of y in another shape."""
    whole = x.is_contiguous() and y.is_contiguous() and x.storage_offset() == y.storage_offset()
    return storage(x) == storage(y) and x.numel() == y.numel() and x.dtype == y.dtype and whole


@torch.no_grad()
def join(pieces, x):
    """Returns the layers that pieces make: a piece whose output lies in its input's storage joins those before."""
    layers, views = [], True  # views: there is nothing but views of the batch so far
    x = x.clone()  # or a first layer in place would change the caller's
    for name, piece in pieces:
        version = x._version
        y = piece(x)
        if not isinstance(y, torch.Tensor):
            raise ChainError(f"layer {name} returns a {type(y).__name__}: one tensor goes from layer to layer")
        inside = storage(y) == storage(x) and y.numel() > 0
        if x._version != version and (views or not inside):
            raise ChainError(f"layer {name} changes its input in place, and a plan may need that again: give it inplace=False")
        if layers and (inside or views):
            layers[-1].pieces.append(piece)
            layers[-1].name += "+" + name
        else:
            layers.append(Layer(name, [piece]))
        x, views = y, views and inside
    return layers


def study(layers, x):
    """Finds what each layer uses and changes, refuses layers that use what others compute, and returns the output of the last."""
    for layer in layers:
        before, state = [b.clone() for b in layer.buffers()], rng_state(x.device)
        leaf = differentiable(x, x.is_floating_point())
        leaf.goes_into = layer.name
        y = layer(leaf)
        layer.parameters = list(dict.fromkeys([*layer.modules().parameters(), *weights(y, layer.name)]))
        layer.random = any(not torch.equal(a, b) for a, b in zip(state, rng_state(x.device)))
        layer.changed = [b for b, old in zip(layer.buffers(), before) if not torch.equal(b, old)]
        x = y.detach()
    return x


def weights(y, name):
    """Returns the parameters that layer name computed y from, and marks what it computed on the way as its own."""
    found, seen, todo = [], set(), [y.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [n for n, _ in node.next_functions]
        tensor = getattr(node, "variable", None)
        owner = getattr(tensor, "goes_into", name) if tensor is not None else node.metadata.setdefault("plimsoll", name)
        if owner != name:
            raise ChainError(f"layer {name} also uses what layer {owner} takes or computes: the layers branch there; make one layer of all from {owner} to {name}")
        if tensor is not None and not hasattr(tensor, "goes_into"):
            found.append(tensor)
    return found


def differentiable(x, wanted):
    """Returns x as the beginning of a graph."""
    return x.detach().requires_grad_(wanted)


def rng_state(device):
    """Returns the state of the generators that layers on a device draw from."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def set_rng_state(device, state):
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


def put(buffers, values):
    """Sets buffers without a trace in their version: graphs that saved them, as BatchNorm's do, stay good."""
    for b, v in zip(buffers, values):
        b.data.copy_(v)


@contextlib.contextmanager
def undisturbed(buffers, parameters, device):
    """Leaves random state, buffers and gradients as they were."""
    buffers, parameters, state = list(buffers), list(parameters), rng_state(device)
    values, grads = [b.clone() for b in buffers], [p.grad for p in parameters]
    try:
        yield
    finally:
        put(buffers, values)
        for p, g in zip(parameters, grads):
            p.grad = g
        set_rng_state(device, state)


# --- Steps: ops of a plan as forwards and backwards of PyTorch. ---


class Step:
    """The memory of a training step, and what each op of docs/formats.md needs of it and leaves in it.

    plain[l] is a_l; graphs[l] is the input and the output of layer l, whose graph holds what PyTorch saved: ā_l. Invariant: delta
    is the gradient of a_l for the l in due, the layer whose backward comes next.
    """

    def __init__(self, layers, x, again=()):
        """again: the layers, from 1, that are run forward more than once."""
        self.layers, self.x, self.again = layers, x, again
        self.needs = [x.requires_grad]  # whether something before a layer needs a gradient
        for layer in layers:
            self.needs.append(self.needs[-1] or any(p.requires_grad for p in layer.parameters))
        self.plain, self.graphs, self.first = {0: x.detach()}, {}, {}
        self.due, self.delta, self.value = len(layers), None, None

    def input(self, l):
        """Returns the input of layer l, however it is stored."""
        if l - 1 in self.graphs:
            return self.graphs[l - 1][1].detach()
        if l - 1 not in self.plain:
            raise PlanError(f"the input of layer {l} is not in memory")
        return self.plain[l - 1]

    def forward_all(self, l):
        x = differentiable(self.input(l), self.needs[l - 1])
        with torch.enable_grad():
            self.graphs[l] = x, self.compute(l, x)

    def forward_checkpoint(self, l):
        with torch.no_grad():
            self.plain[l] = self.compute(l, self.input(l))

    def forward_discard(self, l):
        if l - 1 not in self.plain:
            raise PlanError(f"the input of layer {l} is not in memory by itself")
        self.forward_checkpoint(l)
        del self.plain[l - 1]

    def backward(self, l):
        if l != self.due:
            raise PlanError(f"the gradient in memory is that of layer {self.due}")
        if l not in self.graphs:
            raise PlanError(f"what layer {l} saves is not in memory")
        self.input(l)
        x, y = self.graphs.pop(l)
        if y.requires_grad:
            torch.autograd.backward(y, self.delta)
        if l == len(self.layers):
            self.value = y.detach()
        self.due, self.delta = l - 1, x.grad
        self.plain.pop(l - 1, None)

    def compute(self, l, x):
        """Runs layer l. The second time it draws the numbers of the first, and changes no buffer and no generator any more."""
        layer = self.layers[l - 1]
        if l not in self.again or not (layer.random or layer.changed):
            return layer(x)
        now = rng_state(self.x.device), [b.clone() for b in layer.changed]
        first = self.first.setdefault(l, now)
        if first is now:
            return layer(x)
        self.restore(layer, first)
        try:
            return layer(x)
        finally:
            self.restore(layer, now)

    def restore(self, layer, state):
        set_rng_state(self.x.device, state[0])
        put(layer.changed, state[1])


class Loss:
    """The last layer of a chain: a function of the model's output whose value is one number."""

    def __init__(self, function):
        self.function = function

    def __call__(self, y):
        value = self.function(y)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise ChainError("the loss does not return one number")
        return value


def undisturbed_layers(layers, device):
    return undisturbed((b for layer in layers for b in layer.buffers()), (p for layer in layers for p in layer.parameters), device)


def with_loss(layers, loss):
    return [*layers, Layer("loss", [Loss(loss)], parameters=list(loss.parameters()) if isinstance(loss, nn.Module) else [])]


def run(plan, layers, x, loss):
    """Does one forward and backward along a plan, and returns the value of the loss; gradients are added to .grad, as by backward().

    plan: a plan file, or what is in it, of a strategy for one device that recomputes and does not offload. Values, gradients, random
    numbers and buffers are those of loss(model(x)).backward(). Errors: PlanError, before anything is computed where the plan is of
    another kind or another number of layers.

    The plan's peak counts the batch, activations and their gradients, and what ops take beside. Beyond that a step keeps, of layers that
    draw random numbers or change buffers and run more than once, the generator's state (5,056 B on the CPU) and those buffers.
    """
    ops, x = read_plan(plan, len(layers) + 1), entering(x)[1]
    step = Step(with_loss(layers, loss), x, repeated(ops))
    with casts_not_kept():
        for i, (op, l) in enumerate(ops):
            try:
                getattr(step, op)(l)
            except PlanError as e:
                raise PlanError(f"op {i + 1} ({op} {l}): {e}: plimsoll check says more") from None
        if x.requires_grad:
            torch.autograd.backward(x, step.delta)
    return step.value


def repeated(ops):
    """Returns the layers that run forward more than once."""
    forwards = [l for op, l in ops if op != "backward"]
    return {l for l in forwards if forwards.count(l) > 1}


OPS = ("forward_all", "forward_checkpoint", "forward_discard", "backward")


def read_plan(plan, layers):
    """Returns the ops of a plan for so many layers, the loss included."""
    if not isinstance(plan, dict):
        plan = read_json(plan, "plan", PlanError)
    if "stages" in plan:
        raise PlanError("the plan is for several devices: a plan of one device can be run here")
    ops = [(op["op"], op["layer"]) for op in plan["ops"]]
    for i, (op, l) in enumerate(ops):
        if op not in OPS:
            raise PlanError(f"op {i + 1} ({op} {l}): only plans that recompute can be run here: plan without --bandwidth, or with --strategy rotor")
    backwards = [l for op, l in ops if op == "backward"]
    if len(backwards) != layers:
        raise PlanError(f"the plan is for {len(backwards)} layers, the model has {layers} with the loss: plan the chain that was exported from it")
    if backwards != list(range(layers, 0, -1)):
        raise PlanError("the plan's backwards are not those of all layers, from the last to the first")
    return ops


def read_json(path, kind, error):
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError) as e:
        raise error(f"{path}: {e}") from None
    if not isinstance(content, dict) or content.get("format") != FORMATS[kind]:
        raise error(f"{path}: it is no {kind} file: its format is not {FORMATS[kind]}")
    return content


@contextlib.contextmanager
def casts_not_kept():
    """Keeps autocast from keeping casts of weights to its end: no plan counts them, and some versions take one without a graph for one with."""
    kept = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)


# --- Costs: from layers to a chain file. ---


class Memory:
    """What the allocator of a device gives out while a block runs, and takes back of it or of what another block was given."""

    def __init__(self, device):
        self.device = torch.device(device)

    def __enter__(self):
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        self.profiler.__enter__()
        return self

    def __exit__(self, *failure):
        self.profiler.__exit__(*failure)
        self.events, todo = [], list(self.profiler.profiler.kineto_results.experimental_event_tree())
        while todo:
            e = todo.pop()
            todo += e.children
            what = e.extra_fields
            if e.tag == torch._C._profiler._EventType.Allocation and what.device.type == self.device.type:
                self.events.append((e.start_time_ns, what.alloc_size, what.ptr))
        self.events.sort()
        del self.profiler

    def kept(self):
        """Returns how many bytes more are in use at the end than at the beginning."""
        return sum(size for _, size, _ in self.events)

    def peak(self, static=()):
        """Returns how many bytes more were in use at once than at the beginning, without those of tensors that are there at the end."""
        addresses = {storage(t) for t in static}
        given = {address: i for i, (_, size, address) in enumerate(self.events) if size > 0 and address in addresses}
        skip, used, most = set(given.values()), 0, 0
        for i, (_, size, _) in enumerate(self.events):
            used += 0 if i in skip else size
            most = max(most, used)
        return most


def gradients(layers):
    return [p.grad for layer in layers for p in layer.parameters if p.grad is not None]


def export(layers, x, loss, name="model", repeats=10, warmup=3):
    """Returns the chain of a model, as in a chain file, measured on the device of x; weights, gradients and buffers stay as they are.

    layers: of split. Layers are measured one after the other: the memory of one is enough. Times are medians of so many repeats, sizes
    exact. Gradients of weights are measured as they are after zero_grad(): made by the backward, and static memory from then on.
    """
    parts, x = with_loss(layers, loss), entering(x)[1]
    entries, later = [], [{id(p) for part in parts[i + 1 :] for p in part.parameters} for i in range(len(parts))]
    with undisturbed_layers(parts, x.device), casts_not_kept():
        step = Step(parts, x)
        for l, part in enumerate(parts, 1):
            entries.append(Measurement(step, l, later[l - 1]).entry(repeats, warmup))
            step.forward_discard(l)
    inputs = [e.pop("input_gradient_bytes") for e in entries]
    for e, bytes in zip(entries, inputs[1:]):
        e["gradient_bytes"] = bytes
    device = torch.cuda.get_device_name(x.device) if x.is_cuda else "CPU"
    return {
        "format": FORMATS["chain"], "name": name, "input_bytes": x.nbytes, "layers": entries,
        "device": f"{device}, PyTorch {torch.__version__}", "dtype": str(x.dtype).removeprefix("torch."), "batch": x.shape[0],
    }  # fmt: skip


class Measurement:
    """Measures layer l of a step whose memory has the layer's input."""

    def __init__(self, step, l, later):
        """later: ids of parameters that layers behind use, too, so that their gradient is there when the backward of l begins."""
        self.step, self.l, self.later, self.x, self.layer = step, l, later, step.plain[l - 1], step.layers[l - 1]

    def entry(self, repeats, warmup):
        times = [self.round(self.seconds) for _ in range(warmup + repeats)][warmup:]
        discard_s, forward_s, backward_s = (statistics.median(t) for t in zip(*times))
        discard, forward, backward = self.round(self.memory)
        output = discard.kept()
        saved = max(forward.kept(), output)
        delta = 0 if self.step.delta is None else self.step.delta.untyped_storage().nbytes()
        counted = self.x.nbytes if self.l == 1 else delta  # δ_0 has the size of a_0 in every plan
        return {
            "name": self.layer.name, "forward_s": forward_s, "backward_s": backward_s, "output_bytes": output, "saved_bytes": saved,
            "input_gradient_bytes": delta, "forward_overhead_bytes": forward.peak() - forward.kept(),
            "backward_overhead_bytes": max(0, backward.peak(gradients([self.layer])) - counted),
            "discard_forward_s": discard_s, "discard_overhead_bytes": discard.peak() - output,
            "weight_bytes": sum(p.nbytes for p in self.layer.parameters),
        }  # fmt: skip

    def round(self, watch):
        """Runs the layer with and without a graph, and backward; returns what watch says of each."""
        step, l = self.step, self.l
        step.plain[l - 1] = self.x
        without = watch(step.forward_checkpoint)
        step.plain.pop(l)
        forward = watch(step.forward_all)
        y = step.graphs[l][1]
        step.due, step.delta = l, None if l == len(step.layers) else torch.randn_like(y)
        del y
        for p in self.layer.parameters:
            p.grad = torch.zeros_like(p) if id(p) in self.later and p.requires_grad else None
        backward = watch(step.backward)
        step.plain[l - 1] = self.x
        return without, forward, backward

    def seconds(self, op):
        self.wait()
        start = time.perf_counter()
        op(self.l)
        self.wait()
        return time.perf_counter() - start

    def wait(self):
        if self.x.is_cuda:
            torch.cuda.synchronize(self.x.device)

    def memory(self, op):
        with Memory(self.x.device) as m:
            op(self.l)
        return m


def write(content, path):
    """Writes a file that is complete or not there."""
    part = Path(f"{path}.part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(part, path)


# --- Checks: a planned step beside a plain one. ---


@dataclass
class Comparison:
    """What a step along a plan gave and took, beside loss(model(x)).backward()."""

    predicted_peak_bytes: int
    measured_peak_bytes: int  # with the batch, without weights and their gradients
    margin_bytes: int  # for which the plan does not answer, see run
    plain_peak_bytes: int
    loss: float
    difference: float  # of gradients and buffers, the largest over the tensors, relative to the tensor's norm; 0: all bits are equal
    seconds: float
    plain_seconds: float

    def check(self, tolerance=1e-5):
        """Raises PlanError when the plan did not keep its word."""
        if not self.difference <= tolerance:
            raise PlanError(f"gradients differ from those of the plain step by {self.difference:.3g} of their norm")
        if self.measured_peak_bytes > self.predicted_peak_bytes + self.margin_bytes:
            raise PlanError(f"the step took {self.measured_peak_bytes} B, and should take at most {self.predicted_peak_bytes} B and {self.margin_bytes} B for its own state")


def compare(plan, layers, x, loss, model):
    """Runs plain steps of the model and steps along a plan, and gives back the model as it was."""
    content = plan if isinstance(plan, dict) else read_json(plan, "plan", PlanError)
    keyword, x = entering(x)

    def plain():
        value = loss(call(model, x, keyword))
        value.backward()
        return value.detach()

    margin = MARGIN_BYTES + kept_bytes(read_plan(content, len(layers) + 1), layers, x.device)
    want, plain_peak, plain_seconds = observe(plain, layers, x)
    got, peak, seconds = observe(lambda: run(content, layers, x, loss), layers, x)
    return Comparison(content["predicted"]["peak_bytes"], peak, margin, plain_peak, got[0].item(), difference(got, want), seconds, plain_seconds)


def kept_bytes(ops, layers, device):
    """Returns what a step keeps of layers that draw numbers or change buffers and run more than once, and one more while it runs."""
    again, generator = repeated(ops), sum(s.nbytes for s in rng_state(device))
    sizes = [generator + sum(b.nbytes for b in layer.changed) for l, layer in enumerate(layers, 1) if l in again and (layer.random or layer.changed)]
    return sum(sizes) + max(sizes, default=0)


def observe(step, layers, x):
    """Returns what a step gave (its loss, gradients and buffers), its peak in bytes and its seconds."""
    parameters = [p for layer in layers for p in layer.parameters]

    def fresh(watch):
        with undisturbed_layers(layers, x.device):
            for p in parameters:
                p.grad = None
            return watch()

    def seconds():
        start = time.perf_counter()
        step().item()
        return time.perf_counter() - start

    def memory():
        with Memory(x.device) as m:
            value = step()
        made = gradients(layers)
        return [value, *made, *(b.clone() for layer in layers for b in layer.changed)], x.nbytes + m.peak(made)

    took = [fresh(seconds) for _ in range(2)][-1]  # the first one warms up
    return *fresh(memory), took


def difference(got, want):
    """Returns the largest relative difference of a tensor from another, 0 only when all bits are equal."""
    if len(got) != len(want):
        return float("inf")
    off = [(a, b) for a, b in zip(got, want) if not torch.equal(a, b)]
    return max(((a.double() - b.double()).norm() / b.double().norm()).nan_to_num(float("inf")).item() for a, b in off) if off else 0.0


# --- The command line. ---


def build(what, device, seed):
    """Returns model, batch, loss and names of an example, or of FILE.py:FUNCTION."""
    path, _, function = what.rpartition(":")
    if not path:
        path, function = str(Path(__file__).with_name("plimsoll_examples.py")), what
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as e:
        raise ChainError(f"{path}: {e}") from None
    if not callable(getattr(module, function, None)):
        raise ChainError(f"{path} has no function {function}")
    torch.manual_seed(seed)
    with torch.device(device):
        built = getattr(module, function)()
    if not isinstance(built, tuple) or len(built) not in (3, 4):
        raise ChainError(f"{what} does not return (model, batch, loss) or (model, batch, loss, names)")
    return (*built, None)[:4]


def main(arguments=None):
    a = flags().parse_args(arguments)
    if a.threads:
        torch.set_num_threads(a.threads)
    try:
        model, x, loss, names = build(a.model, a.device, a.seed)
        if a.command is command_pt2:
            return command_pt2(a, model, x)
        layers = split(model, x, names)
        whole = model if isinstance(model, nn.Module) and not isinstance(model, nn.ModuleList) else Layer("model", layers)
        return a.command(a, layers, x, loss, whole)
    except (ChainError, PlanError) as e:
        print(f"plimsoll_export: {e}", file=sys.stderr)
        return 2


def command_pt2(a, model, x):
    """Writes what torch.export makes of the model in training, whole or not at all. A dict of a batch is passed by its keywords."""
    if not isinstance(model, nn.Module):
        raise ChainError(f"{a.model} returns a {type(model).__name__} for a model: torch.export takes an nn.Module")
    arguments, keywords = ((), dict(x)) if isinstance(x, Mapping) else ((x,), {})
    part = Path(a.output).with_suffix(".part.pt2")  # torch.export.save wants the ending
    try:
        torch.export.save(torch.export.export(model.train(), arguments, keywords, strict=False), part)
        part.replace(a.output)
    finally:
        part.unlink(missing_ok=True)
    numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"{a.output}: {numbers:,} numbers train, {sum(p.numel() for p in model.parameters()) - numbers:,} are frozen")
    return 0


def command_export(a, layers, x, loss, model):
    c = export(layers, x, loss, a.name or a.model.rpartition(":")[2], a.repeats)
    write(c, a.output)
    seconds, saved = (sum(e[k] for e in c["layers"]) for k in ("forward_s", "saved_bytes"))
    backward = sum(e["backward_s"] for e in c["layers"])
    print(f"{a.output}: {len(c['layers'])} layers with the loss, forward {1e3 * seconds:.1f} ms, backward {1e3 * backward:.1f} ms, {(saved + c['input_bytes']) / 2**20:.2f} MiB saved")
    return 0


def command_run(a, layers, x, loss, model):
    c = compare(a.plan, layers, x, loss, model)
    if a.json:
        print(json.dumps(c.__dict__))
    else:
        print(f"loss       {c.loss:.4f}")
        print(f"gradients  {'the bits of the plain step' if c.difference == 0 else f'{c.difference:.2g} of their norm from those of the plain step'}")
        print(f"peak       predicted {c.predicted_peak_bytes:,} B, measured {c.measured_peak_bytes:,} B; of the plain step {c.plain_peak_bytes:,} B")
        print(f"step       {1e3 * c.seconds:.1f} ms; the plain one {1e3 * c.plain_seconds:.1f} ms")
    try:
        c.check()
    except PlanError as e:
        print(f"plimsoll_export: {a.plan}: {e}", file=sys.stderr)
        return 1
    return 0


def flags():
    p = argparse.ArgumentParser(prog="plimsoll_export.py", description="PyTorch models as Plimsoll's chains, and Plimsoll's plans as steps of PyTorch.")
    commands = p.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("model", help="mlp, resnet, gpt (plimsoll_examples.py), or FILE.py:FUNCTION, which returns model, batch, loss and perhaps names")
    common.add_argument("--device", default="cpu", help="of PyTorch: cpu, cuda")
    common.add_argument("--threads", type=int, default=0, help="of PyTorch (default: its own)")
    common.add_argument("--seed", type=int, default=1)
    t = commands.add_parser("pt2", parents=[common], help="write torch.export's archive of the model, which plimsoll trains")
    t.add_argument("-o", "--output", required=True, help="the archive, NAME.pt2")
    t.set_defaults(command=command_pt2)
    e = commands.add_parser("export", parents=[common], help="measure the model's layers and write a chain file")
    e.add_argument("-o", "--output", required=True, help="the chain file")
    e.add_argument("--name", help="of the chain (default: that of the model)")
    e.add_argument("--repeats", type=int, default=10, help="of every forward and backward; the median counts")
    e.set_defaults(command=command_export)
    r = commands.add_parser("run", parents=[common], help="run a step along a plan beside a plain one: gradients, peaks, times")
    r.add_argument("-p", "--plan", required=True, help="the plan file, of one device and without offload")
    r.add_argument("--json", action="store_true", help="print one JSON object, in SI base units")
    r.set_defaults(command=command_run)
    return p


if __name__ == "__main__":
    sys.exit(main())
