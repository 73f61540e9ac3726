"""budget=pudica.between(0.4): a budget between what recomputing and what keeping the longest batch
needs, which follows what the run meets."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import small
import torch
import training_support as support
from torch import nn

import pudica

LENGTHS = [24, 40, 32, 48, 28, 44, 36, 48, 40, 24, 48, 32]
LONGER = [96, 64, 96, 80, 48, 96, 72, 96]


def train(handle: Any, model: nn.Module, lengths: list[int], first: int = 0) -> list[Any]:
    """What stats() says after each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for step, length in enumerate(lengths, first):
        torch.manual_seed(100 + step)
        words = small.batch(step, length)
        nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(handle.stats() if handle else None)
    return seen


def run(budget: Any, lengths: list[int], **options: Any) -> tuple[list[Any], str]:
    model = small.make(layers=6)
    with pudica.attach(model, budget, daemon=False, **options) as handle:
        return train(handle, model, lengths), support.digest(model)


def peak(lengths: list[int], policy: str) -> int:
    """The highest, but for the first step, in which a layer is kept to be tried."""
    return max(stats["last_step"]["peak_bytes"]
               for stats in run("1TiB", [min(lengths), *lengths], policy=policy)[0][1:])


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.7, 1.0])
def test_it_comes_to_a_place_between_what_was_measured(fraction: float) -> None:
    floor, keep_all = peak(LENGTHS, "full"), peak(LENGTHS, "none")
    assert floor < 0.7 * keep_all
    seen, _ = run(pudica.between(fraction), LENGTHS)
    last = seen[-1]
    width = keep_all - floor
    assert abs(last["budget_range"]["floor_bytes"] - floor) <= 0.02 * width
    assert abs(last["budget_range"]["keep_all_bytes"] - keep_all) <= 0.02 * width
    assert abs(last["budget_bytes"] - (floor + fraction * width)) <= 0.02 * width
    assert last["budget_fraction"] == fraction


def test_the_budget_that_it_comes_to_holds_and_changes_no_bit() -> None:
    seen, bits = run(pudica.between(0.3), LENGTHS + LONGER)
    model = small.make(layers=6)
    train(None, model, LENGTHS + LONGER)
    assert bits == support.digest(model)
    assert seen[-1]["overruns"] == 0 and seen[-1]["failures"] == 0
    for stats in seen:
        assert stats["last_step"]["peak_bytes"] <= stats["budget_bytes"]
    assert seen[-1]["recomputed_calls"] > 0


def test_a_longer_batch_is_read_before_its_own_step() -> None:
    seen, _ = run(pudica.between(0.5), LENGTHS + LONGER)
    before, first = seen[len(LENGTHS) - 1], seen[len(LENGTHS)]
    assert first["budget_bytes"] > 1.3 * before["budget_bytes"]
    assert first["last_step"]["peak_bytes"] > before["budget_bytes"]
    # Shorter batches behind it leave the budget as it is.
    settled = {stats["budget_bytes"] for stats in seen[-3:]}
    assert len(settled) == 1


def test_until_it_is_known_nothing_is_recomputed_for_it() -> None:
    model = small.make(layers=6)
    with pudica.attach(model, pudica.between(0.0), daemon=False) as handle:
        assert "to be learned" in repr(handle)
        auto = handle.budget
        with pytest.raises(pudica.NotLearnedError, match=r"budget between\(0.2\).* not learned"):
            handle.estimate((4, 40), budget=pudica.between(0.2))
        seen = train(handle, model, LENGTHS)
        assert "(between(0))" in repr(handle)
    unknown = [stats for stats in seen if stats["budget_range"] is None]
    assert 0 < len(unknown) < 5
    for stats in unknown:
        assert stats["budget_bytes"] == auto and stats["last_step"]["revocations"] == 0


def test_it_can_be_set_and_given_up_in_mid_run() -> None:
    model = small.make(layers=6)
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        train(handle, model, LENGTHS)
        handle.set_budget(pudica.between(0.25))
        ends = handle.stats()["budget_range"]
        width = ends["keep_all_bytes"] - ends["floor_bytes"]
        assert handle.budget == int(ends["floor_bytes"] + 0.25 * width)
        asked = handle.estimate((4, 48), budget=pudica.between(0.25))
        assert asked["budget_bytes"] == handle.budget
        handle.set_budget("1GiB")
        assert handle.stats()["budget_fraction"] is None and handle.budget == 1 << 30


def test_a_run_that_begins_with_a_learned_model_knows_it_at_once(tmp_path: pathlib.Path) -> None:
    model = small.make(layers=6)
    with pudica.attach(model, pudica.between(0.4), daemon=False) as handle:
        train(handle, model, LENGTHS)
        handle.save(tmp_path / "learned.json")
        expected = handle.budget
    model = small.make(layers=6)
    with pudica.attach(model, pudica.between(0.4), daemon=False) as handle:
        handle.load(tmp_path / "learned.json")
        first = train(handle, model, [48])[0]
    assert first["budget_range"] is not None
    assert abs(first["budget_bytes"] / expected - 1) < 0.05


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan"), float("inf"), "0.4", True, None])
def test_what_is_no_fraction(wrong: Any) -> None:
    with pytest.raises(pudica.BudgetError) as caught:
        pudica.between(wrong)
    assert f"between({wrong!r}): expected a number from 0" in str(caught.value)


@pytest.mark.parametrize("text", ["between(0.4)", "between(1)", "between(0)"])
def test_as_text_in_arguments_files_and_the_environment(
    text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fraction = float(text[len("between("):-1])
    config = support.config_file(tmp_path, budget=text)
    for options in ({"budget": text}, {"config": config}):
        with pudica.attach(small.make(), daemon=False, **options) as handle:
            assert handle.stats()["budget_fraction"] == fraction
    monkeypatch.setenv("PUDICA_BUDGET", text)
    with pudica.attach(small.make(), daemon=False) as handle:
        assert handle.stats()["budget_fraction"] == fraction


@pytest.mark.parametrize("text", ["between(1.4)", "between(-0.1)", "between(nan)", "between()",
                                  "between(0.4", "between"])
def test_texts_that_are_none(text: str) -> None:
    with pytest.raises(pudica.BudgetError, match="expected bytes .*between"):
        pudica.attach(small.make(), text, daemon=False)


def test_a_policy_that_learns_nothing_cannot_follow_it() -> None:
    words = "policy 'full' does not learn what the longest batches need.*expected bytes, or policy"
    with pytest.raises(pudica.BudgetError, match=words):
        pudica.attach(small.make(), pudica.between(0.4), policy="full", daemon=False)
    with pudica.attach(small.make(), "1GiB", policy="full", daemon=False) as handle:
        with pytest.raises(pudica.BudgetError, match=words):
            handle.set_budget(pudica.between(0.4))
        assert handle.budget == 1 << 30 and handle.stats()["budget_fraction"] is None
