#!/usr/bin/env python3
"""How exactly peaks are predicted at lengths that are multiples of nothing, on the emulated device:

    scripts/emulated --card H200 PYTHON bench/cuda_drawn.py bert-base 16 510

trains the model (bench/cuda_models.py) for some steps on batches of that many rows, each of a
length drawn evenly from 64 to the largest, without dropout; BERT under autocast, others as they are
built. The budget lies between what recomputing every layer and what keeping all takes at the
longest batch (active bytes). Counted: steps with a prediction, peaks within a tenth of a MiB of it,
those below and above, and steps over the budget. Which plans are tried hangs on times: runs differ.
"""

import argparse
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts/lib"), str(ROOT / "python")]

from cuda_budgets import enable_checkpointing  # noqa: E402
from cuda_models import CONFIGS, build, forward, peak, without_dropout  # noqa: E402

EXACT = 0.1 * 2**20


def step(model, optimizer, name, shape, seed):
    forward(model, name, shape, seed).backward()
    optimizer.step()
    optimizer.zero_grad()


def ends(model, optimizer, name, shape):
    """Bytes of this batch, every layer recomputed and every layer kept."""
    found = []
    for recomputed in (True, False):
        enable_checkpointing(model, recomputed)
        for _ in range(2):
            step(model, optimizer, name, shape, 0)
        found.append(peak("active"))
    enable_checkpointing(model, False)
    return found


def main():
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("model", choices=CONFIGS)
    asked.add_argument("rows", type=int)
    asked.add_argument("longest", type=int)
    asked.add_argument("--share", type=float, default=0.3, help="of the budget (default 0.3)")
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--each", action="store_true", help="a line for each step")
    options = asked.parse_args()
    if options.rows < 1 or options.longest < 64 or options.steps < 1:
        asked.error("expected at least 1 row, a largest length of 64 and 1 step")

    import torch

    import pudica

    torch.set_num_threads(1)
    shapes = [(options.rows, random.Random(k).randint(64, options.longest))
              for k in range(options.steps)]
    model, optimizer = build(options.model, 1)
    without_dropout(model)
    floor, keep_all = ends(model, optimizer, options.model, max(shapes))
    budget = int(floor + options.share * (keep_all - floor))
    handle = pudica.attach(model, budget, daemon=False)
    errors = []
    recomputed = 0
    for k, shape in enumerate(shapes, 1):
        step(model, optimizer, options.model, shape, k)
        last = handle.stats()["last_step"]
        recomputed += last["recomputed_layers"]
        predicted = last.get("predicted_peak_bytes")
        if predicted:
            errors.append((predicted - last["peak_bytes"], last["peak_bytes"]))
        if options.each:
            print(k, shape, predicted, last["peak_bytes"], last["recomputed_layers"],
                  last["reason"], flush=True)
    low = [off / of for off, of in errors if off < -EXACT]
    high = [off / of for off, of in errors if off > EXACT]
    print(f"{options.model}: {len(shapes)} steps, {len(errors)} predicted,"
          f" {len(errors) - len(low) - len(high)} exact, {len(low)} low"
          f" ({min(low, default=0.0):.2%}), {len(high)} high ({max(high, default=0.0):.2%}),"
          f" {recomputed} layers recomputed, {handle.stats()['overruns']} over")


if __name__ == "__main__":
    main()
