"""Judges plans with messages between the replicas of a stage, from scratch, beside the independent checker (check_pipeline.py), which knows
no such messages: it judges the plan without them, this file the messages. It shares no code with any planner. Lines of standard input are
cases, each with its chain, platform and plan; verdicts go to standard output. The first argument is the folder of the checker.

RULES
=====
A stage with weights on several devices that work, d_0..d_{r-1} in the order of its "devices", adds up the gradients of a round: of a flush
plan the step, with "zero" 2 or 3 r microbatches in a row, else the fewest minibatches n, counted from 0, such that n divides R and each n in a row
give every device one at least. There are no messages at all, or for each such stage and round buckets [first_layer, last_layer] that do not
overlap and have all layers with weights.

Stages of flush plans may have their buckets in parts: all messages of such a stage have a "part", of other stages none. A bucket of W bytes is
parts 1..r, part k the bytes [(k-1)W/r, kW/r), both rounded down, which d_{k-1} owns.

Without parts: for each bucket a reduce from d_i to d_{i+1} for each i, and for each device but the last a gather to it from a device that has the
sum: the last one, or one that a gather comes to. Each takes the bucket's weight_bytes over the bandwidth. A reduce starts when both devices have
made the gradients of the bucket, and the reduce to d_i has ended; a gather when the sum is at its device "from".

With parts: for each part a reduce from each other device to the owner, when that device has made its gradients, and a gather to each other
device, from the owner or one that a gather comes to. A gather from the owner starts when the part's reduces have ended and the owner has made its
gradients; another one when the part is at its device "from".

"zero" 1, of flush plans alone, which then must have messages, all of parts: a gather from the owner starts when all tasks but communications, and
all reduces of the plan, have ended.

Gradients of layers from first_layer on are made at the end of the minibatch's last task, less backward_s of the layers of the stage before
first_layer where B is not split. Messages use links like CF and CB, in the direction from "from" to "to".

"zero" 2: the rules of "zero" 1, and each round gives every d_i exactly one microbatch. A step is whole rounds. All rounds of a stage have the same
buckets, and reduces. Gathers are of the last round alone.

"zero" 3: the rules of "zero" 2 for reduces. Each stage with weights on several devices that work has one bucket, the same in all rounds. Gathers
bring no sums, and wait for none: each brings a part of the bucket's weights from its owner, who has it throughout, to a device of the stage for one
of its turns. The turns of a device: of its F and B of such stages, in the order in which the device runs them, those of one stage that follow each
other are one turn. Tasks that start at one instant, up to the tolerance, run in this order: those that take no time first, then F by stage, then B
from the last stage down, then by microbatch. For each turn and each part that the device does not own there is exactly one gather, of the bucket's
layers. It says the kind ("before") and the microbatch ("shift") of the turn's first task. It ends before that task starts. It starts no earlier
than the last task of the turn two turns before on that device ends, nor than a gather of bytes from
the same owner for an earlier turn of the device ends, if it has bytes. Other messages have no "before".

"optimizer_copies" K, unless "host_state" is true: a device of a stage holds K times its weight_bytes more; with "zero" 1, 2 or 3, and several
devices that work, K times the bytes of the parts that it owns.

Parts are added up, with "zero" 2 or 3, round by round: a part of a round is added up when all its reduces have ended, its owner has made its own
gradients, and the same part of the round before is added up.

Gradients with "zero" 2: where a stage with weights on several devices that work has two copies of its weights or more, each of its devices holds
the parts that it owns in place of one copy. A device that works for such stages also holds buffers, each of the weight_bytes of the largest of
them. All rounds of its stages with weights on several devices that work take these buffers in turn, in the order in which its backwards (B) start.
Of those that start at one instant, that which ends first comes first, then that of a later stage, then that of an earlier microbatch. A round has
its buffer from the start of its B until that B and all reduces of the round from the device have ended, and the parts of the round that the device
owns are added up. Ends are moved earlier by the tolerance, as those of live minibatches are. Then the next
round in turn may start its B. There are as few buffers as that allows, one at least.

Weights with "zero" 3: the same with two copies in place of one, for which a device holds twice the parts that it owns. It holds more such buffers,
two, or as many as it has turns where these are fewer.

Where the platform counts buffers, a device has blocks for reduces that come to it. From each device that sends some of a stage they are so many,
each of the bytes of the largest of these messages: two, or one where no round has two of them; of parts at least as many as are there at one
time, from the start of the reduce until all reduces of the part have ended and the owner has made its gradients. With "zero" 2 or 3 all stages of
a device have the blocks for a sender together, as many as parts are there at one time, each until it is added up.
"""
import json
import sys
from fractions import Fraction as Fr

