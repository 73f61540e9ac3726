"""What is particular to CUDA devices."""

from __future__ import annotations

import torch

from ._errors import AttachError


def expand_segments(device: torch.device) -> None:
    """Segments that torch's allocator makes from now on are expandable. Raises AttachError."""
    if device.type != "cuda":
        raise AttachError(
            f'allocator is "expandable" and the model is on {device}; expected a CUDA device'
        )
    try:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    except RuntimeError as error:
        raise AttachError(
            f"this torch does not make expandable segments: {str(error).splitlines()[0]}"
        ) from None


def usable_bytes(device: torch.device) -> int:
    """What this process has of a CUDA device or could still get: what others on the card, its
    context and libraries beside torch's allocator hold is not among it."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device)
