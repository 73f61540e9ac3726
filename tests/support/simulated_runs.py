"""Training runs made of numbers: what real ones would tell the daemon, step by step.

A run is a chain of layers whose bytes and times are polynomials of the shape. Its plans come from a
greedy planner and its peaks from the chain, so that plans, peaks, budgets and learned coefficients
agree with each other. Deterministic for a seed.
"""

import dataclasses
import random

MIB = 1 << 20
MODES = ("keep", "selective:1", "selective:2", "full")


@dataclasses.dataclass
class Model:
    """The sizes of one model; `classes` says how many layers each class has."""

    name: str = "small"
    classes: dict = dataclasses.field(default_factory=lambda: {"EncoderLayer": 8})
    hidden: int = 128
    heads: int = 4
    base_bytes: int = 180 * MIB
    menu: tuple = MODES

    @property
    def layers(self):
        return [index for index, count in enumerate(self.classes.values()) for _ in range(count)]

    def kept_bytes(self, mode, batch, source):
        linear = batch * source * self.hidden * 4
        squared = batch * source * source * self.heads * 4
        return {"keep": 14 * linear + 2 * squared, "selective:1": 14 * linear + squared // 4,
                "selective:2": 8 * linear + squared // 4, "offload": linear // 2,
                "full": linear}[mode]

    def work_bytes(self, batch, source):
        return 6 * batch * source * self.hidden * 4 + 2 * batch * source * source * self.heads * 4

    def seconds(self, mode, batch, source):
        forward = 4e-10 * batch * source * self.hidden * 12 + 6e-10 * batch * source ** 2
        share = {"keep": 0, "selective:1": 0.2, "selective:2": 0.45, "offload": 0.3, "full": 1}
        return forward * (3 + share[mode])

    def peak_bytes(self, modes, batch, source):
        held = sum(self.kept_bytes(mode, batch, source) for mode in modes)
        return self.base_bytes + held + self.work_bytes(batch, source)

    def plan(self, batch, source, room):
        """Modes of least recompute that fit into `room`, weakening layer by layer."""
        modes = ["keep"] * len(self.layers)
        for mode in self.menu[1:]:
            for layer in range(len(modes)):
                if self.peak_bytes(modes, batch, source) <= room:
                    return modes, True
                modes[layer] = mode
        return modes, self.peak_bytes(modes, batch, source) <= room


def text_of(count):
    return f"{count / MIB:.1f} MiB"