sys.path.insert(0, sys.argv[1])
import check_pipeline as judge


class Broken(Exception):
    pass


def exact(x, what):
    if isinstance(x, bool) or not isinstance(x, (int, float, Fr)):
        raise Broken("%s is no number" % what)
    return Fr(repr(x)) if isinstance(x, float) else Fr(x)


class Plan:
    def __init__(self, chain, platform, plan):
        self.ch, self.pf, self.plan = judge.Chain(chain), judge.Platform(platform), plan
        self.flush = plan.get("weight_versions") == "flush"
        self.R = plan["microbatches"] if self.flush else plan.get("minibatches_per_period", 1)
        self.T = None if self.flush else judge.number(plan["period_s"], "period_s")
        self.stages = plan["stages"]
        self.split = {t["stage"] for t in plan["tasks"] if t["kind"] == "W"}
        self.zero = plan.get("zero", 0)
        self.parted = {m["stage"] for m in plan.get("synchronization") or [] if self.zero or m.get("part", 0)}
        self.tasks, self.on = {}, {}
        for t in plan["tasks"]:
            r, start = self.when(t)
            self.tasks[t["kind"], t["stage"], r] = start
            if t["kind"] == "F":
                self.on[t["stage"], r] = t["device"]
        self.end = {k: v + self.length(*k) for k, v in self.tasks.items()}

    def when(self, t):
        start, shift = exact(t["start_s"], "start_s"), t["shift"]
        if self.flush:
            return shift, start
        r = shift % self.R
        return r, start + Fr(r - shift, self.R) * self.T

    def ends(self, kind, s, r):
        x, y = self.on[s, r], self.on[s + 1, r]
        return (x, y) if kind == "CF" else (y, x)

    def length(self, kind, s, r):
        ch, first, last = self.ch, self.stages[s]["first_layer"], self.stages[s]["last_layer"]
        if kind in ("CF", "CB"):
            return self.seconds((ch.a if kind == "CF" else ch.d)[last], *self.ends(kind, s, r))
        of = {"F": ch.f, "W": ch.bw, "B": ch.bi if s in self.split else ch.b}[kind]
        return sum(of[first:last + 1])

    def seconds(self, size, x, y):
        b = self.pf.beta(x, y)
        return Fr(0) if b is None else Fr(size) / b

    def weights(self, first, last):
        return sum(self.ch.w[first:last + 1])

    def line(self, s):
        working = {self.on[s, r] for r in range(self.R)}
        return [d for d in self.stages[s]["devices"] if d in working]

    def replicated(self):
        for s, st in enumerate(self.stages):
            if len(self.line(s)) > 1 and self.weights(st["first_layer"], st["last_layer"]) > 0:
                yield s

    def turns(self, s):
        """Whether the devices of a stage have one microbatch each of every r in a row."""
        line, r = sorted(self.line(s)), len(self.line(s))
        return all(sorted(self.on[s, i] for i in range(at, min(at + r, self.R))) == line for at in range(0, self.R, r))

    def round(self, s):
        if self.zero >= 2:
            return len(self.line(s))
        if self.flush:
            return self.R
        on = [self.on[s, r] for r in range(self.R)]
        n = len(set(on))
        while self.R % n or any(set(on[i:i + n]) != set(on) for i in range(0, self.R, n)):
            n += 1
        return n

    def of_round(self, s, last):
        return range(last - self.round(s) + 1, last + 1)

    def copies(self, s):
        said = self.plan.get("weight_copies", 2)
        return exact(said[s] if isinstance(said, list) else said, "weight_copies")

    def made(self, s, device, first, residues):
        behind = 0 if s in self.split else sum(self.ch.b[self.stages[s]["first_layer"]:first])
        last = "W" if s in self.split else "B"
        return max(self.end[last, s, r] - behind for r in residues if self.on[s, r] == device)

    def turns_of(self, d, eps):
        """The turns of a device in which it uses weights that are divided: first and last tasks."""
        shared, n, tasks = set(self.replicated()), len(self.stages), []
        at, instant = None, 0
        for start, key in sorted((v, k) for k, v in self.tasks.items() if k[0] in "FB" and k[1] in shared and self.on[k[1:]] == d):
            kind, s, r = key
            instant += at is not None and start > at + eps
            at = start
            tasks.append((instant, self.length(*key) > eps, s if kind == "F" else 2 * n - s, r, key))
        out = []
        for key in [x[-1] for x in sorted(tasks)]:
            if out and out[-1][1][1] == key[1]:
                out[-1] = out[-1][0], key
            else:
                out.append((key, key))
        return out

    def part(self, m, line):
        w = self.weights(m["first_layer"], m["last_layer"])
        k = m.get("part", 0)
        return w if k == 0 else k * w // len(line) - (k - 1) * w // len(line)


