"""The frontier as a picture; matplotlib is not needed for anything else."""

from __future__ import annotations

from typing import Any


def plot_frontier(points: list[tuple[int, float]], budget: int, axes: Any = None) -> Any:
    try:
        from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("plot() needs matplotlib: pip install matplotlib") from None
    if axes is None:
        _, axes = pyplot.subplots()
    mebibyte = 1 << 20
    axes.step(
        [peak / mebibyte for peak, _ in points],
        [1e3 * seconds for _, seconds in points],
        where="post",
        marker="o",
    )
    axes.axvline(budget / mebibyte, linestyle="--", color="gray", label="budget")
    axes.set_xlabel("peak memory, MiB")
    axes.set_ylabel("extra time a step, ms")
    axes.legend()
    return axes
