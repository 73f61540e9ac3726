"""What the user's code has put on a layer's modules for its forward to read and that is no plain
value: tensors (conditioning, a bank of references), lists and dictionaries of them, objects. Other
code may put another in its place, or refill it, before the layer is run again."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

import torch

from ._atoms import VALUES
from ._generators import is_generator, set_state, state_of
from ._tensor_state import has_memory

_MOST = 256  # of a container whose contents are remembered
CONTAINERS = (list, dict, set)
_LARGEST_COPY = 1 << 16  # bytes
_ABSENT = object()
_WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: a tensor in attribute {} of a layer that is recomputed was written after the "
    "layer's forward"
)
_LET_GO = (
    "attribute {} of a layer that is recomputed is another than in the layer's forward, and what "
    "it was is held for 32 forwards only; expected fewer forwards before their backward, or the "
    "attribute as it was"
)


def refill(now: Any, then: Any) -> None:
    """A container, which stays the same object."""
    now.clear()
    if isinstance(now, list):
        now.extend(then)
    else:
        now.update(then)


def has_changed(now: Any, then: Any) -> bool:
    # Not by ==: tensors in it have no single answer.
    if len(now) != len(then):
        return True
    if isinstance(now, dict):
        return any(key not in now or now[key] is not then[key] for key in then)
    if isinstance(now, list):
        return any(a is not b for a, b in zip(now, then, strict=True))
    return bool(now != then)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


class _OfAGraph:
    """A tensor that a graph made. The graph may lead to other steps' layers, what those held among
    it: it is not kept alive, the tensor's memory is."""

    __slots__ = ("_itself", "_same_memory")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._itself = weakref.ref(tensor)
        self._same_memory = tensor.detach().requires_grad_(tensor.requires_grad)

    def get(self) -> torch.Tensor:
        itself = self._itself()
        return self._same_memory if itself is None else itself

    def version(self) -> int:
        return _version(self._same_memory)


def _keep(value: Any) -> Any:
    of_a_graph = issubclass(type(value), torch.Tensor) and value.grad_fn is not None
    return _OfAGraph(value) if of_a_graph else value


def _get(kept: Any) -> Any:
    return kept.get() if type(kept) is _OfAGraph else kept


def _versions(kept: list[Any]) -> tuple[int, ...]:
    """Of the tensors among what is kept."""
    return tuple(
        one.version() if isinstance(one, _OfAGraph) else _version(one)
        for one in kept
        if issubclass(type(one), (torch.Tensor, _OfAGraph))
    )


def _bytes(kept: list[Any]) -> int:
    """Of the tensors among what is kept."""
    tensors = map(_get, kept)
    return sum(one.nbytes for one in tensors if issubclass(type(one), torch.Tensor))


def _weakly(kept: Any) -> Callable[[Any], bool]:
    """Tells the same thing from others without keeping it alive; what cannot be referred to weakly
    (a list in a list) by where it was."""
    if kept is None or isinstance(kept, (_OfAGraph, bool, int, float, str)):
        return lambda now: now is _get(kept)
    try:
        ref = weakref.ref(kept)
    except TypeError:
        return functools.partial(_lies_at, id(kept))
    return lambda now: now is ref()


def _lies_at(place: int, now: Any) -> bool:
    return id(now) == place


def _contents(value: Any) -> list[Any] | None:
    """Of a container whose contents are remembered, keys of a dictionary left out."""
    if type(value) not in (*CONTAINERS, tuple) or len(value) > _MOST:
        return None
    return list(value.values() if type(value) is dict else value)