def read(p, m):
    """One message: what it belongs to, and its time. Broken when it is none of those that there may be."""
    s = m["stage"]
    if s not in set(p.replicated()):
        raise Broken("stage %s has no replicas" % s)
    st, line = p.stages[s], p.line(s)
    first, last, k = m["first_layer"], m["last_layer"], m.get("part", 0)
    if not st["first_layer"] <= first <= last <= st["last_layer"] or p.weights(first, last) == 0:
        raise Broken("no such bucket")
    r, start = p.when(m)
    fetches = p.zero == 3 and m["kind"] == "gather"
    if exact(m["start_s"], "start_s") < 0 or (not p.flush and m["start_s"] >= p.T) or not 0 <= r < p.R:
        raise Broken("no such time")
    if not fetches and (r + 1) % p.round(s):
        raise Broken("no such round")
    if m["from"] not in line or m["to"] not in line or m["from"] == m["to"]:
        raise Broken("no such way")
    if (k == 0) != (s not in p.parted) or k and not p.flush or not 0 <= k <= len(line):
        raise Broken("no such part")
    i, j = line.index(m["from"]), line.index(m["to"])
    end = k - 1 if k else len(line) - 1
    if m["kind"] == "reduce":
        if j != (end if k else i + 1) or i == end:
            raise Broken("no such reduce")
    elif j == end or p.zero == 2 and r != p.R - 1:
        raise Broken("no such gather")
    if fetches and (i != end or m.get("before") not in ("F", "B") or p.on[s, r] != m["to"]):
        raise Broken("no such weights")
    if not fetches and m.get("before") is not None:
        raise Broken("no turn")
    return {"s": s, "r": r, "first": first, "last": last, "k": k, "end": end, "i": i, "j": j, "line": line, "kind": m["kind"],
            "start": start, "stop": start + p.seconds(p.part(m, line), m["from"], m["to"]), "from": m["from"], "to": m["to"],
            "before": m.get("before")}


