"""Every policy of pudica-train over committed lengths: a cell is a trace, a budget and a seed. In a
cell each policy trains in a process of its own, one step each in turn, on the same batches."""

import json
import os
import pathlib
import subprocess
import tempfile

import rivals_cells

ROOT = pathlib.Path(__file__).resolve().parents[1]
# name: what pudica-train is told of it. Batches as in Mimose's paper, where a model of two cores'
# size allows.
TRACES = {
    "SQuAD 384": ["--data", "lengths:data/squad_features_384_128_every5.csv", "--batch", "6"],
    "SQuAD 512": ["--data", "lengths:data/squad_features_512_128_every5.csv", "--batch", "4"],
    "QQP": ["--data", "lengths:data/qqp.csv", "--batch", "32"],
    "SWAG": ["--data", "lengths:data/swag_val500.csv", "--batch", "32"],
    "Multi30k": ["--data", "lengths:data/multi30k_en_de.csv", "--batch", "32"],
    "Alpaca": ["--data", "lengths:data/alpaca5k.csv", "--batch", "8"],
    "text": ["--max-length", "512", "--batch", "4"],
}
KEPT = ("status", "detail", "time_vs_none", "cpu_time_vs_none", "peak_bytes", "budget_used",
        "overruns", "revoked_steps", "recomputed_share", "steps")
BASE = "none"


def program():
    """pudica-train of the build whose library the package loads."""
    folder = os.environ.get("PUDICA_BUILD_BIN")
    if folder is None:
        library = pathlib.Path(os.environ.get("PUDICA_NATIVE_LIBRARY", ""))
        folder = library.parent.parent / "bin"
    found = pathlib.Path(folder) / "pudica-train"
    if not found.is_file():
        raise SystemExit(f"bench/rivals.py: no {found}; expected PUDICA_BUILD_BIN to name the "
                         "folder of pudica-train")
    return str(found)


def all_policies():
    """Those that this build has, the base first."""
    from pudica import _native

    names = [str(name) for name in _native.ops.policy_names()]
    return sorted(names, key=lambda name: name != BASE)


def row(policy):
    kept = {key: policy.get(key) for key in KEPT}
    kept["cpu_time_vs_none_quartiles"] = policy.get("cpu_time_vs_none_quartiles")
    kept["digest"] = policy.get("params_sha256")
    return kept


def measure(trace, budget, seed, options, policies):
    """One cell. Raises RuntimeError where the program does not do it."""
    words = [program(), "--threads", "1", "--model", options.model, *TRACES[trace],
             "--steps", str(options.steps), "--seed", str(seed), "--budget", f"{budget:.6f}",
             "--policy", ",".join(policies)]
    with tempfile.TemporaryDirectory(prefix="pudica-rivals-") as folder:
        done = subprocess.run([*words, "--out", folder], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"pudica-train: exit {done.returncode}: {done.stderr[-400:]}")
        result = json.loads((pathlib.Path(folder) / "result.json").read_text(encoding="utf-8"))
    rows = {policy["name"]: row(policy) for policy in result["policies"]}
    for found in rows.values():
        found["same_parameters"] = found["digest"] == rows[BASE]["digest"]
    return {**{key: result[key] for key in ("budget_bytes", "floor_bytes", "keep_all_bytes",
                                            "menu_floor_bytes")}, "rows": rows}


def run(options, say):
    policies = list(dict.fromkeys([BASE, *(options.policies or all_policies())]))
    return rivals_cells.run("trace", options.traces, options, say,
                            lambda *cell: measure(*cell, options, policies))
