"""Budgets on reserved bytes at full size, on the emulated device: what holds, and at what price.

A cell is a model, its batches, a card, a budget and a setting of torch's allocator. Each way trains
in a process of its own: pudica (soft and hard), gradient_checkpointing=True and nothing, the last
two under the same limit, where a step that is out of memory is counted and left out. Bytes are what
torch's own allocator counts. Times are those of the device's virtual clock (operators' FLOPs and
bytes at the card's published rates): no measurement, and the same on every machine.

The budget lies between what recomputing every layer and what keeping all takes at the longest
batch, both measured first on a card that holds everything: 0 is the one, 1 the other.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "bench")]

from cuda_models import build, loss_of, peak, shapes_of  # noqa: E402
from origin import origin  # noqa: E402

SQUAD = "squad_features_384_128_every5.csv"
# The last: sizes as in the paper that pudica comes from.
CELLS = [
    {"model": "bert-base", "data": SQUAD, "batch": 16, "card": "T4"},
    {"model": "bert-large", "data": SQUAD, "batch": 16, "card": "RTX4090"},
    {"model": "bert-base", "data": "qqp.csv", "tokens": 8192, "card": "T4"},
    {"model": "gpt2-medium", "data": "alpaca5k.csv", "batch": 16, "card": "A100-40"},
    {"model": "t5-base", "data": "multi30k_en_de.csv", "batch": 64, "card": "RTX4090"},
    {"model": "llama-1b", "data": "alpaca5k.csv", "batch": 8, "scale": 8, "card": "A100-80"},
    {"model": "llama-7b", "data": SQUAD, "batch": 1, "scale": 12, "card": "A100-80"},
    {"model": "lora-7b", "data": SQUAD, "batch": 4, "scale": 4, "card": "H200"},
    {"model": "bert-base", "data": "squad_features_512_128_every5.csv", "batch": 12,
     "card": "V100"},
]
WAYS = ("plain", "checkpointing", "pudica soft", "pudica hard")
# By default pudica turns expandable segments on; `fixed` forbids it.
KINDS = {"default": "", "fixed": "expandable_segments:False",
         "expandable": "expandable_segments:True"}
HUGE = str(1 << 40)


def step(model, optimizer, name, shape):
    loss_of(model, name, shape).backward()
    optimizer.step()
    optimizer.zero_grad()


def limits(cell):
    """Bytes of the longest batch, every layer recomputed and every layer kept."""
    import torch

    model, optimizer = build(cell["model"])
    longest = max(shapes_of(cell), key=lambda shape: (shape[0] * sum(shape[1:]), shape))
    out = {}
    for way in ("checkpointing", "plain"):
        enable_checkpointing(model, way == "checkpointing")
        step(model, optimizer, cell["model"], longest)
        torch.cuda.reset_peak_memory_stats()
        step(model, optimizer, cell["model"], longest)
        out[way] = peak("active")
    return out


def enable_checkpointing(model, enabled):
    if enabled:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if not any(p.requires_grad for p in model.get_input_embeddings().parameters()):
            model.enable_input_require_grads()
    elif model.is_gradient_checkpointing:
        model.gradient_checkpointing_disable()


class Watched:
    """What a way did, step by step."""

    def __init__(self, budget):
        self.budget = budget
        self.counts = dict.fromkeys(
            ("steps", "out_of_memory", "over_by_active", "over_by_reserved", "binding"), 0)
        self.milliseconds = []
        self.used = []
        self.errors = {"active": [], "reserved": []}
        self.exact = 0

    def see(self, handle):
        active, reserved = peak("active"), peak("reserved")
        self.counts["over_by_active"] += active > self.budget
        self.counts["over_by_reserved"] += reserved > self.budget
        if handle is None:
            return
        last = handle.stats()["last_step"]
        if last["recomputed_layers"] > 0 or "in part" in last["reason"]:
            self.counts["binding"] += 1
            self.used.append(reserved / self.budget)
        predicted = last["predicted_peak_bytes"]
        if not predicted or last["learning"]:
            return
        self.exact += predicted == last["peak_bytes"]
        self.errors["active"].append(last["peak_bytes"] / predicted - 1)
        self.errors["reserved"].append(reserved / last["predicted_reserved_bytes"] - 1)


def spread(values):
    ordered = sorted(values)
    if not ordered:
        return None
    at = {"least": 0, "p05": 0.05, "median": 0.5, "p95": 0.95, "most": 1}
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
            for name, share in at.items()}


def train(cell):
    """One way of one cell, in this process."""
    import torch

    import pudica

    model, optimizer = build(cell["model"])
    way, budget, name = cell["way"], cell["budget"], cell["model"]
    enable_checkpointing(model, way == "checkpointing")
    handle = None
    if way.startswith("pudica"):
        handle = pudica.attach(model, budget=budget, enforce=way.split()[1], daemon=False)
    elif budget:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(budget / total)
    watched = Watched(budget or 1 << 62)
    before = torch.cuda.memory_stats()
    for shape in shapes_of(cell):
        torch.cuda.reset_peak_memory_stats()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        try:
            step(model, optimizer, name, shape)
        except torch.OutOfMemoryError:
            watched.counts["out_of_memory"] += 1
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            watched.milliseconds.append(None)
            continue
        end.record()
        end.synchronize()
        watched.milliseconds.append(begin.elapsed_time(end))
        watched.counts["steps"] += 1
        watched.see(handle)
    after = torch.cuda.memory_stats()
    out = {**watched.counts, "flushes": after["num_alloc_retries"] - before["num_alloc_retries"],
           "milliseconds": watched.milliseconds}
    if handle is not None:
        stats = handle.stats()
        planned = len(watched.errors["active"])
        out |= {key: stats[key] for key in ("revocations", "revoked_steps", "overruns",
                                            "infeasible_steps", "learning_steps", "failures")}
        out |= {"planned": planned, "predicted_to_the_byte": watched.exact,
                "active_error": spread(watched.errors["active"]),
                "reserved_error": spread(watched.errors["reserved"]),
                "budget_used_where_it_binds": spread(watched.used),
                "layers_recomputed": stats["recomputed_layers"] / max(1, stats["layer_calls"])}
    return out


def emulated(cell, job, **settings):
    command = [str(ROOT / "scripts/emulated"), "--card", cell["card"], sys.executable, __file__,
               "--job", job, "--cell", json.dumps(cell)]
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": path, **settings})
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return {"failed": (errors or lines)[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def times_of(way, plain):
    """Of steps that both did, the sum of the one's times by that of the other's."""
    pairs = [(a, b) for a, b in zip(way.pop("milliseconds", []), plain) if a and b]
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs) if pairs else None


def run_cell(cell, shares, kinds, ways):
    free = emulated(cell, "limits", PYTORCH_ALLOC_CONF=KINDS["expandable"],
                    PUDICA_EMULATED_BYTES=HUGE)
    if "failed" in free:
        return {**cell, **free}
    unlimited = emulated({**cell, "way": "plain", "budget": 0}, "train",
                         PYTORCH_ALLOC_CONF=KINDS["expandable"], PUDICA_EMULATED_BYTES=HUGE)
    out = {**cell, "limits": free, "runs": []}
    for share in shares:
        budget = int(free["checkpointing"] + share * (free["plain"] - free["checkpointing"]))
        for kind in kinds:
            for way in ways:
                seen = emulated({**cell, "way": way, "budget": budget}, "train",
                                PYTORCH_ALLOC_CONF=KINDS[kind])
                seen["time_of_plain"] = times_of(seen, unlimited.get("milliseconds", []))
                run = {"share": share, "budget_bytes": budget, "allocator": kind, "way": way}
                out["runs"].append(run | seen)
                print(cell["model"], cell["card"], json.dumps(run | seen), file=sys.stderr)
    return out


def totals_of(runs):
    """Of all runs of a way, pudica's soft and hard together."""
    totals = {}
    for run in runs:
        way = totals.setdefault(run["way"].split()[0], {"failed": 0, "time_of_plain": []})
        if "failed" in run:
            way["failed"] += 1
            continue
        for key in ("steps", "out_of_memory", "over_by_active", "over_by_reserved", "binding",
                    "flushes", "planned", "predicted_to_the_byte"):
            way[key] = way.get(key, 0) + run.get(key, 0)
        if run["time_of_plain"]:
            way["time_of_plain"].append(run["time_of_plain"])
    for way in totals.values():
        times = way["time_of_plain"]
        if len(times) > 1:
            low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
            way["time_of_plain"] = {"median": middle, "quartiles": [low, high]}
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="where the result goes")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", help="only these, with commas between")
    parser.add_argument("--shares", default="0.05,0.4,0.8")
    parser.add_argument("--allocators", default="default,expandable")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--job", choices=("limits", "train"), help=argparse.SUPPRESS)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps({"limits": limits, "train": train}[options.job](json.loads(options.cell))))
        return
    kinds = options.allocators.split(",")
    wanted = options.models.split(",") if options.models else None
    cells = [run_cell({**cell, "steps": options.steps, "seed": options.seed},
                      [float(share) for share in options.shares.split(",")],
                      kinds, options.ways.split(","))
             for cell in CELLS if wanted is None or cell["model"] in wanted]
    runs = [run for cell in cells for run in cell.get("runs", [])]
    result = {**origin(["bench/cuda_budgets.py", *sys.argv[1:]], options.seed, "transformers"),
              "totals": totals_of(runs),
              "by_allocator": {kind: totals_of(run for run in runs if run["allocator"] == kind)
                               for kind in kinds},
              "cells": cells}
    text = json.dumps(result, indent=1)
    if options.json:
        pathlib.Path(options.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
