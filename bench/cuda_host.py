#!/usr/bin/env python3
"""What pudica costs the host, where a card waits for it: on the emulated device, whose kernels do
nothing, the time of a step is the host's.

    scripts/emulated --card H200 PYTHON bench/cuda_host.py bert-base 96 384 [--other FOLDER]

A model of bench/cuda_models.py trains in several ways, each in a process of its own, a turn of some
steps each in an order drawn anew: plain, under `full` (every layer recomputed) and planned, at a
budget between what recomputing every layer and what keeping all takes; with --other also planned by
the pudica that is built in that checkout. The first turns are not counted. No dropout: masks are
packed by the emulated device itself. Printed: milliseconds of forward, backward and optimizer
(medians, quartiles), of all with what Python's collector took, and what that took of a step.
"""

import argparse
import gc
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts/lib")]

from cuda_drawn import ends  # noqa: E402
from cuda_models import CONFIGS, build, forward, without_dropout  # noqa: E402
from turns import interleave, quartiles  # noqa: E402

PARTS = ("forward", "backward", "optimizer", "collector")


def take_package(tree):
    """pudica of a checkout that is built."""
    sys.path.insert(0, str(tree / "python"))
    os.environ["PUDICA_NATIVE_LIBRARY"] = str(
        tree / "build/release/python/libpudica_python.so")


class Collector:
    def __init__(self):
        self.seconds = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase, _):
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


def step(model, optimizer, options, length, number):
    """Seconds of its parts."""
    begin = time.perf_counter()
    loss = forward(model, options.model, (options.rows, length), number)
    middle = time.perf_counter()
    loss.backward()
    end = time.perf_counter()
    optimizer.step()
    optimizer.zero_grad()
    return middle - begin, end - middle, time.perf_counter() - end


def job(turn, options, way):
    take_package(way["tree"])
    model, optimizer = build(options.model, options.seed)
    without_dropout(model)
    handle = None
    if way["policy"]:
        import pudica

        least, most = ends(model, optimizer, options.model, (options.rows, options.length))
        budget = int(least + options.share * (most - least))
        handle = pudica.attach(model, budget, policy=way["policy"], daemon=False)
    collector = Collector()
    lengths = [options.length * share // 4 for share in (4, 3, 2)]
    number = 0
    for _ in range(options.turns):
        turn.begin()
        found = []
        for _ in range(options.steps_a_turn):
            before = collector.seconds
            parts = step(model, optimizer, options, lengths[number % len(lengths)], number)
            found.append((*parts, collector.seconds - before))
            number += 1
        turn.end(steps=found)
    return {} if handle is None else handle.stats()["last_step"]


def main():
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("model", choices=CONFIGS)
    asked.add_argument("rows", type=int)
    asked.add_argument("length", type=int)
    asked.add_argument("--share", type=float, default=0.4, help="of the budget (default 0.4)")
    asked.add_argument("--turns", type=int, default=16)
    asked.add_argument("--warmup", type=int, default=6, help="turns that are not counted")
    asked.add_argument("--steps-a-turn", type=int, default=6)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--other", type=pathlib.Path, help="a checkout that is built")
    options = asked.parse_args()
    if options.rows < 1 or options.length < 8 or options.turns < options.warmup + 3:
        asked.error("expected at least 1 row, a length of 8 and three turns behind --warmup")
    ways = {"plain": {"policy": "", "tree": ROOT}, "full": {"policy": "full", "tree": ROOT},
            "pudica": {"policy": "pudica", "tree": ROOT}}
    if options.other:
        ways["the other"] = {"policy": "pudica", "tree": options.other.resolve()}
    lanes = interleave(job, options, ways, options.turns)
    print(f"{options.model}, {options.rows} rows of {options.length} at most; ms of a step")
    for name, lane in lanes.items():
        if lane.failure:
            print(f"  {name:10} {lane.failure}")
            continue
        steps = [one for told in lane.measured[options.warmup:] for one in told["steps"]]
        line = []
        for part, values in zip(PARTS[:3], zip(*steps)):
            told = quartiles([1e3 * value for value in values])
            line.append("{} {:.2f} ({:.2f} to {:.2f})".format(
                part, told["median"], *told["quartiles"]))
        whole = 1e3 * sum(sum(one[:3]) for one in steps) / len(steps)
        collected = 1e3 * sum(one[3] for one in steps) / len(steps)
        print(f"  {name:10} {', '.join(line)}; all, in the mean {whole:.2f},"
              f" of it the collector {collected:.2f}")


if __name__ == "__main__":
    main()
