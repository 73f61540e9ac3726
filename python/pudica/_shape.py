"""Shape keys: the dimensions of a model's inputs that vary, found and named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_MOST_DIMENSIONS = 6  # of a native shape key, the batch included
_MOST_KINDS = 16

Axis = tuple[str, int]  # argument path, axis


def _leaves(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if value.dim() > 0:
            yield path, value
    elif depth < 4 and isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}", depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{path}.{key}" if path else str(key), depth + 1)


class Kind:
    """One way of calling the model: its dimensions, refined as batches show them apart."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.groups: list[list[Axis]] = []  # axes that were always of one size; the batch first
        self.names: list[str] = []

    def read(self, sizes: dict[Axis, int]) -> tuple[list[str], list[int]]:
        """Names and values; axes that turn out to differ make new names."""
        if not self.groups:
            self._group(sizes)
        elif self._differs(sizes):
            self.groups = [part for group in self.groups for part in self._split(group, sizes)]
            self._name()
        values = [max(1, sizes[group[0]]) for group in self.groups]
        return self.names, values[: len(self.names)]

    def take(self, groups: list[list[Axis]]) -> None:
        self.groups = groups
        self._name()

    def _group(self, sizes: dict[Axis, int]) -> None:
        firsts = [axis for axis in sizes if axis[1] == 0]
        same_batch = len({sizes[axis] for axis in firsts}) == 1
        by_size: dict[tuple[int, bool], list[Axis]] = {}
        for axis, size in sizes.items():
            if axis[1] == 0 or size > 1:
                by_size.setdefault((size, same_batch and axis[1] == 0), []).append(axis)
        self.groups = sorted(by_size.values(), key=lambda group: (group[0][1], group[0][0]))
        self._name()

    def _differs(self, sizes: dict[Axis, int]) -> bool:
        return any(sizes[axis] != sizes[group[0]] for group in self.groups for axis in group[1:])

    @staticmethod
    def _split(group: list[Axis], sizes: dict[Axis, int]) -> list[list[Axis]]:
        parts: dict[int, list[Axis]] = {}
        for axis in group:
            parts.setdefault(sizes[axis], []).append(axis)
        return list(parts.values())

    def _name(self) -> None:
        # The batch, then the others in the order of their arguments; what is too much is left out.
        self.groups = sorted(self.groups, key=lambda group: (group[0][1] != 0, group[0][0]))
        kept = self.groups[:_MOST_DIMENSIONS]
        names: list[str] = []
        lengths = [group for group in kept if group[0][1] != 0]
        for group in kept:
            path, axis = group[0]
            if axis == 0:
                name = "batch" if "batch" not in names else f"batch_{path}"
            elif len(lengths) == 1:
                name = "length"
            else:
                name = path.replace(".", "_") if axis == 1 else f"{path.replace('.', '_')}_{axis}"
            name = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
            while name in names:
                name += "_"
            names.append(name)
        self.names = names


class ShapeReader:
    """Reads the shape of each call of a model."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}
        self._preset: list[list[Axis]] | None = None
        self.last: Kind | None = None

    def read(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, list[str], list[int]] | None:
        """Kind, names and values of a call; None where it has no tensor with dimensions."""
        leaves: list[tuple[str, torch.Tensor]] = []
        for index, value in enumerate(args):
            leaves.extend(_leaves(value, "" if isinstance(value, dict) else f"argument{index}"))
        leaves.extend(_leaves(kwargs, ""))
        sizes = {
            (path, axis): tensor.shape[axis] for path, tensor in leaves
            for axis in range(tensor.dim())
        }
        if not sizes:
            return None
        signature = (
            id(module),
            module.training,
            torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
            tuple((path, t.dim(), t.dtype, t.requires_grad) for path, t in leaves),
        )
        kind = self._kinds.get(signature)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                return None
            kind = self._kinds[signature] = Kind(len(self._kinds))
            self._take_preset(kind, sizes)
        names, values = kind.read(sizes)
        self.last = kind
        return kind.number, names, values

    def _take_preset(self, kind: Kind, sizes: dict[Axis, int]) -> None:
        if self._preset is None or kind.number != 0:
            return
        axes = {axis for group in self._preset for axis in group}
        if axes <= set(sizes):
            kind.take([list(group) for group in self._preset])

    def dimensions(self) -> list[list[Axis]]:
        """Of the latest kind of call: what a saved state must be read with."""
        return self.last.groups if self.last is not None else []

    def preset(self, groups: list[list[Axis]]) -> None:
        """The dimensions that a loaded state was learned with."""
        self._preset = groups
