"""What is predicted of a step is what is measured, in a loop as people write it."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch

import pudica

STEPS = 48
LEARNED = 20  # steps after which every mode of the small model's menu is measured


def budget_at(share: float) -> int:
    """`share` of the way from the least to the largest peak of the longest batch."""
    model = small.make()
    with pudica.attach(model, budget="1GiB", daemon=False) as handle:
        small.train(model, 8)
        estimate = handle.estimate((4, max(small.lengths(STEPS))))
    floor, most = estimate["floor_peak_bytes"], estimate["keep_all_peak_bytes"]
    return int(floor + share * (most - floor))


# Logits of the step before live until the new ones are there, and move the peak into the forward.
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_peaks_are_predicted_and_held_in_a_plain_loop(share: float) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = small.make()
        errors: list[int] = []
        planned = 0

        def each(step: int) -> None:
            nonlocal planned
            last: dict[str, Any] = handle.stats()["last_step"]
            if step < LEARNED or last["predicted_peak_bytes"] is None:
                return
            planned += 1
            errors.append(last["peak_bytes"] - last["predicted_peak_bytes"])

        with pudica.attach(model, budget=budget_at(share), daemon=False) as handle:
            small.train(model, STEPS, each=each)
            stats = handle.stats()
    finally:
        torch.set_num_threads(threads)
    assert planned >= (STEPS - LEARNED) * 3 // 4
    assert max(abs(error) for error in errors) <= 64, errors
    assert stats["overruns"] == 0
    assert stats["infeasible_steps"] == 0


def test_a_step_that_measures_modes_predicts_nothing() -> None:
    model = small.make()
    measuring = 0

    def each(_step: int) -> None:
        nonlocal measuring
        last = handle.stats()["last_step"]
        if "selective modes measured in" in last["reason"]:
            measuring += 1
            assert last["predicted_peak_bytes"] is None

    with pudica.attach(model, budget=budget_at(0.3), daemon=False) as handle:
        small.train(model, 24, each=each)
    assert measuring > 0
