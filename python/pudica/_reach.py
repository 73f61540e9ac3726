"""What a layer's forward can reach beside tensors: what objects and containers on its modules hold,
what is passed as it is, what its code names of its file. A run of the layer that is not the user's
changes any of that once more; here it is put back.

Looked through in width, a bounded number of things: what lies farther off is not seen.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ._atoms import VALUES
from ._attributes import OF_EVERY_MODULE
from ._found import ABSENT, Found, Saved, same_things
from ._generators import is_generator, set_state, state_of
from ._tensor_state import TensorState, put_tensor, read_tensor

_MOST = 2048  # things looked at
_DEEPEST = 5
_NEAR = 2  # an iterator farther off is taken to be none of the layer's
_LARGEST_COPY = 1 << 16  # bytes, of a tensor or an array
_PASSED = "an argument"
_PARAMETER = "a parameter"
_NOT_THE_USERS = frozenset(sys.stdlib_module_names) - {"__main__"} | {"torch", "numpy", "pudica"}
_SKIPPED = VALUES | {type, range, slice}
_ITERATORS = frozenset(("builtins", "itertools"))
_STORES = frozenset(
    dis.opmap[name]
    for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR")
    if name in dis.opmap
)


def _is_users(thing: Any) -> bool:
    """A class, a function or a module of neither Python's own, torch nor numpy."""
    module = getattr(thing, "__module__", None) or getattr(thing, "__name__", None)
    return isinstance(module, str) and module.partition(".")[0] not in _NOT_THE_USERS


def _same_values(now: Any, then: Any) -> bool:
    return bool(now == then)


def _read_dict(value: dict[Any, Any]) -> list[Any]:
    return [*dict.keys(value), *dict.values(value)]


def _refill_dict(value: dict[Any, Any], then: list[Any]) -> None:
    """Key by key: others may look into it, or put something else there meanwhile."""
    # Past a subclass's own methods, but not past what keeps the order.
    kind: Any = OrderedDict if issubclass(type(value), OrderedDict) else dict
    half = len(then) // 2
    keys = then[:half]
    known = set(map(id, keys))
    for key in [*dict.keys(value)]:
        if id(key) not in known:
            kind.pop(value, key, None)
    if not same_things([*dict.keys(value)], keys):
        kind.clear(value)
    for key, item in zip(keys, then[half:], strict=True):
        if dict.get(value, key, ABSENT) is not item:
            kind.__setitem__(value, key, item)


def _refill_deque(value: deque[Any], then: list[Any]) -> None:
    value.clear()
    value.extend(then)


def _refill_set(value: set[Any], then: list[Any]) -> None:
    set.clear(value)
    set.update(value, then)


def _read_names(names: Mapping[str, Any], wanted: Iterable[str]) -> list[Any]:
    return [names.get(name, ABSENT) for name in wanted]


def _put_names(names: dict[str, Any], wanted: Iterable[str], then: list[Any]) -> None:
    for name, value in zip(wanted, then, strict=True):
        if value is ABSENT:
            names.pop(name, None)
        elif names.get(name, ABSENT) is not value:
            names[name] = value


def _slots_of(kind: type) -> list[Any]:
    """What reads and sets them."""
    return [
        member
        for base in kind.__mro__
        if _is_users(base) and "__slots__" in vars(base)
        for member in vars(base).values()
        if type(member) is types.MemberDescriptorType
    ]


def _read_slots(value: Any, slots: list[Any]) -> list[Any]:
    found = []
    for slot in slots:
        try:
            found.append(slot.__get__(value))
        except AttributeError:
            found.append(ABSENT)
    return found


def _put_slots(value: Any, slots: list[Any], then: list[Any]) -> None:
    for slot, wanted, now in zip(slots, then, _read_slots(value, slots), strict=True):
        if wanted is not ABSENT:
            slot.__set__(value, wanted)
        elif now is not ABSENT:
            slot.__delete__(value)


