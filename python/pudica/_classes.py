"""Which layers are of one class: what is known of one holds for the others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Union

from torch import nn

from ._inner_hooks import inner_hooks, name_of

_LEAST_NUMBERED = 3  # layers; of two, any setting that differs could be a number
_MOST = 10**9
_DIGITS = re.compile(r"([0-9]+)")

Setting = Union[bool, int, float, str]


def _settings(module: nn.Module) -> Iterator[tuple[str, Setting]]:
    for key, value in sorted(vars(module).items()):
        # By type(): a weak proxy of what is gone raises where it is asked what it is.
        if not issubclass(type(value), (bool, int, float, str)) or key.startswith("_"):
            continue
        if key == "training" or "idx" in key or "index" in key:
            continue
        yield key, value


def _is_count(values: list[int], places: list[int]) -> bool:
    """One by one, or as the layers of all types are counted."""
    return any(
        all(value - values[0] == place - of[0] for value, place in zip(values, of))
        for of in (range(len(values)), places)
    )


def _numbers_its_layers(values: list[Setting], places: list[int]) -> bool:
    """5, 6, 7 does, and so does "block 5", "block 6", "block 7"."""
    texts = []
    for value in values:
        if type(value) is str:
            texts.append(value)
        elif type(value) is int and abs(value) < _MOST:
            texts.append(str(value))
        else:
            return False
    split = [_DIGITS.split(text) for text in texts]
    if any(len(parts) != len(split[0]) for parts in split):
        return False
    counts = 0
    for place, of_all in enumerate(zip(*split)):
        if len(set(of_all)) == 1:
            continue
        if place % 2 == 0 or any(len(part) >= len(str(_MOST)) for part in of_all):
            return False
        if not _is_count([int(part) for part in of_all], places):
            return False
        counts += 1
    return counts > 0


def _told(key: str, value: Setting) -> str:
    """How likely something is dropped is another thing than whether."""
    if isinstance(value, float):
        is_probability = key == "p" or "drop" in key or "prob" in key
        return "some" if is_probability and 0 < value < 1 else float.__repr__(value)
    if isinstance(value, str):
        return str.__repr__(value)
    return hex(value)  # a decimal may be refused for its length


class LayerClasses:
    """Of the layers of a model, in their order. A setting that counts them one by one tells none
    from another (`layer_id`, a name with a number in it), nor does how large a probability is,
    where it is neither 0 nor 1. Holds no layer. Any thread."""

    def __init__(self, layers: list[nn.Module]) -> None:
        kinds: dict[type[nn.Module], list[tuple[int, nn.Module]]] = {}
        for place, layer in enumerate(layers):
            kinds.setdefault(type(layer), []).append((place, layer))
        self._numbers = {
            (kind, *setting)
            for kind, alike in kinds.items()
            if len(alike) >= _LEAST_NUMBERED
            for setting in self._numbers_of(alike)
        }

    @staticmethod
    def _numbers_of(alike: list[tuple[int, nn.Module]]) -> list[tuple[str, str]]:
        seen: dict[tuple[str, str], list[Setting]] = {}
        for _, layer in alike:
            for name, inner in layer.named_modules():
                for key, value in _settings(inner):
                    seen.setdefault((name, key), []).append(value)
        places = [place for place, _ in alike]
        return [
            setting
            for setting, values in seen.items()
            if len(values) == len(alike) and _numbers_its_layers(values, places)
        ]

    def _word(self, layer: nn.Module) -> str:
        words = [type(layer).__qualname__]
        for name, inner in layer.named_modules():
            settings = [
                f"{key}={_told(key, value)}"
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
        """Equal for layers that are expected to run the same operators on parameters of the same
        shapes. Those that turn out not to are found as they run."""
        digest = hashlib.sha256(self._word(layer).encode()).hexdigest()[:8]
        return f"{type(layer).__name__}#{digest}"
