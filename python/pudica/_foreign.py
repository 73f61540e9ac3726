"""What a layer may use that running it again does not find as it was: generators that are not
torch's, and state that it keeps on itself."""

from __future__ import annotations

import copy
import random
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

_Plain = list[tuple[dict[str, Any], dict[str, Any]]]
_PlainOfClasses = list[tuple[type, dict[str, Any]]]
_CONTAINERS = (list, dict, set)
_PLAIN = (bool, int, float, str, type(None), *_CONTAINERS)
_NOT_THE_USERS = ("torch", "builtins")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


def random_states() -> tuple[Any, Any]:
    """Of Python's generator and of numpy's global one (None: numpy is not loaded)."""
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), None if numpy is None else numpy.get_state()


def restore_random_states(states: tuple[Any, Any]) -> str:
    """Puts them back; whose was drawn from in between, empty: none."""
    drawn = ""
    python_state, numpy_state = states
    if random.getstate() != python_state:
        random.setstate(python_state)
        drawn = "Python's"
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and numpy_state is not None:
        now = numpy.get_state()
        if now[2:] != numpy_state[2:] or (now[1] != numpy_state[1]).any():
            numpy.set_state(numpy_state)
            drawn = "numpy's"
    return drawn


def plain_attributes(modules: Iterable[nn.Module]) -> _Plain:
    """Each module's own dict with the numbers and texts in it, and copies of its containers."""
    return [(vars(module), _plain_in(vars(module), "_")) for module in modules]


def restore_plain_attributes(before: _Plain) -> None:
    """What of it changed since; containers stay the same objects."""
    for attributes, values in before:
        for key, value in _changes(attributes, values):
            attributes[key] = value


def users_classes(modules: Iterable[nn.Module]) -> list[type]:
    """The classes of modules and their bases, but for torch's."""
    kinds = {kind: None for module in modules for kind in type(module).__mro__}
    return [kind for kind in kinds if kind.__module__.partition(".")[0] not in _NOT_THE_USERS]


def plain_class_attributes(kinds: Iterable[type]) -> _PlainOfClasses:
    """As plain_attributes(), of what classes keep on themselves."""
    return [(kind, _plain_in(vars(kind), "__")) for kind in kinds]


def restore_plain_class_attributes(before: _PlainOfClasses) -> None:
    for kind, values in before:
        for key, value in _changes(vars(kind), values):
            type.__setattr__(kind, key, value)


def _plain_in(attributes: Mapping[str, Any], hidden: str) -> dict[str, Any]:
    return {
        key: copy.copy(value) if type(value) in _CONTAINERS else value
        for key, value in attributes.items()
        if isinstance(value, _PLAIN) and not key.startswith(hidden)
    }


def _changes(now: Mapping[str, Any], then: dict[str, Any]) -> list[tuple[str, Any]]:
    """What is to be set again; containers are refilled here."""
    to_set = []
    for key, value in then.items():
        present = now.get(key)
        if type(value) not in _CONTAINERS:
            if present is not value:
                to_set.append((key, value))
        elif type(present) is type(value) and _changed(present, value):
            _refill(present, value)
    return to_set


def _refill(now: Any, then: Any) -> None:
    now.clear()
    if isinstance(now, list):
        now.extend(then)
    else:
        now.update(then)


def _changed(now: Any, then: Any) -> bool:
    # Not by ==: tensors in it have no single answer.
    if len(now) != len(then):
        return True
    if isinstance(now, dict):
        return any(key not in now or now[key] is not then[key] for key in then)
    if isinstance(now, list):
        return any(a is not b for a, b in zip(now, then, strict=True))
    return bool(now != then)


def without_hooks(modules: Iterable[nn.Module]) -> _Plain:
    """Takes the forward hooks of modules away; gives what each module's dict is to be updated
    with to bring them back."""
    taken = []
    for module in modules:
        attributes = vars(module)
        hooks = {key: attributes[key] for key in _HOOKS if attributes.get(key)}
        if hooks:
            taken.append((attributes, hooks))
            for key in hooks:
                attributes[key] = OrderedDict()
    return taken