def _read_cell(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # empty
        return []


def _put_cell(cell: Any, then: list[Any]) -> None:
    if then:
        cell.cell_contents = then[0]


@functools.lru_cache(maxsize=1 << 12)
def _words_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """What it names, and what of that it gives another value: globals and attributes."""
    named, stored = set(code.co_names), set()
    if not _STORES.isdisjoint(code.co_code[::2]):
        stored = {one.argval for one in dis.get_instructions(code) if one.opcode in _STORES}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            inner_named, inner_stored = _words_of(const)
            named |= inner_named
            stored |= inner_stored
    return frozenset(named), frozenset(stored)


class Reach:
    """What modules reach now and what is `passed` as it is. Keeps it alive. `copies`: of small
    tensors too, which a device is waited for. One thread."""

    def __init__(
        self,
        modules: Iterable[nn.Module],
        passed: Iterable[Any],
        parameters: Iterable[nn.Parameter] = (),
        *,
        copies: bool = True,
    ) -> None:
        self._copies = copies
        self._saved: list[Saved] = []
        self.wrote_tensors = False  # after restore()
        self._seen: dict[int, Any] = {}
        self._open: deque[tuple[str, Any, int]] = deque()
        # An iterator among it that code may go on with, which could not be put back: by where it
        # is; empty: none.
        self.iterator = ""
        self._iterators: list[str] = []
        self._words: set[str] = set()  # that code uses
        self.large_tensors: list[torch.Tensor] = []  # likewise: whose values are not there
        modules = list(modules)
        self._seen.update((id(module), module) for module in modules)
        for value in passed:
            self._add(_PASSED, value, 0)
        for module in modules:
            for name, value in vars(module).items():
                if name not in OF_EVERY_MODULE:
                    self._add(name, value, 0)
        for kind in dict.fromkeys(itertools.chain(*(type(module).__mro__ for module in modules))):
            for name, value in vars(kind).items() if _is_users(kind) else ():
                self._add(name, value, 0)
        for parameter in parameters:  # last: of experts there may be as many as are looked at
            self._add(_PARAMETER, parameter, 0)
        while self._open:
            name, value, depth = self._open.popleft()
            try:
                self._look(name, value, depth)
            except Exception:  # noqa: BLE001  (objects of the user's)
                continue
        in_use = [name for name in self._iterators if name == _PASSED or name in self._words]
        self.iterator = in_use[0] if in_use else ""

    def changed(self) -> tuple[set[str], Found]:
        """Names of what has, and of an iterator that code may have gone on with; and what can be
        found again of it."""
        differing = [*self._differing()]
        names = {one.name for one in differing} | ({self.iterator} - {""})
        return names, Found(differing)

    def restore(self) -> tuple[list[str], list[str]]:
        """Puts back what has changed; gives names of that, and of what could not be put back."""
        changed, lost = [], []
        for one in self._differing():
            changed.append(one.name)
            self.wrote_tensors = self.wrote_tensors or type(one.then) is TensorState
            try:
                if one.put is None:
                    lost.append(one.name)
                else:
                    one.put(one.then)
            except Exception:  # noqa: BLE001
                lost.append(one.name)
        return changed, lost

    def _differing(self) -> Iterator[Saved]:
        for one in self._saved:
            try:
                if one.is_same(one.read(), one.then):
                    continue
            except Exception:  # noqa: BLE001, S110  (objects of the user's)
                pass
            yield one

    def _add(self, name: str, value: Any, depth: int) -> None:
        if type(value) in _SKIPPED or id(value) in self._seen or depth > _DEEPEST:
            return
        if len(self._seen) >= _MOST:  # a list of a million tensors has as many
            return
        self._seen[id(value)] = value
        self._open.append((name, value, depth))

    def _add_all(self, name: str, values: Iterable[Any], depth: int) -> None:
        for value in values:
            self._add(name, value, depth + 1)

    def _save(
        self,
        name: str,
        read: Callable[[], Any],
        put: Callable[[Any], Any] | None,
        is_same: Callable[[Any, Any], bool] = same_things,
    ) -> Any:
        then = read()
        self._saved.append(Saved(name, read, then, is_same, put))
        return then

    def _look(self, name: str, value: Any, depth: int) -> None:
        # By type(): a weak proxy says it is what it stands for, and that may be gone.
        kind = type(value)
        if issubclass(kind, (type, types.ModuleType)):
            return
        if issubclass(kind, torch.Tensor):
            self._look_at_tensor(name, value)
        elif is_generator(kind):
            self._save(name, lambda: state_of(value), lambda then: set_state(value, then),
                       _same_values)
        elif kind.__module__.partition(".")[0] == "numpy":
            self._look_at_array(name, value)
        elif issubclass(kind, (dict, list, deque, set, tuple, frozenset)):
            self._look_at_container(name, value, depth)
        elif issubclass(kind, (types.FunctionType, staticmethod, classmethod)):
            self._look_at_function(getattr(value, "__func__", value), depth)
        elif kind is types.MethodType:
            self._add_all(name, (value.__self__, value.__func__), depth)
        elif kind is bytearray:
            self._save(name, lambda: bytes(value),
                       lambda then: value.__setitem__(slice(None), then), _same_values)
        elif kind is property:
            self._add_all(name, (value.fget,), depth)
        elif kind.__module__ in _ITERATORS and hasattr(kind, "__next__"):
            if depth <= _NEAR and getattr(value, "gi_frame", value) is not None:
                self._iterators.append(name)
        elif _is_users(kind) or issubclass(kind, nn.Module):
            self._look_at_object(name, value, depth)

    def _look_at_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.is_inference() or tensor.layout != torch.strided:
            return
        copies = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.nbytes <= _LARGEST_COPY
        copies = copies and self._copies
        if not copies:
            self.large_tensors.append(tensor)
        self._save(
            name,
            lambda: read_tensor(tensor, copies=copies),
            (lambda then: put_tensor(tensor, then)) if copies else None,
            _same_values,
        )

    def _look_at_array(self, name: str, value: Any) -> None:
        if not hasattr(value, "tobytes") or not value.flags.writeable:
            return
        if value.nbytes <= _LARGEST_COPY and not value.dtype.hasobject:
            array, kind = sys.modules["numpy"].frombuffer, value.dtype
            self._save(
                name,
                value.tobytes,
                lambda then: value.__setitem__(..., array(then, kind).reshape(value.shape)),
                _same_values,
            )

    def _look_at_container(self, name: str, value: Any, depth: int) -> None:
        kind = type(value)
        if issubclass(kind, dict):
            self._save(name, lambda: _read_dict(value), lambda then: _refill_dict(value, then))
            self._add_all(name, list(dict.values(value)), depth)
        elif issubclass(kind, list):
            self._save(name, lambda: list(list.__iter__(value)),
                       lambda then: list.__setitem__(value, slice(None), then))
        elif issubclass(kind, deque):
            self._save(name, lambda: list(value), lambda then: _refill_deque(value, then))
        elif issubclass(kind, set):
            self._save(name, lambda: list(value), lambda then: _refill_set(value, then))
        if not issubclass(kind, dict):
            self._add_all(name, list(value), depth)
        if kind not in (dict, list, deque, set, tuple, frozenset):
            self._look_at_object(name, value, depth)

    def _look_at_object(self, name: str, value: Any, depth: int) -> None:
        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            self._save(name, lambda: _read_dict(attributes),
                       lambda then: _refill_dict(attributes, then))
            self._add_all(name, list(attributes.values()), depth)
        if slots := _slots_of(kind) if _is_users(kind) else []:
            self._add_all(
                name,
                self._save(name, lambda: _read_slots(value, slots),
                           lambda then: _put_slots(value, slots, then)),
                depth,
            )

    def _look_at_function(self, function: Any, depth: int) -> None:
        if not isinstance(function, types.FunctionType) or not _is_users(function):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            read, put = functools.partial(_read_cell, cell), functools.partial(_put_cell, cell)
            found = self._save(name, read, put)
            self._add_all(name, found, depth)
        self._add_all(function.__name__, function.__defaults__ or (), depth)
        named, stored = _words_of(function.__code__)
        if function.__name__ != "__init__":
            self._words |= named
        self._look_at_names(function.__globals__, named, stored, depth)

    def _look_at_names(
        self, names: dict[str, Any], named: frozenset[str], stored: frozenset[str], depth: int
    ) -> None:
        """Of a file, what code that uses these words may mean."""
        written = [name for name in stored if name in names]
        if written:
            self._save(", ".join(written), lambda: _read_names(names, written),
                       lambda then: _put_names(names, written, then))
        for name in named:
            value = names.get(name)
            if not issubclass(type(value), types.ModuleType):
                self._add(name, value, depth + 1)
            elif _is_users(value) and id(value) not in self._seen and depth < _DEEPEST:
                self._seen[id(value)] = value
                self._look_at_names(vars(value), named, stored, depth + 1)
