"""Batches of any form: what is planned, and what is said, counted and held where nothing is."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import small
import torch
import training_support as support
from torch import nn
from training import attach, attached

import pudica

BUDGET = 6_000_000  # between floor and keep-all


class Wrapped(nn.Module):
    """Any batch, of which `ids_of` makes ids."""

    def __init__(self, ids_of: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model = small.make()
        self.ids_of = ids_of

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        ids = self.ids_of(*args, **kwargs)
        return nn.functional.cross_entropy(self.model(ids).flatten(0, 1), ids.flatten())


Call = Callable[[torch.Tensor], tuple[tuple[Any, ...], dict[str, Any]]]


def train(model: nn.Module, call: Call, batches: list[tuple[int, int]]) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (rows, length) in enumerate(batches):
        torch.manual_seed(100 + step)
        args, kwargs = call(small.batch(step, length, rows))
        model(*args, **kwargs).backward()
        optimizer.step()
        optimizer.zero_grad()
    return support.digest(model)


def trained(
    ids_of: Callable[..., torch.Tensor], call: Call, batches: list[tuple[int, int]],
    budget: int = BUDGET, **options: Any,
) -> dict[str, Any]:
    """Stats of a training that has the bits of one without pudica."""
    plain, model = Wrapped(ids_of), Wrapped(ids_of)
    expected = train(plain, call, batches)
    with pudica.attach(model, budget, daemon=False, **options) as handle:
        assert train(model, call, batches) == expected
        stats = handle.stats()
    assert stats["steps"] == len(batches)
    return stats


def lengths(steps: int) -> list[tuple[int, int]]:
    return [(4, length) for length in small.lengths(steps)]


def held(stats: dict[str, Any], budget: int = BUDGET) -> None:
    assert stats["overruns"] == 0
    assert stats["highest_peak_bytes"] <= budget
    assert stats["failures"] == 0
    assert stats["recomputed_layers"] + stats["revocations"] > 0, "it binds"


# -- planned ---------------------------------------------------------------------------------------


def test_a_list_of_any_length_is_planned(caplog: pytest.LogCaptureFixture) -> None:
    """As many sequences as come, 1 to 24, each of a length of its own."""
    drawn = random.Random(3)
    batches = [(drawn.randint(1, 24), drawn.randint(8, 60)) for _ in range(40)]
    batches.append((12, 40))  # one sequence alone is a kind of step of its own, and rare

    def call(ids: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return ([row[: max(2, len(row) - 3 * k)] for k, row in enumerate(ids)],), {}

    def ids_of(rows: list[torch.Tensor]) -> torch.Tensor:
        return nn.utils.rnn.pad_sequence(rows, batch_first=True)

    budget = 9_000_000
    stats = trained(ids_of, call, batches, budget)
    held(stats, budget)
    assert stats["unplanned_steps"] == 0
    assert stats["learning_steps"] <= stats["steps"] / 3
    assert stats["last_step"]["predicted_peak_bytes"] is not None
    assert set(stats["last_step"]["shape"].replace("=", ",").split(",")[::2]) == {
        "argument0_items", "argument0_total", "argument0_largest"}
    assert "not planned" not in caplog.text


@dataclasses.dataclass
class Batch:
    ids: torch.Tensor
    name: str = ""


def _encoding(ids: torch.Tensor) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.BatchEncoding({"ids": ids})


HOLDERS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "dataclass": (Batch, lambda batch: batch.ids),
    "encoding": (_encoding, lambda batch: batch["ids"]),
    "user dict": (lambda ids: collections.UserDict(ids=ids), lambda batch: batch["ids"]),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_holds_tensors_is_planned(holder: str) -> None:
    hold, ids_of = HOLDERS[holder]
    stats = trained(ids_of, lambda ids: ((hold(ids),), {}), lengths(14))
    held(stats)
    assert stats["unplanned_steps"] == 0
    assert stats["last_step"]["shape"].startswith("batch=4,length=")
    assert stats["last_step"]["predicted_peak_bytes"] is not None


def test_an_axis_that_was_one_at_first_is_planned_by() -> None:
    batches = [(4, 1), (4, 1)] + [(4, length) for length in (96, 40, 128, 64, 120, 90, 128, 110)]
    stats = trained(lambda ids: ids, lambda ids: ((ids,), {}), batches)
    held(stats)
    assert stats["last_step"]["shape"] == "batch=4,length=110"
    assert stats["state"] == "planning"
    # Predicted, or a step of a plan that also measures modes within a bound.
    assert "recomputed" in stats["last_step"]["reason"]


def test_another_kind_of_call_with_the_same_layers_is_planned() -> None:
    """Its layers are those of the step before it: nobody says so again."""
    kinds = iter([torch.int64] * 7 + [torch.int32] * 9)

    def call(ids: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (ids.to(next(kinds)),), {}

    model = Wrapped(lambda ids: ids.long())
    with pudica.attach(model, BUDGET, daemon=False) as handle:
        train(model, call, lengths(16))
        stats = handle.stats()
    assert stats["last_step"]["predicted_peak_bytes"] is not None, stats["last_step"]["reason"]
    assert stats["unplanned_steps"] == 0


# -- not planned -----------------------------------------------------------------------------------


def test_more_kinds_than_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    """Names that differ from call to call."""
    names = iter([f"ids_{k % 20}" for k in range(2 * 60)])

    def call(ids: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {next(names): ids}

    def ids_of(**named: torch.Tensor) -> torch.Tensor:
        return next(iter(named.values()))

    stats = trained(ids_of, call, lengths(60))
    held(stats)
    assert stats["unplanned_steps"] == 15, "five names of twenty, three times"
    said = [r.getMessage() for r in caplog.records if "not planned" in r.getMessage()]
    assert len(said) == 1
    assert "more than 15 ways" in said[0] and "Batches of one form are planned" in said[0]


def test_a_batch_without_a_tensor(caplog: pytest.LogCaptureFixture) -> None:
    def ids_of(rows: tuple[tuple[int, ...], ...]) -> torch.Tensor:
        return torch.tensor(rows)

    def call(ids: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tuple(tuple(row) for row in ids.tolist()),), {}

    stats = trained(ids_of, call, lengths(10))
    held(stats)
    assert stats["unplanned_steps"] == stats["steps"]
    said = [r.getMessage() for r in caplog.records if "not planned" in r.getMessage()]
    assert len(said) == 1
    assert "no tensor" in said[0] and "pass the batch as an argument" in said[0]


def test_what_unplanned_steps_overrun_is_counted() -> None:
    model = Wrapped(torch.tensor)
    with pudica.attach(model, 1, daemon=False) as handle:
        for _ in range(3):
            model(small.batch(0, 64).tolist()).backward()
        model.ids_of = lambda ids: ids
        model(small.batch(0, 64)).backward()
        assert handle.stats()["steps"] == 3, "the last is under way"
        assert handle.stats()["unplanned_steps"] == handle.stats()["overruns"] == 3


def test_a_batch_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    class Moody(collections.UserDict):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise OSError("not today")

    def call(ids: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (Moody(),), {"ids": ids}

    stats = trained(lambda batch, ids: ids, call, lengths(8))
    assert stats["unplanned_steps"] == stats["steps"]
    assert stats["highest_peak_bytes"] <= BUDGET
    assert stats["failures"] == stats["steps"]
    assert len(caplog.records) == 1 and "OSError('not today')" in caplog.text


@pytest.mark.parametrize("policy", ["full", "random:seed=3"])
def test_policies_that_need_no_shape_plan_all_the_same(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Wrapped(torch.tensor)
    with attached(model, policy) as handle:
        for _ in range(4):
            model(small.batch(0, 32).tolist()).backward()
        assert handle.stats()["unplanned_steps"] == 0
        assert handle.stats()["recomputed_layers"] > 0
    assert "not planned" not in caplog.text


def test_layers_that_are_called_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    model = small.make()
    with attached(model) as handle:
        for _ in range(2):
            x = model.embedding(small.batch(0, 20))
            for block in model.blocks:
                x = block(x)
            x.sum().backward()
        assert handle.stats()["steps"] == 0
    assert caplog.text.count("a Block was called in no forward") == 1
    assert "Call the model" in caplog.text


def test_layers_whose_saved_tensors_are_anothers(caplog: pytest.LogCaptureFixture) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:
            return func(*args, **(kwargs or {}))

    for scope, words in (
        (lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), "save_on_cpu"),
        (Watching, "a Watching (TorchDispatchMode)"),
    ):
        model = small.make()
        caplog.clear()
        handle = attach(model, "full")
        for step in range(3):
            with scope():
                out = model(small.batch(step, 20))
            out.sum().backward()
        with torch.no_grad():
            model(small.batch(0, 20))
        handle.detach()
        assert handle.stats()["unplanned_steps"] == 3
        assert handle.stats()["failures"] == 0
        said = [r.getMessage() for r in caplog.records if "not planned" in r.getMessage()]
        assert len(said) == 1 and words in said[0]
