"""python -m pudica.parity and its check()."""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
from typing import Any

import numpy
import pytest
import small
import torch
from torch import nn

import pudica
from pudica import parity


class Twisted(small.Block):
    """A layer that may be wrong; all have one class, so that all are found."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.twist = ""

    def forward(self, x):
        y = super().forward(x)
        if self.twist == "draws":
            return y * (1 + numpy.random.random())
        if self.twist == "draws from Python's":
            return y * (1 + random.random())
        if self.twist == "counts":
            Twisted.calls += 1
            return y * Twisted.calls
        return y


def right() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = small.Model().train()
    return model, (torch.randint(0, 64, (4, 16)),)


def twisted(which: int, twist: str) -> tuple[nn.Module, Any]:
    model, batch = right()
    model.blocks = nn.ModuleList(Twisted() for _ in range(4))
    model.blocks[which].twist = twist

    def loss(model: nn.Module) -> torch.Tensor:
        Twisted.calls = 0
        return model(*batch).pow(2).mean()

    return model, loss


def draws() -> tuple[nn.Module, Any]:
    return twisted(2, "draws")


def counts() -> tuple[nn.Module, Any]:
    return twisted(1, "counts")


def restless() -> tuple[nn.Module, Any]:
    model, batch = right()
    state = [0.0]

    def loss(model: nn.Module) -> torch.Tensor:
        state[0] += 1
        return model(*batch).pow(2).mean() * state[0]

    return model, loss


def test_a_model_that_is_right() -> None:
    report = parity.check(right)
    assert report.ok, str(report)
    assert "every bit equal" in str(report)
    runs = {run.name: run for run in report.runs}
    assert runs["every layer"].recomputed_layers > 0
    assert runs["given back 0.4"].revocations > 0
    assert not any(hook for module in right()[0].modules() for hook in module._forward_hooks)


def test_under_autocast_with_named_layers() -> None:
    report = parity.check(right, autocast=torch.bfloat16, layers="Block")
    assert report.ok, str(report)
    assert report.layers == 4


def test_a_layer_that_draws_from_pythons_random_is_as_any() -> None:
    report = parity.check(lambda: twisted(2, "draws from Python's"))
    assert report.ok, str(report)


def test_a_layer_that_draws_from_numpys_random_is_named() -> None:
    report = parity.check(draws)
    assert not report.ok
    assert report.equal, "it is kept, so training is right"
    assert report.findings[0].layer == "blocks.2"
    assert "numpy's random" in str(report)


def test_a_layer_that_counts_is_named() -> None:
    report = parity.check(counts)
    assert not report.ok
    assert report.findings[0].layer == "blocks.1"


def test_a_model_that_differs_from_itself_cannot_be_checked() -> None:
    with pytest.raises(pudica.PudicaError, match="without pudica"):
        parity.check(restless)


@pytest.mark.parametrize(("factory", "code"), [("right", 0), ("draws", 1), ("restless", 2)])
def test_exit_codes(factory: str, code: int) -> None:
    assert parity.main([f"test_parity:{factory}", "--steps", "2"]) == code


def test_targets_that_cannot_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("nothing", "no_such_module:x", "test_parity:nothing"):
        assert parity.main([target]) == 2
        assert target in capsys.readouterr().err


def test_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pudica.parity", "test_parity:right"],
        cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "every bit equal" in done.stdout
    assert done.stderr == ""
