"""Values in a call's arguments that hold no tensor and are taken as they are."""

from __future__ import annotations

import enum

import torch

ATOMS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    enum.Enum,
    type,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.Generator,
    torch.nn.Module,
)
# What is of exactly such a type holds nothing else and cannot change.
VALUES = frozenset((bool, int, float, complex, str, bytes, type(None)))
