"""State of optimizers that was made before attach() is counted once, and again where it changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from budgets import Stack, every_step
from stacks import run, stack
from torch import nn

import pudica
from pudica import _native


class Recorder:
    """A native attachment that notes what it is asked to count."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.counted: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def count_residents(self, tensors: list[torch.Tensor]) -> None:
        self.counted.append(len(tensors))
        self._native.count_residents(tensors)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, times: int = 1) -> None:
    for _ in range(times):
        run(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def recorded(handle: pudica.Handle) -> Recorder:
    recorder = Recorder(handle._native)
    handle._native = recorder
    return recorder


def test_state_is_handed_over_once_for_each_optimizer() -> None:
    model = stack()
    halves = list(model.layers[0].parameters()), list(model.layers[1].parameters())
    optimizers = [torch.optim.Adam(half) for half in halves]
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        recorder = recorded(handle)
        for _ in range(4):
            for optimizer in optimizers:
                step(model, optimizer)
        assert recorder.counted == [6, 6], "moments and a step number for weight and bias"
        assert handle.stats()["failures"] == 0


def test_an_optimizer_without_state_is_asked_again_until_it_has_some() -> None:
    model = stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.0)
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        recorder = recorded(handle)
        step(model, optimizer, 3)
        assert recorder.counted == []
        optimizer.param_groups[0]["momentum"] = 0.9
        step(model, optimizer, 3)
        assert recorder.counted == [len(list(model.parameters()))]


def test_state_of_a_parameter_that_gets_a_gradient_late() -> None:
    model = stack()
    model.layers[2].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        recorder = recorded(handle)
        step(model, optimizer, 3)
        model.layers[2].requires_grad_(True)
        step(model, optimizer, 3)
        assert [count // 3 for count in recorder.counted] == [6, 8]


@pytest.mark.parametrize("times", [1, 2])
def test_state_that_was_loaded(times: int) -> None:
    model = stack()
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        recorder = recorded(handle)
        step(model, optimizer, 2)
        for _ in range(times):
            optimizer.load_state_dict(copy.deepcopy(saved))
        step(model, optimizer, 2)
        assert len(recorder.counted) == 2


def test_state_from_before_the_meter_is_part_of_the_peak() -> None:
    """In a process of its own: the meter stays once it is there."""
    import pathlib
    import subprocess
    import sys

    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import small, torch\n"
        "model = small.make(hidden=128)\n"
        "optimizer = small.train(model, 1)\n"
        "import pudica\n"
        "with pudica.attach(model, '1GiB', daemon=False) as handle:\n"
        "    small.train(model, 3, optimizer)\n"
        "    state = [t for e in optimizer.state.values() for t in e.values()]\n"
        "    needed = sum(t.nbytes for t in [*state, *model.parameters()])\n"
        "    base = handle.stats()['last_step']['base_bytes']\n"
        "    print(needed <= base, base < needed * 1.2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(pathlib.Path(__file__).parent)],
        capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_a_rollback_by_deepcopy_teaches_nothing_of_peaks() -> None:
    # What the copies take the meter has not seen, until the step that follows ends.
    torch.manual_seed(0)
    model = Stack(6)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    saved: Any = None
    with pudica.attach(model, "1GiB", daemon=False) as handle, every_step(handle) as ended:
        for k in range(48):
            if k == 20:
                saved = copy.deepcopy(optimizer.state_dict())
            if k == 25:
                optimizer.load_state_dict(saved)
                saved = None
            optimizer.zero_grad()
            model(torch.full((2, (8, 12, 20)[k % 3]), k)).square().mean().backward()
            optimizer.step()
        assert handle.stats()["failures"] == 0
    off = [step["predicted_peak_bytes"] / step["peak_bytes"] - 1 for step in ended[26:]
           if step["predicted_peak_bytes"]]  # fmt: skip
    assert len(off) > 18 and max(map(abs, off)) < 0.005, off


def test_what_is_watched_is_not_kept_alive() -> None:
    model = stack()
    optimizer = torch.optim.Adam(model.parameters())
    with pudica.attach(model, "1GiB", daemon=False):
        step(model, optimizer)
        with_state = _native.ops.bytes_in_use("cpu")
        nbytes = sum(t.nbytes for e in optimizer.state.values() for t in e.values())
        optimizer.state.clear()
        assert _native.ops.bytes_in_use("cpu") <= with_state - nbytes