def complete(p, messages):
    """By stage, round end, bucket and part: reduces by the place that sends, gathers by the place that receives; not those of weights for turns."""
    sums = {}
    for x in messages:
        if x["before"]:
            continue
        at = sums.setdefault((x["s"], x["r"], x["first"], x["last"], x["k"]), {"reduce": {}, "gather": {}})[x["kind"]]
        place = x["i"] if x["kind"] == "reduce" else x["j"]
        if place in at:
            raise Broken("a second message")
        at[place] = x
    for s in p.replicated():
        line, n = p.line(s), p.round(s)
        parts = list(range(1, len(line) + 1)) if s in p.parted or p.zero else [0]
        whole = sorted({(f, l) for (t, q, f, l, k) in sums if t == s})
        for r in range(n - 1, p.R, n):
            buckets = sorted({(f, l) for (t, q, f, l, k) in sums if (t, q) == (s, r)})
            if p.zero >= 2 and buckets != whole:
                raise Broken("other buckets than in other rounds")
            if p.zero == 3 and len(buckets) != 1:
                raise Broken("not one bucket")
            seen = [i for f, l in buckets for i in range(f, l + 1)]
            if len(seen) != len(set(seen)):
                raise Broken("overlap")
            st = p.stages[s]
            if any(p.ch.w[i] > 0 and i not in seen for i in range(st["first_layer"], st["last_layer"] + 1)):
                raise Broken("a layer in no bucket")
            for f, l in buckets:
                for k in parts:
                    of = sums.get((s, r, f, l, k), {"reduce": {}, "gather": {}})
                    end = k - 1 if k else len(line) - 1
                    want = set(range(len(line))) - {end}
                    come = want if p.zero < 2 or p.zero == 2 and r == p.R - 1 else set()
                    if set(of["reduce"]) != want or set(of["gather"]) != come:
                        raise Broken("a missing message")
                    for j in come:
                        hops = 0
                        while j != end:
                            j, hops = of["gather"][j]["i"], hops + 1
                            if hops > len(line):
                                raise Broken("a circle")
    return sums


def fetched(p, messages, sums, eps):
    """By device: its turns, each with the messages of its weights. Broken where they are not those that there must be."""
    bucket = {s: (f, l) for (s, r, f, l, k) in sums}
    come = {}
    for x in messages:
        if x["before"]:
            if (x["first"], x["last"]) != bucket[x["s"]]:
                raise Broken("weights of another bucket")
            come.setdefault((x["to"], x["before"], x["s"], x["r"]), []).append(x)
    out = {}
    for d in range(p.pf.p):
        out[d] = [(first, last, come.pop((d,) + first, [])) for first, last in p.turns_of(d, eps)]
        for (_, s, _), _, messages_of in out[d]:
            line = p.line(s)
            if sorted(x["k"] for x in messages_of) != [k for k in range(1, len(line) + 1) if line[k - 1] != d]:
                raise Broken("weights that come twice, or never")
    if come:
        raise Broken("weights for no turn")
    return out


def unready(p, turns, eps):
    """Whether weights come before their buffer is free, before those of an earlier turn from the same owner, or after their turn has begun."""
    for of in turns.values():
        come = {}
        for i, (first, _, messages) in enumerate(of):
            for x in messages:
                if p.part({"first_layer": x["first"], "last_layer": x["last"], "part": x["k"]}, x["line"]) > 0:
                    if come.get(x["from"], x["start"]) > x["start"] + eps:
                        return True
                    come[x["from"]] = x["stop"]
                if x["stop"] > p.tasks[first] + eps or i >= 2 and p.end[of[i - 2][1]] > x["start"] + eps:
                    return True
    return False


def late(p, sums, eps):
    """Whether a message starts before what it waits for."""
    all_tasks = max(v for (kind, s, r), v in p.end.items() if kind in "FBW")
    reduces = max(x["stop"] for of in sums.values() for x in of["reduce"].values())
    for (s, r, f, l, k), of in sums.items():
        line, residues = p.line(s), p.of_round(s, r)
        made = lambda i: p.made(s, line[i], f, residues)
        end = k - 1 if k else len(line) - 1
        for i, x in of["reduce"].items():
            needs = [made(i)]
            if k == 0:
                needs.append(made(i + 1))
                if i > 0:
                    needs.append(of["reduce"][i - 1]["stop"])
            if max(needs) > x["start"] + eps:
                return True
        for x in of["gather"].values():
            if x["i"] != end:
                need = of["gather"][x["i"]]["stop"]
            elif p.zero:
                need = max(all_tasks, reduces)
            elif k:
                need = max([made(end)] + [y["stop"] for y in of["reduce"].values()])
            else:
                need = of["reduce"][end - 1]["stop"]
            if need > x["start"] + eps:
                return True
    return False