class HeldObject:
    """An attribute of a module as a forward began: which object, that is kept alive until it is let
    go. What is in it is not looked into."""

    __slots__ = ("_is_it", "_name", "_own", "_value")

    def __init__(self, own: dict[str, Any], name: str) -> None:
        self._own = own
        self._name = name
        self._value = own[name]
        self._is_it: Callable[[Any], bool] | None = None  # let go

    def is_wanted(self) -> bool:
        """As the forward ends: a rerun is to find it so, and whatever it holds may be held on to.
        What the layer has put in its place is found as layers find what they keep on themselves."""
        return self._own.get(self._name, _ABSENT) is self._value

    def let_go(self) -> None:
        if self._is_it is None:
            self._is_it, self._value = _weakly(self._value), None

    def put_back(self, tell: Callable[[Callable[[], Any]], None]) -> None:
        """As it was, `tell` getting first what undoes it."""
        if self._is_it is None:
            _put(self._own, self._name, self._value, tell)
        elif not self._is_it(self._own.get(self._name, _ABSENT)):
            raise RuntimeError(_LET_GO.format(self._name))


class HeldTensors:
    """The same of tensors and of containers: what is in these, at which versions tensors are. Keeps
    the tensors' memory alive; of small ones that are written since, the values are there."""

    __slots__ = ("_are_they", "_is_container", "_kept", "_keys", "_own", "_values", "_written",
                 "name")

    def __init__(self, own: dict[str, Any], name: str) -> None:
        value = own[name]
        contents = _contents(value)
        self._own = own
        self.name = name
        self._is_container = contents is not None
        # Itself, then what is in it.
        self._kept = [_keep(value), *map(_keep, contents or ())]
        self._keys = tuple(value) if type(value) is dict else None
        self._written = _versions(self._kept)
        self._values = _small_values(value)
        self._are_they: list[Callable[[Any], bool]] | None = None  # let go: what is in it

    def _then(self) -> Any:
        """A container like the one it was."""
        inside = map(_get, self._kept[1:])
        if self._keys is not None:
            return dict(zip(self._keys, inside, strict=True))
        return type(self._kept[0])(inside)

    def _is_refilled(self) -> bool:
        value = self._kept[0]
        is_fixed = not self._is_container or type(value) is tuple
        return not is_fixed and has_changed(value, self._then())

    def is_wanted(self) -> bool:
        """As the forward ends. What the layer itself has put others in the place of is held on to
        where it is small and nothing but values: calls that it took from a list are not done twice.
        A single tensor that it wrote is held on to as well, and fails when it is put back where no
        copy is there: a layer that begins to write it after its class was tried would find another.
        """
        if _versions(self._kept) != self._written:
            return not self._is_container
        return not self.is_replaced() or (self.is_state() and _bytes(self._kept) <= _LARGEST_COPY)

    def is_of(self, own: dict[str, Any], name: str) -> bool:
        return self._own is own and self.name == name

    def is_written(self) -> None:
        """By a hook, which does not run again: it is to be found as it is now."""
        self._written = _versions(self._kept)
        self._values = _small_values(self._own.get(self.name))

    def is_state(self) -> bool:
        """Tensors, numbers and words."""
        return all(
            type(one) in VALUES or isinstance(one, (torch.Tensor, _OfAGraph))
            for one in self._kept[1 if self._is_container else 0 :]
        )

    def is_replaced(self) -> bool:
        """By the layer itself, as its forward ends, or what is in it."""
        is_there = self._own.get(self.name, _ABSENT) is _get(self._kept[0])
        return not is_there or self._is_refilled()

    def let_go(self) -> None:
        if self._is_container and self._are_they is None:
            self._are_they = [*map(_weakly, self._kept[1:])]
            self._kept = []

    def put_back(self, tell: Callable[[Callable[[], Any]], None]) -> None:
        """As it was, `tell` getting first what undoes it. Raises RuntimeError where a tensor was
        written in place since of which no copy is there."""
        if self._are_they is not None:
            now = self._own.get(self.name, _ABSENT)
            found = _contents(now)
            keys = tuple(now) if type(now) is dict else None
            same_size = found is not None and len(found) == len(self._are_they)
            if not same_size or keys != self._keys or not all(
                is_it(one) for is_it, one in zip(self._are_they, found or ())
            ):
                raise RuntimeError(_LET_GO.format(self.name))
            return
        if _versions(self._kept) != self._written:
            if self._values is None:
                raise RuntimeError(_WRITTEN.format(self.name))
            _put(self._own, self.name, self._values, tell)
            return
        value = _get(self._kept[0])
        _put(self._own, self.name, value, tell)
        if self._is_refilled():
            tell(functools.partial(refill, value, copy.copy(value)))
            refill(value, self._then())


