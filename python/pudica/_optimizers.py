"""The end of a step: the optimizer's, where it is one that trains an attached model."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._arguments import tensors_in

if TYPE_CHECKING:
    from ._handle import Handle

_handles: weakref.WeakSet[Handle] = weakref.WeakSet()
_hook: Any = None


class StateWatch:
    """Which state of optimizers has been seen: it appears in their first step, for a parameter that
    gets a gradient late in that step, and is another after load_state_dict()."""

    def __init__(self) -> None:
        # By optimizer: how many entries, and one of the tensors. Weak: what it frees is free.
        self._seen: weakref.WeakKeyDictionary[
            torch.optim.Optimizer, tuple[int, weakref.ref[torch.Tensor] | None]
        ] = weakref.WeakKeyDictionary()

    def fresh(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        """Its state's tensors, where there may be others than at the last call; else none."""
        entries = optimizer.state.values()
        count = sum(len(entry) if isinstance(entry, dict) else 1 for entry in entries)
        first = next((t for entry in entries for t in tensors_in(entry)), None)
        known = self._seen.get(optimizer)
        if known is not None and known[0] == count:
            witness = known[1]() if known[1] is not None else None
            if witness is first:
                return []
        self._seen[optimizer] = (count, None if first is None else weakref.ref(first))
        return [tensor for entry in entries for tensor in tensors_in(entry)]


def _trains(handle: Handle, optimizer: torch.optim.Optimizer) -> bool:
    return any(
        id(parameter) in handle._parameter_ids
        for group in optimizer.param_groups
        for parameter in group["params"]
    )


def _stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if torch._C._current_graph_task_id() != -1:
        return  # in a hook of the backward, parameter by parameter: the step has not ended
    for handle in list(_handles):
        if _trains(handle, optimizer):
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
