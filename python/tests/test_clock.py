"""Seconds that the tests take from the operators' work: plans that are the same each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import small
import torch

import pudica
from pudica import _forced


def trained(threads: int) -> list[dict[str, Any]]:
    """Every step of a training under a tight budget, as it was told."""
    steps: list[dict[str, Any]] = []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = small.make()
        with pudica.attach(model, 5_000_000, daemon=False) as handle:
            small.train(model, 30, each=lambda _: steps.append(handle.stats()["last_step"]))
            plans = [entry["plan"] for entry in handle.plans()]
        for step in steps:
            del step["step_seconds"]  # of the wall's clock
    finally:
        torch.set_num_threads(before)
    assert sum(step["recomputed_layers"] for step in steps) > 0
    assert any(plan["predicted_extra_seconds"] > 0 for plan in plans)
    return [*steps, *plans]


def test_the_same_training_has_the_same_plans_whatever_the_number_of_threads() -> None:
    first = trained(1)
    assert trained(1) == first
    assert trained(2) == first


def test_another_clock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forced, "_clock", "sundial")
    with pytest.raises(RuntimeError, match=json.dumps("sundial")):
        pudica.attach(small.make(), "1GiB", daemon=False)
