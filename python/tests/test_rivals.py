"""scripts/bench rivals runs, with few steps: one digest, one meter, and a figure of them."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PUDICA_BUILD_BIN", "nowhere"))
sys.path.append(str(ROOT / "bench"))
if not (ROOT / "bench" / "rivals.py").exists():
    pytest.skip("the benchmarks are not beside the tests", allow_module_level=True)

import turns  # noqa: E402  (of bench)


def toy(turn: Any, options: Any, way: dict[str, int]) -> dict[str, int]:
    for step in range(options.steps):
        turn.begin()
        if way.get("raises") == step:
            raise ValueError("no room\nwhatsoever")
        if way.get("exits") == step:
            os._exit(3)
        turn.end(step=step)
    return way


def test_a_way_that_fails_is_told_and_the_others_go_on() -> None:
    ways = {"good": {}, "raises": {"raises": 1}, "exits": {"exits": 0}}
    options = argparse.Namespace(seed=1, steps=3)
    lanes = turns.interleave(toy, options, ways, options.steps)
    assert [told["step"] for told in lanes["good"].measured] == [0, 1, 2]
    assert len(lanes["good"].seconds) == 3 and lanes["good"].report == {}
    assert lanes["raises"].failure == "ValueError: no room" and len(lanes["raises"].seconds) == 1
    assert lanes["exits"].failure == "the process ended with exit code 3"


def rivals(*words: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "bench/rivals.py"), *map(str, words)],
                          capture_output=True, text=True, check=False, timeout=600)


def test_models_are_trained_by_every_row_under_one_meter(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    out = tmp_path / "found.json"
    done = rivals("--quick", "--part", "models", "--models", "vision (ViT)", "--compiled", " ",
                  "--policies", "pudica,full", "--steps", 15, "--json", out)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text(encoding="utf-8"))
    [cell] = result["models"]["cells"]
    rows = cell["rows"]
    assert {"plain", "plain, metered", "gradient_checkpointing=True", "policy pudica",
            "policy full", "torch selective checkpoint"} <= rows.keys()
    assert all(row["status"] == "ok" and row["same_parameters"] for row in rows.values()), rows
    assert cell["floor_bytes"] < cell["budget_bytes"] < cell["keep_all_bytes"]
    assert rows["plain"]["peak_bytes"] is None
    assert rows["plain, metered"]["peak_bytes"] == cell["keep_all_bytes"]
    assert rows["policy pudica"]["steps_over_budget"] == 0
    for saving in ("gradient_checkpointing=True", "policy full", "torch selective checkpoint"):
        assert rows[saving]["peak_bytes"] < rows["plain, metered"]["peak_bytes"], saving
    table = out.with_suffix(".md").read_text(encoding="utf-8")
    figure = out.with_suffix(".svg").read_text(encoding="utf-8")
    assert all(f"`{name}`" in table for name in rows)
    assert rivals("--from", out, "--json", tmp_path / "again.json").returncode == 0
    assert (tmp_path / "again.md").read_text(encoding="utf-8") == table
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == figure


@pytest.mark.skipif(not (BIN / "pudica-train").exists(),
                    reason="PUDICA_BUILD_BIN names no folder with pudica-train")
def test_traces_are_trained_by_the_policies_that_there_are(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "found.json"
    done = rivals("--quick", "--part", "traces", "--traces", "QQP", "--budgets", "0.5", "--steps",
                  11, "--policies", "none,full,pudica", "--json", out)
    assert done.returncode == 0, done.stderr
    [cell] = json.loads(out.read_text(encoding="utf-8"))["traces"]["cells"]
    ended = {name: row for name, row in cell["rows"].items() if row["status"] == "ok"}
    assert ended.keys() == {"none", "none (metered)", "full", "pudica"}
    assert all(row["same_parameters"] for row in ended.values())
    assert cell["rows"]["pudica"]["overruns"] == 0
    assert cell["rows"]["full"]["peak_bytes"] == cell["floor_bytes"]


def test_all_policies_are_taken_from_the_program() -> None:
    import rivals_traces

    known = rivals_traces.all_policies()
    assert known[0] == "none" and {"full", "mimose", "pudica", "static", "oracle"} <= set(known)


@pytest.mark.parametrize(("words", "named"), [
    (["--traces", "SQUAD"], "'SQUAD' seen, expected some of SQuAD 384"),
    (["--models", "encoder (BERT),gpt"], "'gpt' seen, expected some of encoder"),
    (["--budgets", "1.5"], "expected fractions from 0 to 1"),
    (["--part", "models", "--steps", "5"], "--steps 5: expected at least 15"),
])
def test_what_is_not_known_is_refused(words: list[str], named: str) -> None:
    done = rivals(*words)
    assert done.returncode == 2 and named in done.stderr