def crowded(p, messages, eps):
    """Whether a link carries two things at one time."""
    use = {}

    def put(x, y, start, stop):
        key = (x, y) if p.pf.duplex else (min(x, y), max(x, y))
        use.setdefault(key, []).append((start if p.T is None else start % p.T, stop - start))
    for (kind, s, r), start in p.tasks.items():
        if kind in ("CF", "CB"):
            put(*p.ends(kind, s, r), start, p.end[kind, s, r])
    for x in messages:
        put(x["from"], x["to"], x["start"], x["stop"])
    for spans in use.values():
        long = sorted(x for x in spans if x[1] > 0)
        if p.T is not None and sum(x[1] for x in long) > p.T + eps:
            return True
        for i, x in enumerate(long):
            if i + 1 < len(long):
                follows = long[i + 1][0]
            elif p.T is not None:
                follows = long[0][0] + p.T
            else:
                continue
            if x[0] + x[1] > follows + eps:
                return True
        for x in spans:
            for y in long:
                gap = x[0] - y[0] if p.T is None else (x[0] - y[0]) % p.T
                if x[1] == 0 and eps < gap < y[1] - eps:
                    return True
    return False


def owned(p, sums, s, d):
    """The bytes of the parts of a stage that a device owns."""
    return sum(p.part({"first_layer": f, "last_layer": l, "part": k}, p.line(s))
               for (t, r, f, l, k) in sums if (t, r) == (s, p.R - 1) and p.line(s)[k - 1] == d)


def hold(out, fields, d, more):
    for field in fields:
        out[field][d] = judge.plain(exact(out[field][d], field) + more)


def optimizer(p, sums, out):
    """Adds the optimizer's state to the memory of devices."""
    copies = judge.number(p.plan.get("optimizer_copies", 0), "optimizer_copies")
    if p.plan.get("host_state"):
        copies = Fr(0)
    divided = set(p.replicated()) if p.zero else set()
    for d in range(p.pf.p):
        for s, st in enumerate(p.stages):
            if d in st["devices"]:
                more = owned(p, sums, s, d) if s in divided else p.weights(st["first_layer"], st["last_layer"])
                hold(out, ("per_device_peak_bytes", "per_device_weight_bytes"), d, copies * more)


def sooner(start, stop, eps):
    """An end, moved before what starts then."""
    return max(start, stop - eps if stop - start > 2 * eps else stop)


def added(p, sums):
    """By sum of a part: when its owner has added it up."""
    out, before = {}, {}
    for (s, r, f, l, k), of in sorted(sums.items(), key=lambda x: x[0][1]):
        if k:
            ends = [x["stop"] for x in of["reduce"].values()] + [p.made(s, p.line(s)[k - 1], f, p.of_round(s, r))]
            before[s, f, l, k] = out[s, r, f, l, k] = max(ends + [before.get((s, f, l, k), 0)])
    return out


def gradients(p, sums, turns, eps, out):
    """Puts parts and buffers in place of copies of the weights: of gradients and, where they are divided, of weights."""
    for d in range(p.pf.p):
        more, largest = 0, 0
        for s in p.replicated():
            st = p.stages[s]
            if d in st["devices"] and p.copies(s) >= 2:
                size = p.weights(st["first_layer"], st["last_layer"])
                more += (p.zero - 1) * (owned(p, sums, s, d) - size)
                if d in p.line(s):
                    largest = max(largest, size)
        more += largest * (buffers(p, sums, d, eps) + min(2, len(turns.get(d, []))))
        hold(out, ("per_device_peak_bytes", "per_device_weight_bytes"), d, more)


def buffers(p, sums, d, eps):
    """How many buffers the rounds on a device need that take them in turn."""
    all_turns, done = [], added(p, sums)
    for s in p.replicated():
        for r in range(p.R):
            if p.on[s, r] != d:
                continue
            start, over = p.tasks["B", s, r], p.end["B", s, r]
            stop = over
            for (t, last, f, l, k), of in sums.items():
                if t == s and r in p.of_round(s, last):
                    ends = [x["stop"] for x in of["reduce"].values() if x["from"] == d]
                    stop = max([stop] + ends + ([done[t, last, f, l, k]] if p.line(s)[k - 1] == d else []))
            all_turns.append((start, over, -s, r, sooner(start, stop, eps)))
    all_turns.sort()
    n = 1
    while any(x[4] > y[0] for x, y in zip(all_turns, all_turns[n:])):
        n += 1
    return n