class SimulatedRun:
    """One run: registration(), then step() again and again; snapshot() at any time."""

    def __init__(self, name="train", seed=1, budget=600 * MIB, model=None, steps_total=400,
                 batch=12, lengths=(64, 512), learning=6, **about):
        self.random = random.Random(seed)
        self.name, self.model = name, model or Model()
        self.budget, self.batch, self.lengths = budget, batch, lengths
        self.steps_total, self.learning_steps = steps_total, learning
        self.about = about
        self.next_step = 1
        self.margin = int(0.004 * budget)
        self.margin_share = 0.004  # of what explain and estimate answer
        self.plans = {}
        self.counters = dict.fromkeys(
            ("steps", "learning_steps", "plans_made", "infeasible_steps", "revoked_steps",
             "revocations", "overruns", "drifts"), 0)
        self.hits = self.misses = 0
        self.peaks = []

    def registration(self):
        longest = (self.batch, self.lengths[1])
        layers = len(self.model.layers)
        described = {
            "protocol": 1, "protocol_min": 1, "name": self.name, "pid": 4000 + len(self.name),
            "user": "ada", "command": f"python train.py --name {self.name}", "device": "cpu",
            "model": self.model.name, "policy": "pudica", "fingerprint": f"{self.model.name}-cpu",
            "group": "", "versions": {"pudica": "0.1.0", "torch": "2.11.0"},
            "budget_bytes": self.budget, "steps_total": self.steps_total,
            "floor_bytes": self.model.peak_bytes(["full"] * layers, *longest),
            "keep_all_bytes": self.model.peak_bytes(["keep"] * layers, *longest)}
        return {**described, **self.about}

    def set_budget(self, budget):
        self.budget = budget
        self.plans.clear()

    def key(self, source):
        return f"batch={self.batch},source={source}"

    def step(self):
        """The event of the next step."""
        low, high = self.lengths
        source = 8 * round((low + (high - low) * self.random.betavariate(2, 3)) / 8)
        number, self.next_step = self.next_step, self.next_step + 1
        learning = number <= self.learning_steps
        entry = None if learning else self._planned(source, number)
        modes = entry["plan"]["modes"] if entry else ["full"] * len(self.model.layers)
        exact = self.model.peak_bytes(modes, self.batch, source)
        measured = int(exact * (1 + self.random.gauss(0, 3e-4)))
        seconds = sum(self.model.seconds(mode, self.batch, source) for mode in modes)
        record = {
            "schema": "pudica.step/1", "run": self.name, "step": number, "key": self.key(source),
            "plan_id": entry["plan"]["id"] if entry else None, "modes": modes,
            "predicted_bytes": entry["predicted_peak_bytes"] if entry else None,
            "measured_bytes": measured, "budget_bytes": self.budget,
            "seconds": round(seconds * self.random.uniform(0.97, 1.08) + 0.004, 6),
            "revocations": 0, "overrun": False}
        if self.about.get("device", "cpu") != "cpu":
            record["allocator"] = {"active_bytes": measured + measured // 64,
                                   "reserved_bytes": measured + measured // 16,
                                   "gap_bytes": measured // 32}
        if not learning and self.random.random() < 0.008:
            record["revocations"] = 1
            self.counters["revocations"] += 1
            self.counters["revoked_steps"] += 1
        if entry:
            entry["measured_peak_bytes"] = measured
        self.counters["steps"] += 1
        self.counters["learning_steps"] += learning
        self.peaks = [*self.peaks[-63:], {name: record[name] for name in (
            "step", "key", "predicted_bytes", "measured_bytes")}]
        recomputed = sum(mode not in ("keep", "offload") for mode in modes)
        kept = sum(self.model.seconds("keep", self.batch, source) for _ in modes)
        record["recompute_seconds"] = round(max(0, seconds - kept), 6)
        return {"type": "step", "record": record, "learning": learning, "recomputed": recomputed}

    def _planned(self, source, number):
        if source in self.plans:
            self.hits += 1
            entry = self.plans[source]
            entry["hits"] += 1
        else:
            self.misses += 1
            entry = self.plans[source] = self._make_plan(source, number)
        entry["last_used_step"] = number
        return entry

    def _make_plan(self, source, number):
        room = self.budget - self.margin
        modes, feasible = self.model.plan(self.batch, source, room)
        peak = self.model.peak_bytes(modes, self.batch, source)
        keep_all = self.model.peak_bytes(["keep"] * len(modes), self.batch, source)
        full, part = modes.count("full"), sum(mode.startswith("sel") for mode in modes)
        reason = f"everything fits: keeping all needs {text_of(keep_all)}"
        if full or part:
            reason = f"{full} of {len(modes)} layers recomputed"
            reason += f", {part} recomputed in part" if part else ""
            reason += f": keeping all needs {text_of(keep_all)}"
        reason += f", budget {text_of(self.budget)}"
        if not feasible:
            self.counters["infeasible_steps"] += 1
            reason = (f"infeasible: the least peak of any plan is {text_of(peak)}, budget "
                      f"{text_of(self.budget)}, short by {text_of(peak - self.budget)}")
        self.counters["plans_made"] += 1
        extra = sum(self.model.seconds(mode, self.batch, source) for mode in modes) - len(
            modes) * self.model.seconds("keep", self.batch, source)
        fits = source
        while fits < 8192 and self.model.peak_bytes(modes, self.batch, fits + 8) <= room:
            fits += 8
        plan = {"id": self.counters["plans_made"], "key": self.key(source), "modes": modes,
                "default_mode": "keep", "teach_first_of_class": False, "revocable": True,
                "feasible": feasible, "predicted_peak_bytes": peak,
                "predicted_extra_seconds": extra, "certified_gap_seconds": 0.0, "reason": reason}
        return {"key": self.key(source), "fits_up_to": [self.key(fits)],
                "predicted_peak_bytes": peak, "measured_peak_bytes": None,
                "slack_bytes": max(0, self.budget - peak), "hits": 0, "created_step": number,
                "last_used_step": number, "reason": reason, "plan": plan}

    def _points(self, batch, source):
        """(modes, peak, extra seconds) of every plan on the way from keeping all to the least."""
        kept = self.model.seconds("keep", batch, source) * len(self.model.layers)
        modes = ["keep"] * len(self.model.layers)
        out = []

        def add():
            extra = sum(self.model.seconds(mode, batch, source) for mode in modes) - kept
            out.append((list(modes), self.model.peak_bytes(modes, batch, source), extra))

        add()
        for mode in self.model.menu[1:]:
            for layer in range(len(modes)):
                modes[layer] = mode
                add()
        return out

    def estimate(self, key, budget):
        """What GET /v1/runs/{id}/estimate says of a shape."""
        points = self._points(*(int(part.split("=")[1]) for part in key.split(",")))
        fitting = [one for one in points if one[1] <= budget * (1 - self.margin_share)]
        modes, peak, extra = min(fitting, key=lambda one: one[2]) if fitting else points[-1]
        return {"fits": bool(fitting), "identified": True, "keep_all_peak_bytes": points[0][1],
                "floor_peak_bytes": points[-1][1], "predicted_peak_bytes": peak,
                "extra_seconds": extra, "modes": {mode: modes.count(mode) for mode in modes},
                "frontier": [{"peak_bytes": one[1], "extra_seconds": one[2]}
                             for one in reversed(points)]}

    def explain(self, key, budget):
        """What GET /v1/runs/{id}/explain says of a shape; each layer has a reason of its own."""
        batch, source = (int(part.split("=")[1]) for part in key.split(","))
        estimate = self.estimate(key, budget)
        modes = next(one[0] for one in self._points(batch, source)
                     if one[1:] == (estimate["predicted_peak_bytes"], estimate["extra_seconds"]))
        own = self.plans.get(source)
        if own and budget == self.budget:
            modes = own["plan"]["modes"]
        extra = sum(self.model.seconds(mode, batch, source) for mode in modes) - len(
            modes) * self.model.seconds("keep", batch, source)
        classes = list(self.model.classes)
        layers = [{"layer": layer, "class": classes[self.model.layers[layer]], "mode": mode,
                   "held_bytes": self.model.kept_bytes(mode, batch, source),
                   "keep_held_bytes": self.model.kept_bytes("keep", batch, source),
                   "extra_seconds": self.model.seconds(mode, batch, source),
                   "why": f"layer {layer} at {batch}x{source}: {mode}, as its own reason says"}
                  for layer, mode in enumerate(modes)]
        same = {name: estimate[name] for name in (
            "fits", "predicted_peak_bytes", "keep_all_peak_bytes", "floor_peak_bytes")}
        return {**same, "extra_seconds": extra, "margin_bytes": int(self.margin_share * budget),
                "reason": "a plan", "layers": layers, "menu": []}

    def snapshot(self):
        learning = self.next_step - 1 <= self.learning_steps
        names = list(self.model.classes)
        layers = self.model.layers
        reason = "forward of the layers was seen at one shape" if learning else (
            f"every segment is fit, after {self.learning_steps} learning steps")
        return {
            "schema": "pudica.snapshot/1", "state": "learning" if learning else "planning",
            "state_reason": reason, "budget_bytes": self.budget, "margin_bytes": self.margin,
            "margin_fraction": self.margin / max(1, self.budget),
            "base_bytes": self.model.base_bytes,
            "structure": {"classes": names, "layers": [
                {"class": kind, "variant": int(kind != following)}
                for kind, following in zip(layers, [*layers[1:], None])]},
            "counters": dict(self.counters),
            "cache": {"hits": self.hits, "misses": self.misses, "plans": len(self.plans)},
            "plans": list(self.plans.values()), "learned": self.learned(),
            "recent_peaks": self.peaks}

    def learned(self):
        """Net, peak and time of each class's segments, as the run's own model has them."""
        if self.next_step == 1:
            return []
        samples = min(self.next_step - 1, 64)
        linear, squared = self.model.hidden * 4, self.model.heads * 4
        rows = []

        def add(segment, name, quantity, basis, coefficients):
            rows.append({"segment": segment, "class_name": name, "quantity": quantity,
                         "basis": basis, "monomials": ["1", "batch*source", "batch*source^2"],
                         "coefficients": coefficients, "samples": samples,
                         "distinct_shapes": min(samples, len(self.plans) + 2)})

        for index, name in enumerate(self.model.classes):
            for mode, factor in (("keep", 14), ("full", 1)):
                for kind in ("forward", "backward"):
                    segment = f"{kind}/{index}/{mode}"
                    net = [0, factor * linear, 2 * squared if mode == "keep" else 0]
                    add(segment, name, "net_bytes", "exact", [net])
                    add(segment, name, "peak_bytes", "exact",
                        [[512, 20 * linear, 0], [0, 16 * linear, 3 * squared]])
                    add(segment, name, "seconds", "least squares", [[2.1e-5, 6.1e-7, 6.2e-10]])
        add("head/0/keep", None, "peak_bytes", "exact", [[4096, 8 * linear, 0]])
        add("optimizer/0/keep", None, "peak_bytes", "exact", [[self.model.base_bytes // 3, 0, 0]])
        return rows
