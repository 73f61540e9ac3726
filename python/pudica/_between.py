"""Budgets that lie between what recomputing and what keeping the longest batches needs."""

from __future__ import annotations

import dataclasses
import math
import numbers

from ._errors import BudgetError


@dataclasses.dataclass(frozen=True)
class Between:
    """A budget that between() made."""

    fraction: float

    def __str__(self) -> str:
        return f"between({self.fraction:g})"

    __repr__ = __str__


def between(fraction: float) -> Between:
    """A budget that lies so much of the way from what the longest batch seen needs with every layer
    recomputed (0) to what it needs with every layer kept (1); read anew as longer batches come.
    Until both are learned, and at most, it is "auto". Raises BudgetError."""
    number = isinstance(fraction, numbers.Real) and not isinstance(fraction, bool)
    if not number or math.isnan(fraction) or not 0 <= fraction <= 1:
        raise BudgetError(
            f"between({fraction!r}): expected a number from 0 (every layer of the longest batch "
            "recomputed) to 1 (every layer kept)"
        )
    return Between(float(fraction))
