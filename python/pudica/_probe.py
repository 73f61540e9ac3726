"""Why a layer does not reproduce itself: each call is run twice and what differs is named."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Protocol

import torch
from torch import nn

from . import _numpy_random
from ._arguments import take_apart, tensors_in


@dataclasses.dataclass
class Finding:
    """A layer whose second run is not like its first."""

    layer: str  # its name in the model
    kind: str  # its class
    reason: str

    def __str__(self) -> str:
        return f"{self.layer} ({self.kind}): {self.reason}"


class Subject(Protocol):
    model: nn.Module

    def reset(self) -> None: ...
    def loss(self) -> torch.Tensor: ...
    def mixed(self) -> Any: ...


def _plain_attributes(layer: nn.Module) -> dict[str, Any]:
    return {
        f"{name}.{key}".lstrip("."): value
        for name, inner in layer.named_modules()
        for key, value in vars(inner).items()
        if issubclass(type(value), (bool, int, float, str))
    }


def _same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(left, right, strict=True)
    )


class _Probe:
    """Around one layer's calls."""

    def __init__(self, name: str, layer: nn.Module) -> None:
        self.name = name
        self.layer = layer
        self.reason = ""
        self._calls: list[Any] = []

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        template, tensors, _, _ = take_apart(args, kwargs)
        self._calls.append(
            (
                template,
                tensors,
                [t._version for t in tensors],
                [t.detach().clone() for t in tensors],
                torch.get_rng_state(),
                random.getstate(),
                [b.detach().clone() for b in module.buffers()],
                _plain_attributes(module),
            )
        )

    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        template, tensors, versions, copies, torch_state, state, buffers, plain = self._calls.pop()
        if self.reason:
            return
        first = [t.detach().clone() for t in tensors_in(output)]
        changed = [name for name, value in _plain_attributes(module).items()
                   if plain.get(name, value) != value]
        in_place = [i for i, t in enumerate(tensors) if t._version != versions[i]]
        later, now, numpys = torch.get_rng_state(), random.getstate(), _numpy_random.state()
        for buffer, copy in zip(module.buffers(), buffers, strict=True):
            with torch.no_grad():
                buffer.copy_(copy)
        torch.set_rng_state(torch_state)
        random.setstate(state)
        try:
            args, kwargs = template.rebuild(copies)
            second = tensors_in(module.forward(*args, **kwargs))
        except Exception as error:
            self.reason = f"run again it fails: {type(error).__name__}: {error}"
        finally:
            random.setstate(now)
            drawn = _numpy_random.restore(numpys)
            same_draws = torch.equal(torch.get_rng_state(), later)
            torch.set_rng_state(later)
        if self.reason:
            return
        if in_place:
            self.reason = "it changes its arguments in place (write to a copy instead)"
        elif drawn:
            self.reason = "it draws from numpy's random (draw from torch instead)"
        elif not _same(first, second):
            self.reason = "run again from equal arguments and seeds its output differs"
            if changed:
                self.reason += f"; it changes its own {changed[0]}, which its output may depend on"
        elif not same_draws:
            self.reason = "run again it draws another number of random numbers"


def probe(subject: Subject, layers: list[nn.Module]) -> list[Finding]:
    """In the order of the calls: layers that do not reproduce themselves, with the likely
    reason."""
    names = {id(module): name for name, module in subject.model.named_modules()}
    probes: list[_Probe] = []
    hooks: list[Any] = []
    order: list[_Probe] = []
    for layer in layers:
        one = _Probe(names.get(id(layer), "?"), layer)
        probes.append(one)

        def before(module: nn.Module, args: Any, kwargs: Any, one: _Probe = one) -> None:
            if one not in order:
                order.append(one)
            one.before(module, args, kwargs)

        def after(
            module: nn.Module, args: Any, kwargs: Any, output: Any, one: _Probe = one
        ) -> None:
            one.after(module, args, kwargs, output)

        hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(layer.register_forward_hook(after, with_kwargs=True, prepend=True))
    subject.reset()
    try:
        with subject.mixed():
            subject.loss()
    finally:
        for hook in hooks:
            hook.remove()
    return [Finding(p.name, type(p.layer).__name__, p.reason) for p in order if p.reason]