def blocks(p, messages, sums, eps):
    """By device: the bytes of the blocks that reduces come to."""
    ways, out, done = {}, [0] * p.pf.p, added(p, sums)
    for x in messages if p.pf.buffers else []:
        if x["kind"] == "reduce":
            ways.setdefault((None if p.zero >= 2 else x["s"], x["from"], x["to"]), []).append(x)
    for (_, _, to), way in ways.items():
        sizes = [p.part({"first_layer": x["first"], "last_layer": x["last"], "part": x["k"]}, x["line"]) for x in way]
        rounds = [x["r"] for x in way]
        n = 1 if p.zero >= 2 else min(2, max(rounds.count(r) for r in rounds))
        there = []
        for x in way:
            if x["k"]:
                there.append((x["start"], sooner(x["start"], done[x["s"], x["r"], x["first"], x["last"], x["k"]], eps)))
        for start, _ in there:
            n = max(n, sum(1 for a, b in there if a <= start and (start < b or a == start)))
        out[to] += n * max(sizes)
    return out


def arrivals(more, out):
    """Adds blocks to the memory of devices."""
    for d, size in enumerate(more):
        out["per_device_buffer_bytes"][d] += size
        hold(out, ("per_device_peak_bytes",), d, size)


def check(chain, plan, platform, tol=Fr(1, 10 ** 9)):
    bare = {k: v for k, v in plan.items() if k not in ("synchronization", "zero", "optimizer_copies", "host_state")}
    zero, messages = plan.get("zero", 0), plan.get("synchronization") or []
    if zero not in (0, 1, 2, 3) or (zero or plan.get("host_state")) and plan.get("weight_versions") != "flush":
        raise judge.Unusable("no such division")
    if not (zero or messages or plan.get("optimizer_copies")):
        return judge.check(chain, bare, platform, tol)
    out = judge.check(chain, bare, dict(platform, memory_bytes=None), tol)
    if "per_device_peak_bytes" not in out:
        return out
    p = Plan(chain, platform, plan)
    try:
        if zero >= 2 and not all(p.turns(s) for s in p.replicated()):
            raise Broken("devices do not take turns")
        read_all = [read(p, m) for m in messages]
        sums = complete(p, read_all) if zero or messages else {}
        span, field = max([p.T or 0] + [x for x in p.end.values() if p.flush] + [x["stop"] for x in read_all if p.flush]), "makespan_s"
        eps = tol * span
        turns = fetched(p, read_all, sums, eps) if zero == 3 else {}
    except Broken as e:
        return {"valid": False, "error": str(e)}
    errors = list(out["errors"])
    if sums and late(p, sums, eps):
        errors.append("a message is early")
    if unready(p, turns, eps):
        errors.append("weights come too early or too late")
    if crowded(p, read_all, eps):
        errors.append("a link carries two messages")
    optimizer(p, sums, out)
    if zero >= 2:
        gradients(p, sums, turns, eps, out)
    arrivals(blocks(p, read_all, sums, eps), out)
    if any(m is not None and peak > m for m, peak in zip(p.pf.m, out["per_device_peak_bytes"])):
        errors.append("a device has less memory")
    if p.flush:
        used = {d for st in p.stages for d in st["devices"]}
        busy = sum(v - p.tasks[k] for k, v in p.end.items() if k[0] in "FBW")
        out[field], out["bubble_fraction"] = judge.plain(span), float(1 - busy / (len(used) * span))
    warnings, said = [], plan.get("per_device_peak_bytes")
    if said is not None and [judge.plain(x) for x in said] != out["per_device_peak_bytes"]:
        warnings.append("peaks")
    said = (plan.get("predicted") or {}).get("makespan_s") if p.flush else None
    if said is not None and abs(Fr(said) - span) > eps:
        warnings.append("makespan")
    out.update(valid=not errors, errors=errors, error=errors[0] if errors else None, warnings=warnings)
    return out


for line in sys.stdin:
    case = judge.parse(line)
    try:
        print(json.dumps(check(case["chain"], case["plan"], case["platform"])))
    except (judge.Unusable, ZeroDivisionError) as e:
        print(json.dumps({"valid": False, "unusable": True, "error": str(e)}))
