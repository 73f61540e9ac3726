"""Where a handle is on its model: hooks, and what else of the modules is another while it is."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from torch import nn

from ._checkpointing import Takeover
from ._hooks import (
    ForwardBegin,
    ForwardEnd,
    Guard,
    LayerBegin,
    LayerEnd,
    Place,
    take_copied_hooks,
)
from ._messages import Messages
from ._newcomers import is_odd

if TYPE_CHECKING:
    from ._handle import Handle
    from ._newcomers import Newcomers

# Modules that carry the hooks of a handle.
attached_modules: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Handle]]
attached_modules = weakref.WeakKeyDictionary()


class _OnLayer(NamedTuple):
    layer: weakref.ref[nn.Module]
    hooks: list[Any]
    places: list[Place]
    guard: Guard


class Installed(Messages):
    """The part of Handle that is on the modules."""

    def __init__(self) -> None:
        super().__init__()
        self._on_layers: list[_OnLayer] = []
        self._parameter_ids: set[int] = set()
        self._outer: dict[int, set[int]] = {}  # of each module with hooks: those it lies in
        self._hooks: list[Any] = []  # on what the layers lie in
        self._newcomers: Newcomers | None = None

    @property
    def _handle(self) -> Handle:
        return cast("Handle", self)

    def _install(
        self, model: nn.Module, layers: list[nn.Module], newcomers: Newcomers | None
    ) -> None:
        """`newcomers`: where to look for layers that come later; None: there are no others."""
        self._newcomers = newcomers
        self._parameter_ids = {id(p) for p in model.parameters()}
        inner = {id(layer) for layer in layers}
        names = dict(model.named_modules(remove_duplicate=False))
        ancestors: dict[int, nn.Module] = {}
        for name, module in names.items():
            if id(module) not in inner:
                continue
            parts = name.split(".")
            above = [names[".".join(parts[:k])] for k in range(len(parts))]
            for depth, outer in enumerate(above):
                ancestors[id(outer)] = outer
                self._outer.setdefault(id(outer), set()).update(id(m) for m in above[:depth])
        for module in ancestors.values():
            if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                continue
            self._hooks += [
                module.register_forward_pre_hook(
                    ForwardBegin(self._handle), with_kwargs=True, prepend=True
                ),
                module.register_forward_hook(
                    ForwardEnd(self._handle), with_kwargs=True, always_call=True
                ),
            ]
        for layer in layers:
            self._install_on(layer)
        attached_modules[model] = weakref.ref(self._handle)
        self._takeover = Takeover([*layers, *ancestors.values()])
        self._take_over_checkpointing()

    def _install_on(self, layer: nn.Module) -> None:
        begin = layer.register_forward_pre_hook(LayerBegin(self._handle), with_kwargs=True)
        end = layer.register_forward_hook(
            LayerEnd(self._handle), with_kwargs=True, prepend=True, always_call=True
        )
        self._on_layers.append(_OnLayer(
            weakref.ref(layer), [begin, end], [Place(begin, last=True), Place(end, last=False)],
            Guard(self._handle, layer)))  # fmt: skip
        attached_modules[layer] = weakref.ref(self._handle)

    def _welcome_newcomers(self) -> None:
        fresh = self._newcomers.fresh() if self._newcomers is not None else []
        if not fresh:
            return
        self._on_layers = [on for on in self._on_layers if on.layer() is not None]
        for layer in fresh:
            # What holds layers is none itself; nor is what attach() would refuse, or not know yet.
            if any(module in attached_modules for module in layer.modules()) or is_odd(layer):
                continue
            take_copied_hooks(layer)
            self._parameter_ids |= {id(p) for p in layer.parameters()}
            self._install_on(layer)

    def _hold_places(self) -> None:
        """As a forward begins: to one end of the hooks there, also of those the user added."""
        for on in self._on_layers:
            for place in on.places:
                place.take()

    def _put_guards(self) -> None:
        for on in self._on_layers:
            on.guard.put()

    def _take_guards(self) -> None:
        for on in self._on_layers:
            on.guard.take()

    def _uninstall(self) -> None:
        self._take_guards()
        for hook in (*self._hooks, *(hook for on in self._on_layers for hook in on.hooks)):
            hook.remove()
        self._hooks.clear()
        for module in [m for m, ref in attached_modules.items() if ref() is self]:
            del attached_modules[module]
        self._takeover.give_back()

    def _take_over_checkpointing(self) -> None:
        if self._takeover.take():
            self._say_once(
                "checkpointing",
                "gradient checkpointing was on; pudica takes over, and gives it back at detach()",
            )
