"""Gradients of every architecture are those of the unmodified model, in every bit."""

from __future__ import annotations

import pytest
import torch

from pudica import parity

pytest.importorskip("transformers")
import zoo  # noqa: E402

DTYPES = {"fp32": None, "bf16": torch.bfloat16}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", zoo.MODELS)
def test_gradients_are_equal_under_every_plan(name: str, dtype: str) -> None:
    report = parity.check(lambda: zoo.build(name), autocast=DTYPES[dtype])
    print(report)
    assert report.ok, str(report)
    runs = {run.name: run for run in report.runs}
    assert runs["no plan"].recomputed_layers == 0
    assert runs["every layer"].recomputed_layers > 0
    assert runs["random plan 0"].recomputed_layers > 0
    assert runs["given back 0.4"].revocations > 0
