"""What is particular to CUDA devices."""

from __future__ import annotations

import torch

from . import _native
from ._errors import AttachError, from_native


def expand_segments(device: torch.device) -> None:
    """New segments of torch's allocator are expandable from now on. Raises AttachError."""
    if device.type != "cuda":
        raise AttachError(
            f'allocator is "expandable" and the model is on {device}; expected a CUDA device'
        )
    try:
        _native.ops.expand_segments(str(device))
    except RuntimeError as error:
        why = str(from_native(error, AttachError))
        raise AttachError(f'allocator is "expandable"; {why}') from None


def usable_bytes(device: torch.device) -> int:
    """What this process has of a CUDA device or could still get: what others on the card, its
    context and libraries beside torch's allocator hold is not among it."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device)
