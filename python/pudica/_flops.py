"""Work of a rehearsal's steps, as the emulated device counts it: FLOPs of products of matrices, in
which attention's own kernels have no part, and what the device is busy for by its card's rates."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import nn

from ._emulated import counter
from ._errors import AttachError
from ._hooks import _Hook
from ._layers import find_layers


class _LayerBegins(_Hook):
    """Before a layer's forward."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        flops: Any = self.handle
        flops.layer_begins(module)


class _LayerEnds(_Hook):
    """After it, also where it threw, as a recompute does that has all that it needs."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        flops: Any = self.handle
        flops.layer_ends(module)


class Flops:
    """Counts by step. What a layer takes is known of models that are watched."""

    def __init__(self) -> None:
        self._count = counter("product_flops", ctypes.c_double)
        self._busy_us = counter("busy_us", ctypes.c_double)
        self._begin = self._begin_us = 0.0
        self._open: dict[int, float] = {}  # layers under way, by id
        self._forward = self._again = 0.0  # of layers, in the forward and in the backward
        self._apart: bool | None = None  # layers of all models that were seen are

    def watch(self, model: nn.Module) -> None:
        """Tells apart what the layers of a model take, unless some of it is compiled: a graph
        would be another one with hooks in it."""
        compiled = any(m._compiled_call_impl is not None for m in model.modules())
        try:
            layers = [] if compiled else find_layers(model)
        except AttachError:
            layers = []
        self._apart = bool(layers) and self._apart is not False
        for layer in layers:
            layer.register_forward_pre_hook(
                _LayerBegins(self), with_kwargs=True)  # type: ignore[arg-type]
            layer.register_forward_hook(
                _LayerEnds(self), with_kwargs=True, always_call=True)  # type: ignore[arg-type]

    def begin_step(self) -> None:
        if self._count is not None and self._busy_us is not None:
            self._begin, self._begin_us = self._count(), self._busy_us()
        self._forward = self._again = 0.0
        self._open.clear()

    def step(self) -> dict[str, float]:
        """Of the step since begin_step(): seconds of the device, all FLOPs, those of the layers'
        forwards (absent where they are not told apart), and those of layers that ran in the
        backward again."""
        if self._count is None or self._busy_us is None:
            return {}
        told = {"flops": self._count() - self._begin,
                "busy_seconds": 1e-6 * (self._busy_us() - self._begin_us)}
        if self._apart:
            told |= {"layer_flops": self._forward, "again_flops": self._again}
        return told

    def layer_begins(self, layer: nn.Module) -> None:
        if self._count is not None:
            self._open[id(layer)] = self._count()

    def layer_ends(self, layer: nn.Module) -> None:
        begin = self._open.pop(id(layer), None)
        if self._count is None or begin is None:
            return
        if torch._C._current_graph_task_id() == -1:
            self._forward += self._count() - begin
        else:
            self._again += self._count() - begin