class HeldGenerator:
    """The same of what draws random numbers: which it is, and what it was at."""

    __slots__ = ("_object", "_state", "_value")

    def __init__(self, own: dict[str, Any], name: str) -> None:
        self._object = HeldObject(own, name)
        self._value = own[name]
        self._state = state_of(self._value)

    def is_wanted(self) -> bool:
        return True

    def let_go(self) -> None:
        """It holds no tensors."""

    def put_back(self, tell: Callable[[Callable[[], Any]], None]) -> None:
        self._object.put_back(tell)
        now = state_of(self._value)
        if now != self._state:
            tell(functools.partial(set_state, self._value, now))
            set_state(self._value, self._state)


Held = Union[HeldObject, HeldTensors, HeldGenerator]
HeldKind = Union[type[HeldObject], type[HeldTensors], type[HeldGenerator]]


def kind_of(value: Any) -> HeldKind:
    """Which of them a value is held as: the same for every value of its type."""
    kind = type(value)  # a weak proxy says it is what it stands for, and that may be gone
    if kind in (*CONTAINERS, tuple) or issubclass(kind, torch.Tensor):
        return HeldTensors
    return HeldGenerator if is_generator(kind) else HeldObject


def hold(kind: HeldKind, own: dict[str, Any], name: str) -> Held:
    try:
        return kind(own, name)
    except Exception:  # noqa: BLE001  (a tensor of a class that tells nothing of itself)
        return HeldObject(own, name)


class HeldBuffer:
    """A buffer that the layer's forward has put another in the place of."""

    __slots__ = ("_buffers", "_value", "name")

    def __init__(self, buffers: dict[str, Any], name: str, value: torch.Tensor) -> None:
        self._buffers = buffers
        self.name = name
        self._value = value

    def is_small(self) -> bool:
        return self._value.nbytes <= _LARGEST_COPY

    def put_back(self, tell: Callable[[Callable[[], Any]], None]) -> None:
        _put(self._buffers, self.name, self._value, tell)


def replaced_buffers(
    before: Sequence[torch.Tensor], modules: Iterable[torch.nn.Module]
) -> list[HeldBuffer]:
    """Those among `before`, all that these modules had, that others have the place of."""
    now = [
        (module._buffers, name, buffer)
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    if len(now) != len(before):
        return []
    return [
        HeldBuffer(buffers, name, then)
        for (buffers, name, buffer), then in zip(now, before, strict=True)
        if then is not buffer and then.grad_fn is None
    ]


def _small_values(value: Any) -> torch.Tensor | None:
    """A copy of a tensor that is small: hooks write such (a norm, a count) after the forward, and
    whether it read them nobody knows."""
    if not isinstance(value, torch.Tensor) or value.is_inference() or not value.is_leaf:
        return None
    if value.layout != torch.strided or value.nbytes > _LARGEST_COPY or not has_memory(value):
        return None
    return value.detach().clone().requires_grad_(value.requires_grad)


def _put(
    own: dict[str, Any], name: str, value: Any, tell: Callable[[Callable[[], Any]], None]
) -> None:
    present = own.get(name, _ABSENT)
    if present is not value:
        tell(functools.partial(_set, own, name, present))
        own[name] = value


def _set(own: dict[str, Any], name: str, value: Any) -> None:
    if value is _ABSENT:
        own.pop(name, None)
    else:
        own[name] = value
