"""What pudica costs and saves on a card: models of real size with batches of real lengths, beside
its rivals, in the same run.

Each way trains in a process of its own, all on the same card, a turn of some steps each in an order
drawn anew; a turn's time is the wall clock from its first step until the device has done its last.
The first turns are not counted (learning, warming up). The budget lies between what recomputing
every layer and what keeping all takes at the longest batch (active bytes of torch's allocator),
both measured first: 0 is the one, 1 the other. Reported: times over plain's of the same turn
(median, quartiles, sums), the largest bytes reserved, steps over the budget by reserved bytes, and
whether the parameters come out as plain's. `plain again` says what noise is, and whether the
card's own kernels give the same bits twice.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "bench")]

from cuda_budgets import enable_checkpointing  # noqa: E402
from cuda_models import build, loss_of, peak, shapes_of  # noqa: E402
from cuda_trainer import train  # noqa: E402
from origin import measuring_environment, origin  # noqa: E402
from rivals_models import checkpoint_selectively  # noqa: E402
from turns import digest, interleave, over  # noqa: E402

AMPLE = 1 << 40
# `multiple`: what lengths are padded to; 1: they come as they are, and a length of its own costs
# every way the choice of its kernels once, some tenths of a second. At 32 rows the host is what
# BERT waits for, at 96 the card. `trainer`: trained by Hugging Face's Trainer (cuda_trainer.py).
CELLS = [
    {"name": "bert-base", "model": "bert-base", "data": "squad_features_384_128_every5.csv",
     "batch": 32, "amp": True, "multiple": 64},
    {"name": "bert-base-96", "model": "bert-base", "data": "squad_features_384_128_every5.csv",
     "batch": 96, "amp": True, "multiple": 64},
    {"name": "llama-1b", "model": "llama-1b", "data": "alpaca5k.csv", "batch": 2, "scale": 8,
     "multiple": 512},
    {"name": "bert-base-drawn", "model": "bert-base", "data": "squad_features_384_128_every5.csv",
     "batch": 16, "amp": True, "multiple": 1},
    {"name": "gpt2-medium-drawn", "model": "gpt2-medium",
     "data": "squad_features_384_128_every5.csv", "batch": 8, "multiple": 1},
    {"name": "bert-base-trainer", "model": "bert-base", "trainer": True,
     "data": "squad_features_384_128_every5.csv", "batch": 16, "amp": True, "multiple": 8},
    {"name": "lora-1b-trainer", "model": "lora-1b", "trainer": True, "data": "alpaca5k.csv",
     "batch": 8, "scale": 4, "multiple": 8},
]
USUAL = ("bert-base", "bert-base-96", "llama-1b")
RIVALS = ("full", "mimose")
PRELOADED = ["torch", "transformers", "pudica", "cuda_card"]


def padded(cell):
    multiple = cell["multiple"]
    return [(batch, *(-(-length // multiple) * multiple for length in lengths))
            for batch, *lengths in shapes_of(cell)]


def step(model, optimizer, cell, shape, number):
    import torch

    torch.manual_seed(number)
    amp = cell.get("amp")
    with torch.autocast("cuda", torch.bfloat16) if amp else contextlib.nullcontext():
        loss = loss_of(model, cell["model"], shape, seed=number)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def prepare(model, way):
    """What is done to the model itself."""
    enable_checkpointing(model, way["kind"] == "checkpointing")
    if way["kind"] == "selective":
        checkpoint_selectively(model)


def told_of(model, handle):
    """What a way's job returns."""
    stats = handle.stats() if handle is not None else {}
    return {"digest": digest(model), **{key: stats[key] for key in (
        "learning_steps", "resting_steps", "overruns", "failures", "revocations",
        "infeasible_steps", "recomputed_layers", "layer_calls") if key in stats}}


def trainer_job(turn, options, way):
    """Trains one way of a cell by Hugging Face's Trainer."""
    return told_of(*train(turn, options, way, lambda model: prepare(model, way)))


def job(turn, options, way):
    """Trains one way of a cell."""
    import torch

    import pudica

    cell = way["cell"]
    model, optimizer = build(cell["model"], options.seed)
    prepare(model, way)
    handle = None
    if way["kind"] == "policy":
        handle = pudica.attach(model, way["budget"], policy=way["policy"], daemon=False)
    shapes = iter(enumerate(padded(cell), 1))
    for _ in range(options.turns):
        turn.begin()
        began = time.perf_counter()
        active, reserved = [], []
        for number, shape in [next(shapes) for _ in range(options.steps_a_turn)]:
            torch.cuda.reset_peak_memory_stats()
            step(model, optimizer, cell, shape, number)
            active.append(peak("active"))
            reserved.append(peak("reserved"))
        torch.cuda.synchronize()
        turn.end(seconds=time.perf_counter() - began, active=active, reserved=reserved)
    return told_of(model, handle)


def limits_job(turn, options, way):
    """Bytes of the longest batch, every layer recomputed and every layer kept."""
    import torch

    cell = way["cell"]
    model, optimizer = build(cell["model"], options.seed)
    longest = max(padded(cell), key=lambda shape: shape[0] * sum(shape[1:]))
    found = {}
    turn.begin()
    for name in ("checkpointing", "plain"):
        enable_checkpointing(model, name == "checkpointing")
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            step(model, optimizer, cell, longest, 0)
        found[name] = peak("active")
    turn.end()
    return found


