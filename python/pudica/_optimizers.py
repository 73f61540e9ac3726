"""The end of a step: the optimizer's, where it is one that trains an attached model."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from ._handle import Handle

_handles: weakref.WeakSet[Handle] = weakref.WeakSet()
_hook: Any = None


def _stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for handle in list(_handles):
        if handle._owns(optimizer):
            handle._optimizer_stepped(optimizer)


def watch(handle: Handle) -> None:
    global _hook
    _handles.add(handle)
    if _hook is None:
        _hook = register_optimizer_step_post_hook(_stepped)


def forget(handle: Handle) -> None:
    global _hook
    _handles.discard(handle)
    if _hook is not None and not _handles:
        _hook.remove()
        _hook = None
