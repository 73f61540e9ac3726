"""Whether a tensor was written, through `.data` as well, and its values put back."""

from __future__ import annotations

import ctypes
import zlib
from typing import NamedTuple

import torch
from torch import nn


def has_memory(tensor: torch.Tensor) -> bool:
    """What is sharded gives its memory back between calls, and keeps its shape."""
    if tensor.numel() == 0:
        return False
    last = sum((n - 1) * by for n, by in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= needed


def _is_bytes(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu" and tensor.is_contiguous()
        and not tensor.is_conj() and not tensor.is_neg()
    )


class TensorState(NamedTuple):
    version: int
    dtype: torch.dtype
    values: bytes | None  # where it is small: writes through `.data` leave the version


def read_tensor(tensor: torch.Tensor, *, copies: bool) -> TensorState:
    if not copies or not has_memory(tensor):
        return TensorState(tensor._version, tensor.dtype, None)
    if _is_bytes(tensor):  # without an operator, which others see
        values = ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
        return TensorState(tensor._version, tensor.dtype, values)
    with torch.no_grad():
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().flatten()
    values = bytes(plain.view(torch.uint8).numpy())
    return TensorState(tensor._version, tensor.dtype, values)


def hash_of(tensor: torch.Tensor) -> int:
    """Of the values, where they are at hand without an operator; 0 elsewhere."""
    try:
        if type(tensor) not in (torch.Tensor, nn.Parameter) or not has_memory(tensor):
            return 0
        if not _is_bytes(tensor):
            return 0
    except Exception:  # noqa: BLE001  (nested ones, those of a transform)
        return 0
    values = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return zlib.crc32(values)


def put_tensor(tensor: torch.Tensor, then: TensorState) -> None:
    """Raises RuntimeError where it has not as many bytes, of that type, any more."""
    values = then.values
    if not values:
        return
    if len(values) != tensor.nbytes or then.dtype != tensor.dtype or not has_memory(tensor):
        raise RuntimeError(f"a tensor of {len(values)} bytes has got other memory since")
    if _is_bytes(tensor):
        ctypes.memmove(tensor.data_ptr(), values, len(values))
    else:
        flat = torch.frombuffer(bytearray(values), dtype=tensor.dtype)
        tensor.data.copy_(flat.view(tensor.shape))  # .data: backwards count versions
