"""Trainings under two budgets each, every one in a process of its own, and a line of each: steps
over the budget, bits that differ, peaks predicted too low or too high, steps spent on learning."""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 60
# A fresh model, and a generator that trains it and yields after every step.
Make = Callable[[], tuple[Any, Iterator[None]]]


def run(make: Make, budget: int | str, policy: str | None = None) -> tuple[Any, list[Any], str]:
    import budgets
    import pudica
    import training_support

    gc.collect()  # models of the runs before, which count as anybody's bytes
    model, training = make()
    attached = pudica.attach(model, budget, daemon=False, policy=policy)
    with attached as handle, budgets.every_step(handle) as steps:
        for _ in training:
            pass
        return handle.stats(), steps, training_support.digest(model)


def ends(make: Make) -> tuple[int, int, str]:
    """The least peak when every layer is recomputed, that of keeping all, and the bits."""
    _, kept, bits = run(make, "1TiB", "none")
    _, full, _ = run(make, "1TiB", "full")
    # The first step of all keeps its layers, to try whether they can be run again.
    floor = max(step["peak_bytes"] for step in full[1:])
    return floor, max(step["peak_bytes"] for step in kept), bits


def told_of(make: Make, floor: int, keep_all: int, bits: str, share: float) -> dict[str, Any]:
    budget = int(floor * (1 if share > 0.1 else 1.02) + share * (keep_all - floor))
    stats, steps, digest = run(make, budget)
    errors = [one["predicted_peak_bytes"] / one["peak_bytes"] - 1
              for one in steps if one["predicted_peak_bytes"]]  # fmt: skip
    over = [one["peak_bytes"] / budget - 1 for one in steps if one["peak_bytes"] > budget]
    return {
        "over": max(len(over), stats["overruns"]),
        "most_over": max(over, default=0.0),
        "learning": sum(one["reason"].startswith("learning") for one in steps),
        "unplanned": len(steps) - len(errors),
        "low": sum(error < -0.01 for error in errors),
        "lowest": min(errors, default=0.0),
        "high": sum(error > 0.05 for error in errors),
        "highest": max(errors, default=0.0),
        "revoked": stats["revocations"],
        "state": stats["state"],
        "same_bits": digest == bits,
    }


def course(make: Make) -> dict[str, Any]:
    floor, keep_all, bits = ends(make)
    told: dict[str, Any] = {"floor_bytes": floor, "keep_all_bytes": keep_all}
    for share in (0.02, 0.3):
        told[str(share)] = told_of(make, floor, keep_all, bits, share)
    return told


def in_a_process(file: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, file, "--one", name, "--seed", str(options.seed),
               "--steps", str(options.steps)]  # fmt: skip
    paths = [str(ROOT / "python"), str(ROOT / "python" / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, text=True,
                             timeout=options.most_seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"more than {options.most_seconds} s"}
    if ran.returncode != 0:
        return {"error": (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1][:160]}
    try:
        out: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"printed no result: {ran.stdout[-100:]!r}"}
    return out


def line(name: str, told: dict[str, Any]) -> str:
    if "error" in told:
        return f"{name:28} {told['error']}"
    out = f"{name:28} {told['keep_all_bytes'] / told['floor_bytes']:5.2f}"
    for share, one in told.items():
        if not isinstance(one, dict):
            continue
        out += (f" | {share:>4}: over {one['over']:2} ({one['most_over']:5.1%}) learn"
                f" {one['learning']:2}/{one['unplanned']:2} low {one['low']:2}"
                f" ({one['lowest']:6.1%}) high {one['high']:2} ({one['highest']:5.1%})"
                f" rev {one['revoked']:2}{'' if one['same_bits'] else ' BITS'}"
                f"{'' if one['state'] == 'planning' else ' ' + one['state']}")  # fmt: skip
    return out


def main(
    description: str | None,
    file: str,
    heads: dict[str, list[str]],
    make: Callable[[str, str, int, int], Make],
) -> None:
    """The command line of `file`: `make(head, kind, seed, steps)` is a training of one of them."""
    asked = argparse.ArgumentParser(description=description)
    asked.add_argument("kinds", nargs="*", help="kinds or heads of them; all of them without")
    asked.add_argument("--seed", type=int, default=0, help="of the batches")
    asked.add_argument("--steps", type=int, default=STEPS, help="of each, at each budget")
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked.add_argument("--most-seconds", type=int, default=300, help="that one kind may take")
    asked.add_argument("--out", type=pathlib.Path, help="a JSON file")
    asked.add_argument("--one", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.steps < 2:
        asked.error(f"--steps {options.steps}: expected at least 2")
    if options.one:
        import torch

        torch.set_num_threads(1)
        told = course(make(*options.one.split(":"), options.seed, options.steps))
        print(json.dumps(told))
        return
    known = [(head, kind) for head, kinds in heads.items() for kind in kinds]
    chosen = [one for one in known if not options.kinds or set(one) & set(options.kinds)]
    unknown = set(options.kinds) - {name for one in known for name in one}
    if unknown:
        asked.error(f"unknown: {', '.join(sorted(unknown))}; heads are {', '.join(heads)}")
    results = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        ran = {pool.submit(in_a_process, file, ":".join(one), options): ":".join(one)
               for one in chosen}  # fmt: skip
        for done in concurrent.futures.as_completed(ran):
            results[ran[done]] = done.result()
            print(line(ran[done], done.result()), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
