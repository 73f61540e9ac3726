"""Budgets as users write them."""

from __future__ import annotations

import json
import numbers
import pathlib
import re
from typing import Any, NamedTuple, Union

import torch

from . import _native
from ._between import Between
from ._cuda import usable_bytes
from ._errors import BudgetError

Budget = Union[int, float, str, Between]
_AUTO = 0.9  # of the device
_MOST_BYTES = 2**63 - 1
_EXPECTED = (
    'bytes (an int of at least 1, or a text such as "20GiB"), a fraction (a float in (0, 1], or a '
    'text such as "0.9"), between(0.4), or "auto"'
)


class Limits(NamedTuple):
    """What a budget comes to on a device."""

    bytes: int
    # Of the way from recomputing all to keeping all, of which `bytes` is then the most; None: none.
    fraction: float | None = None


def _cgroup_limit() -> int | None:
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = pathlib.Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _memory_available() -> int | None:
    try:
        text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def device_bytes(device: torch.device) -> int:
    """What a fraction is a fraction of: on CPU the smaller of the cgroup's limit and the memory
    available now."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    known = [limit for limit in (_cgroup_limit(), _memory_available()) if limit]
    if not known:
        raise BudgetError(
            "budget is a fraction, but this system does not tell how much memory there is; "
            'expected bytes such as "20GiB"'
        )
    return min(known)


def _fraction(value: float, device: torch.device) -> int:
    if not 0 < value <= 1:
        raise BudgetError(
            f"budget {value!r} is a fraction; expected more than 0 and at most 1, or whole bytes"
        )
    return max(1, int(value * device_bytes(device)))


def resolve(budget: Budget, device: torch.device) -> Limits:
    """Of a budget: an int is bytes, a float in (0, 1] a fraction of the device, a str bytes with a
    unit ("20GiB", "18 GB"), a fraction with a point ("0.9"), what between() makes ("between(0.4)")
    or "auto": 0.9 of the device, of a CUDA device 0.9 of what this process has of it or could still
    get. Raises BudgetError."""
    if isinstance(budget, Between):
        return from_setting({"kind": "between", "fraction": budget.fraction}, device)
    if isinstance(budget, bool) or not isinstance(budget, (numbers.Integral, float, str)):
        raise BudgetError(f"budget is {budget!r}; expected {_EXPECTED}")
    if isinstance(budget, float):
        return Limits(_fraction(budget, device))
    if isinstance(budget, numbers.Integral):
        if not 1 <= budget <= _MOST_BYTES:
            raise BudgetError(
                f"budget is {budget} bytes; expected at least 1 and at most {_MOST_BYTES}"
            )
        return Limits(int(budget))
    try:
        read = json.loads(_native.ops.read_budget(budget.strip()))
    except RuntimeError:
        raise BudgetError(f"budget is {budget!r}; expected {_EXPECTED}") from None
    return from_setting(read, device)


def from_setting(read: dict[str, Any], device: torch.device) -> Limits:
    if read["kind"] == "bytes":
        return Limits(int(read["bytes"]))
    if read["kind"] == "fraction":
        return Limits(_fraction(float(read["fraction"]), device))
    return Limits(_auto(device), float(read["fraction"]) if read["kind"] == "between" else None)


def _auto(device: torch.device) -> int:
    if device.type == "cuda":
        return max(1, int(_AUTO * usable_bytes(device)))
    return _fraction(_AUTO, device)


def format_bytes(count: float) -> str:
    """"12.3 MiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def format_apart(left: int, right: int) -> tuple[str, str]:
    """Two counts that differ, so that it shows."""
    texts = format_bytes(left), format_bytes(right)
    return texts if texts[0] != texts[1] else (f"{left} bytes", f"{right} bytes")
