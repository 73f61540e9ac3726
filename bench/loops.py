#!/usr/bin/env python3
"""Trains small models in the ways that people step: losses left out, batches tried again, several
backwards, teachers, caches, layers that come and go. Each near its floor and between it and
keep-all; tells what pudica did not do well, in a line each. Peaks are counted in bytes on the CPU.
Which plans are tried depends on measured times: runs differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import courses
import loops_models  # noqa: F401 (its loops)
import loops_parts
import loops_steps  # noqa: F401 (its loops)
import torch


def training(_: str, name: str, seed: int, steps: int) -> courses.Make:
    make, function = loops_parts.LOOPS[name]
    loops_parts.SEED = seed

    def fresh() -> tuple[Any, Iterator[None]]:
        torch.manual_seed(seed)
        model = make().train()
        return model, function(model, steps)

    return fresh


if __name__ == "__main__":
    courses.main(__doc__, __file__, {"loops": list(loops_parts.LOOPS)}, training)
