"""Which layers are of one class: what is known of one holds for the others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from torch import nn

from ._inner_hooks import inner_hooks, name_of

_LEAST_NUMBERED = 3  # layers; of two, any setting that differs could be a number
_LONGEST_NUMBER = 9  # digits
_DIGITS = re.compile(r"(\d+)")


def _settings(module: nn.Module) -> Iterator[tuple[str, bool | int | float | str]]:
    for key, value in sorted(vars(module).items()):
        if not isinstance(value, (bool, int, float, str)) or key.startswith("_"):
            continue
        if key == "training" or "idx" in key or "index" in key:
            continue
        yield key, value


def _is_count(values: list[int]) -> bool:
    return all(value == values[0] + i for i, value in enumerate(values))


def _numbers_its_layers(values: list[object]) -> bool:
    """5, 6, 7 does, and so does "block 5", "block 6", "block 7"."""
    if any(isinstance(value, (bool, float)) for value in values):
        return False
    split = [_DIGITS.split(str(value)) for value in values]
    if any(len(part) > _LONGEST_NUMBER for parts in split for part in parts[1::2]):
        return False
    if any(len(parts) != len(split[0]) for parts in split):
        return False
    counts = 0
    for place, of_all in enumerate(zip(*split)):
        if len(set(of_all)) == 1:
            continue
        if place % 2 == 0 or not _is_count([int(part) for part in of_all]):
            return False
        counts += 1
    return counts > 0


def _told(value: object) -> str:
    """How much is scaled, dropped or added is another thing than whether."""
    if isinstance(value, float) and value not in (0.0, 1.0):
        return "some"
    return repr(value)


class LayerClasses:
    """Of the layers of a model, in their order. A setting that only numbers them tells none from
    another (`layer_id`, a name with a number in it), nor does how large a factor or a probability
    is, where it is neither 0 nor 1. Holds no layer. Any thread."""

    def __init__(self, layers: list[nn.Module]) -> None:
        kinds: dict[type[nn.Module], list[nn.Module]] = {}
        for layer in layers:
            kinds.setdefault(type(layer), []).append(layer)
        self._numbers = {
            (kind, *place)
            for kind, alike in kinds.items()
            if len(alike) >= _LEAST_NUMBERED
            for place in self._numbers_of(alike)
        }

    @staticmethod
    def _numbers_of(layers: list[nn.Module]) -> list[tuple[str, str]]:
        seen: dict[tuple[str, str], list[object]] = {}
        for layer in layers:
            for name, inner in layer.named_modules():
                for key, value in _settings(inner):
                    seen.setdefault((name, key), []).append(value)
        return [
            place
            for place, values in seen.items()
            if len(values) == len(layers) and _numbers_its_layers(values)
        ]

    def _word(self, layer: nn.Module) -> str:
        words = [type(layer).__qualname__]
        for name, inner in layer.named_modules():
            settings = [
                f"{key}={_told(value)}"
                for key, value in _settings(inner)
                if (type(layer), name, key) not in self._numbers
            ]
            if inner.training is not layer.training:
                settings.append(f"training={inner.training}")
            # Those around it are no part of it.
            hooks = [] if inner is layer else [name_of(hook) for hook in inner_hooks(inner)]
            words.append(f"{name}:{type(inner).__qualname__}({','.join(settings)}){hooks or ''}")
        for parameter in layer.parameters():
            grad = "g" if parameter.requires_grad else ""
            words.append(f"{tuple(parameter.shape)}{str(parameter.dtype)[6:]}{grad}")
        return "|".join(words)

    def id_of(self, layer: nn.Module) -> str:
        """Equal for layers that run the same operators on parameters of the same shapes."""
        digest = hashlib.sha256(self._word(layer).encode()).hexdigest()[:8]
        return f"{type(layer).__name__}#{digest}"
