"""Shape keys: the dimensions of a model's inputs that vary, found and named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from ._leaves import Leaf, leaves_of

_MOST_DIMENSIONS = 6  # of a native shape key, the batch included
MOST_KINDS = 15  # the native side has one more, for all others
_MOST_WORDS = 3  # that one argument may be: of more it is text, and tells no calls apart
_LONGEST_WORD = 32
_MOST_SWITCHED = 4  # kinds of calls that only switches tell apart; others of them are one

# Argument path, axis. Of a list's items as a whole the axis is one of those below zero.
Axis = tuple[str, int]
_ITEMS, _TOTAL, _LARGEST = -1, -2, -3  # the largest of the items along axis k: _LARGEST - k
Sizes = dict[Axis, int]
Switches = tuple[Any, ...]  # names and values by turns


def _is_batch(axis: Axis) -> bool:
    return axis[1] in (0, _ITEMS)


def _item_path(leaf: Leaf, index: int) -> str:
    return leaf.path.replace("*", str(index), 1).replace(".*", "")


class Kind:
    """One way of calling the model: its dimensions, refined as batches show them apart.

    The items of a list are told apart as long as there are always as many and their axes are few
    enough for a key. Else they are summed up: how many, the largest along each axis in which they
    differ, and how many elements along these axes in all.
    """

    def __init__(self, number: int, switches: Switches = ()) -> None:
        self.number = number
        self.switches = switches
        self.groups: list[list[Axis]] = []  # axes that were always of one size; the batch first
        self.names: list[str] = []
        self._kept: list[Axis] = []  # the first axis of each group that is a dimension of the key
        self._fixed: Sizes = {}  # axes that are no dimension: always of this size
        self._counts: dict[str, int] = {}  # items of the lists
        self._summed: set[str] = set()  # paths of lists
        self._first: Sizes = {}
        self._varying: dict[Axis, None] = {}  # in the order in which they began to
        self._moved = False  # groups changed since they were put into order

    def read(self, leaves: list[Leaf]) -> tuple[list[str], list[int]]:
        """Names and values; axes that turn out to differ make new names."""
        for leaf in leaves:
            if leaf.many and self._counts.setdefault(leaf.path, len(leaf.tensors)) != len(
                leaf.tensors
            ):
                self._sum_up([leaf])
        sizes = self._place(leaves)
        if len(self.groups) > _MOST_DIMENSIONS and self._sum_up(leaves):
            sizes = self._place(leaves)
        for axis, size in sizes.items():
            if size != self._first.setdefault(axis, size):
                self._varying.setdefault(axis)
        kept = [group[0] for group in self._dimensions()]
        if kept != self._kept:
            self._kept, self.names = kept, self._names_of(kept)
        values = [max(1, sizes[axis]) for axis in kept]
        if len(self.names) > len(values):
            values.append(max(1, _elements_in(leaves)))
        return self.names, values

    def take(self, groups: list[list[Axis]], leaves: list[Leaf]) -> bool:
        """The groups of a saved state, if this kind of call has their axes."""
        self.groups = [list(group) for group in groups]
        self._moved = True
        axes = {axis for group in groups for axis in group}
        self._summed = {path for path, axis in axes if axis < 0}
        if axes <= set(self._measure(leaves)):
            return True
        self.groups, self._summed, self._fixed = [], set(), {}
        return False

    # -- axes and their groups ----------------------------------------------------------------

    def _sum_up(self, leaves: list[Leaf]) -> bool:
        """Does not tell the items of these lists apart any more; whether any were."""
        fresh = [leaf for leaf in leaves if leaf.many and leaf.path not in self._summed]
        items = {_item_path(leaf, k) for leaf in fresh for k in range(self._counts[leaf.path])}
        self._moved = True
        groups = [[axis for axis in group if axis[0] not in items] for group in self.groups]
        self.groups = [group for group in groups if group]
        self._fixed = {a: size for a, size in self._fixed.items() if a[0] not in items}
        self._summed.update(leaf.path for leaf in fresh)
        return bool(fresh)

    def _measure(self, leaves: list[Leaf]) -> Sizes:
        known = {axis for group in self.groups for axis in group}
        sizes: Sizes = {}
        for leaf in leaves:
            if leaf.path in self._summed:
                self._measure_items(leaf, known, sizes)
                continue
            for index, tensor in enumerate(leaf.tensors):
                path = _item_path(leaf, index) if leaf.many else leaf.path
                for k, size in enumerate(tensor.shape):
                    sizes[path, k] = size
        return sizes

    def _measure_items(self, leaf: Leaf, known: set[Axis], sizes: Sizes) -> None:
        shapes = [tensor.shape for tensor in leaf.tensors]
        sizes[leaf.path, _ITEMS] = len(shapes)
        differing = []
        for k in range(leaf.dim):
            axis = leaf.path, _LARGEST - k
            largest = max(shape[k] for shape in shapes)
            alike = all(shape[k] == largest for shape in shapes)
            if alike and axis not in known and self._fixed.setdefault(axis, largest) == largest:
                continue
            sizes[axis] = largest
            differing.append(k)
        if differing:
            sizes[leaf.path, _TOTAL] = sum(math.prod(s[k] for k in differing) for s in shapes)

    def _place(self, leaves: list[Leaf]) -> Sizes:
        """Puts every axis into a group; gives the sizes."""
        sizes = self._measure(leaves)
        if any(sizes[axis] != sizes[g[0]] for g in self.groups for axis in g[1:]):
            self._moved = True
            self.groups = [part for group in self.groups for part in _split(group, sizes)]
        known = {axis for group in self.groups for axis in group}
        fresh: list[Axis] = []
        grown: list[Axis] = []  # were always of one size
        for axis, size in sizes.items():
            if axis in known:
                continue
            if axis[1] > 0 and size <= 1:
                self._fixed[axis] = size
            elif self._fixed.pop(axis, None) is not None:
                grown.append(axis)
            else:
                fresh.append(axis)
        self._moved = self._moved or bool(fresh or grown)
        self._group(fresh, sizes)
        if grown:
            self.groups.extend(_split(grown, sizes))
            self._varying.update(dict.fromkeys(grown))
        return sizes

    def _group(self, axes: list[Axis], sizes: Sizes) -> None:
        if not axes:
            return
        same_batch = len({sizes[axis] for axis in sizes if _is_batch(axis)}) == 1
        by_size = {(sizes[g[0]], same_batch and _is_batch(g[0])): g for g in self.groups}
        for axis in axes:
            key = sizes[axis], same_batch and _is_batch(axis)
            if key in by_size:
                by_size[key].append(axis)
            else:
                by_size[key] = [axis]
                self.groups.append(by_size[key])

    # -- dimensions ---------------------------------------------------------------------------

    def _dimensions(self) -> list[list[Axis]]:
        """The groups that make the key. Where they are too many: those that vary; where these are
        too many as well, all but those that began to first are told by the number of elements."""
        if self._moved:
            self.groups = sorted(self.groups, key=_place_of)
            self._moved = False
        if len(self.groups) <= _MOST_DIMENSIONS:
            return self.groups
        order = {axis: place for place, axis in enumerate(self._varying)}
        began = {id(g): min(order.get(axis, len(order)) for axis in g) for g in self.groups}
        chosen = sorted(self.groups, key=lambda group: began[id(group)])
        vary = sum(began[id(group)] < len(order) for group in chosen)
        most = _MOST_DIMENSIONS if vary <= _MOST_DIMENSIONS else _MOST_DIMENSIONS - 1
        return sorted(chosen[:most], key=_place_of)

    def _names_of(self, kept: list[Axis]) -> list[str]:
        names: list[str] = []
        lengths = [axis for axis in kept if not _is_batch(axis)]
        for path, axis in kept:
            word = path.replace(".*", "").replace(".", "_")
            if axis == 0:
                name = "batch" if "batch" not in names else f"batch_{word}"
            elif axis == _ITEMS:
                name = f"{word}_items"
            elif axis == _TOTAL:
                name = f"{word}_total"
            elif axis <= _LARGEST:
                alone = sum(p == path and a <= _LARGEST for p, a in kept) == 1
                name = f"{word}_largest" if alone else f"{word}_largest_{_LARGEST - axis}"
            elif len(lengths) == 1:
                name = "length"
            else:
                name = word if axis == 1 else f"{word}_{axis}"
            name = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
            while name in names:
                name += "_"
            names.append(name)
        if len(self.groups) > _MOST_DIMENSIONS > len(names):
            names.append("elements")
        return names


def _place_of(group: list[Axis]) -> tuple[bool, str, int]:
    path, axis = group[0]
    return not _is_batch(group[0]), path, abs(axis)


def _split(group: list[Axis], sizes: Sizes) -> list[list[Axis]]:
    parts: dict[int, list[Axis]] = {}
    for axis in group:
        parts.setdefault(sizes[axis], []).append(axis)
    return list(parts.values())


def _elements_in(leaves: Iterable[Leaf]) -> int:
    return sum(tensor.numel() for leaf in leaves for tensor in leaf.tensors)


class _Words:
    """Which of a call's arguments are switches: true, false, or one of a few words."""

    def __init__(self) -> None:
        self._seen: dict[Any, set[Any]] = {}  # by module and argument

    def of(self, module: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Switches:
        words: list[Any] = []
        for name, value in (*enumerate(args), *kwargs.items()):
            kind = type(value)
            if kind is not bool and (kind is not str or len(value) > _LONGEST_WORD):
                continue
            seen = self._seen.setdefault((module, name), set())
            if len(seen) <= _MOST_WORDS:
                seen.add(value)
            if len(seen) <= _MOST_WORDS:
                words += name, value
        return tuple(words)


class ShapeReader:
    """Reads the shape of each call of a model."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}
        self._words = _Words()
        self._preset: tuple[list[list[Axis]], Switches] | None = None  # until a call takes it
        self.last: Kind | None = None

    def read(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int | None, list[str], list[int]]:
        """Kind, names and values of a call. No kind: one more than are told apart. No value: it
        has no tensor with dimensions."""
        leaves = leaves_of(args, kwargs)
        if not leaves:
            return None, [], []
        form = (
            id(module),
            module.training,
            torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
            tuple(leaf.form() for leaf in leaves),
        )
        signature = self._signature(form, self._words.of(id(module), args, kwargs), leaves)
        if signature is None:
            return None, ["elements"], [max(1, _elements_in(leaves))]
        kind = self._kinds[signature]
        try:
            names, values = kind.read(leaves)
        except BaseException:  # Ctrl-C strikes anywhere: begun anew
            self._kinds[signature] = Kind(kind.number, kind.switches)
            raise
        self.last = kind
        return kind.number, names, values

    def _signature(self, form: Any, switches: Switches, leaves: list[Leaf]) -> Any | None:
        """Of a kind, which is made where there is none yet. None: there is no room for one more.
        Calls that differ in switches alone are never without a kind for that."""
        signature = form, switches
        if signature in self._kinds:
            return signature
        alike = [known for known in self._kinds if known[0] == form]
        if sum(bool(known[1]) for known in alike) >= _MOST_SWITCHED:
            signature = form, ()
            if signature in self._kinds:
                return signature
        takes = self._preset is not None and switches == self._preset[1]
        # Nought is what a loaded state is of.
        free = range(0 if takes or self._preset is None else 1, MOST_KINDS)
        used = {kind.number for kind in self._kinds.values()}
        number = next((n for n in free if n not in used), None)
        if number is None:
            return alike[0] if alike else None
        kind = self._kinds[signature] = Kind(number, switches)
        if takes and self._preset is not None and number == 0:
            kind.take(self._preset[0], leaves)
            self._preset = None
        return signature

    def dimensions(self) -> list[list[Axis]]:
        """Of the latest kind of call: what a saved state must be read with."""
        return self.last.groups if self.last is not None else []

    def switches(self) -> list[Any]:
        """Of that kind likewise."""
        return list(self.last.switches) if self.last is not None else []

    def preset(self, groups: list[list[Axis]], switches: Iterable[Any] = ()) -> None:
        """The dimensions that a loaded state was learned with, and the switches of its calls."""
        self._preset = (groups, tuple(switches)) if not self._kinds else None