def ways_of(cell, budget, options):
    ways = {"plain": {"kind": "plain"}, "plain again": {"kind": "plain"},
            "gradient_checkpointing=True": {"kind": "checkpointing"},
            "torch selective checkpoint": {"kind": "selective"},
            "pudica": {"kind": "policy", "policy": "pudica", "budget": budget},
            "pudica, ample": {"kind": "policy", "policy": "pudica", "budget": AMPLE},
            **{f"policy {name}": {"kind": "policy", "policy": name, "budget": budget}
               for name in options.policies}}
    return {name: {**way, "cell": cell} for name, way in ways.items()}


def row(lane, plain, budget, warmup):
    """`budget`: the way's own, or the one that others are held to."""
    if lane.failure:
        return {"status": "failed", "detail": lane.failure}
    own, base = ([told["seconds"] for told in one.measured[warmup:]] for one in (lane, plain))
    reserved = [value for told in lane.measured for value in told["reserved"]]
    active = [value for told in lane.measured for value in told["active"]]
    return {"status": "ok", "time_of_plain": over(own, base), "turn_seconds": sum(own) / len(own),
            "reserved_peak_bytes": max(reserved), "active_peak_bytes": max(active),
            "steps_over_by_reserved": sum(value > budget for value in reserved),
            "steps_over_by_active": sum(value > budget for value in active),
            "same_parameters": lane.report["digest"] == plain.report["digest"], **lane.report}


def measure(cell, options):
    cell = {**cell, "steps": options.turns * options.steps_a_turn, "seed": options.seed}
    ends = interleave(limits_job, options, {"limits": {"cell": cell}}, 1,
                      "forkserver")["limits"]
    if ends.failure:
        return {**cell, "failed": ends.failure}
    floor, everything = ends.report["checkpointing"], ends.report["plain"]
    budget = int(floor + options.share * (everything - floor))
    ways = ways_of(cell, budget, options)
    lanes = interleave(trainer_job if cell.get("trainer") else job, options, ways, options.turns,
                       "forkserver")
    if lanes["plain"].failure:
        return {**cell, "failed": lanes["plain"].failure}
    rows = {name: row(lane, lanes["plain"], ways[name].get("budget", budget), options.warmup)
            for name, lane in lanes.items()}
    return {**cell, "floor_bytes": floor, "keep_all_bytes": everything, "budget_bytes": budget,
            "rows": rows}


def say(cell):
    print(f"{cell['name']} ({cell['data']}, batch {cell['batch']})")
    if "failed" in cell:
        print(f"  failed: {cell['failed']}")
        return
    gib = 1 << 30
    print(f"  floor {cell['floor_bytes'] / gib:.2f}, keep all {cell['keep_all_bytes'] / gib:.2f}, "
          f"budget {cell['budget_bytes'] / gib:.2f} GiB")
    for name, found in cell["rows"].items():
        if found["status"] != "ok":
            print(f"  {name:28} {found['detail'][:200]}")
            continue
        times = found["time_of_plain"]
        print(f"  {name:28} {times['median']:.3f} ({times['quartiles'][0]:.3f} to "
              f"{times['quartiles'][1]:.3f}, sums {times['total']:.3f}) of plain, reserved "
              f"{found['reserved_peak_bytes'] / gib:.2f}, over {found['steps_over_by_reserved']}, "
              f"{'same' if found['same_parameters'] else 'other'} bits")


def faults_of(cell):
    """What must not be: a way that ended, pudica over its own budget or failing inside."""
    if "failed" in cell:
        return [cell["failed"]]
    found = [f"{name}: {row['detail']}" for name, row in cell["rows"].items()
             if row["status"] != "ok"]
    for name, row in cell["rows"].items():
        if name.startswith("pudica") and row["status"] == "ok":
            if row["failures"] or row["steps_over_by_reserved"]:
                found.append(f"{name}: {row['failures']} failures, "
                             f"{row['steps_over_by_reserved']} steps over")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=6, help="turns that are not counted")
    parser.add_argument("--steps-a-turn", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", default=",".join(USUAL),
                        help="these, in this order, with commas between (default: %(default)s),"
                        " of: " + ", ".join(cell["name"] for cell in CELLS))
    parser.add_argument("--policies", default=",".join(RIVALS))
    options = parser.parse_args()
    if options.turns < options.warmup + 3:
        parser.error(f"--turns {options.turns}: expected three more than --warmup, or more")
    options.policies = [name for name in options.policies.split(",") if name]
    os.environ.update(measuring_environment())
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    # The server is a new program: it finds this folder and the package by PYTHONPATH.
    paths = [str(ROOT / "bench"), str(ROOT / "scripts/lib"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    names = [cell["name"] for cell in CELLS]
    wanted = options.cells.split(",")
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"--cells {','.join(unknown)}: expected some of {', '.join(names)}")
    result = {"schema": "pudica.bench/1", "benchmark": "cuda_card",
              **origin(["bench/cuda_card.py", *sys.argv[1:]], options.seed, "transformers"),
              "clock": "wall clock of turns, synchronized at their end", "cells": []}
    cells = {cell["name"]: cell for cell in CELLS}
    for name in wanted:  # in the order that was asked for: a card may be taken away
        result["cells"].append(measure(cells[name], options))
        say(result["cells"][-1])
        sys.stdout.flush()
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if faults := [f"{cell['name']}: {fault}" for cell in result["cells"]
                  for fault in faults_of(cell)]:
        sys.exit("cuda_card: " + "; ".join(faults))


if __name__ == "__main__":
    main()
