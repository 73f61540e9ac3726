"""Which modules of a model are its layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Union

from torch import nn

from ._errors import AttachError

Selector = Union[str, type, nn.Module, Callable[[str, nn.Module], bool]]
_LEAST_SHARE = 0.05  # of the model's parameters


def _parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _is_checkpointing_layer(module: nn.Module) -> bool:
    return any(base.__name__ == "GradientCheckpointingLayer" for base in type(module).__mro__)


def _innermost(modules: list[nn.Module]) -> list[nn.Module]:
    chosen = {id(m) for m in modules}
    return [
        m for m in modules if not any(id(c) in chosen for c in m.modules() if c is not m)
    ]


def _unique(modules: Iterable[nn.Module]) -> list[nn.Module]:
    return list({id(m): m for m in modules}.values())


_EXPECTED = (
    "class names, names of modules, classes, modules of the model or a predicate "
    "(name, module) -> bool"
)


def _named(selector: Selector) -> str:
    return f"a {type(selector).__name__}" if isinstance(selector, nn.Module) else repr(selector)


def _check(selector: object) -> None:
    if isinstance(selector, (str, type, nn.Module)):
        return
    if not callable(selector):
        raise AttachError(f"layers= holds {selector!r}; expected {_EXPECTED}")
    try:
        inspect.signature(selector).bind("name", nn.Identity())
    except TypeError as error:
        raise AttachError(
            f"layers= holds {selector!r}, which does not take (name, module): {error}; expected a "
            "predicate (name, module) -> bool"
        ) from None
    except ValueError:
        return  # nothing is known of its parameters


def _matches(selector: Selector, name: str, module: nn.Module) -> bool:
    if isinstance(selector, str):
        return type(module).__name__ == selector or (name == selector and name != "")
    if isinstance(selector, type):
        return isinstance(module, selector)
    if isinstance(selector, nn.Module):
        return module is selector
    return bool(selector(name, module))


def _selected(model: nn.Module, layers: Selector | Iterable[Selector]) -> list[nn.Module]:
    # A ModuleList stands for what is in it.
    if isinstance(layers, (nn.ModuleList, nn.Sequential)) and layers is not model:
        layers = list(layers)
    single = isinstance(layers, (str, type, nn.Module)) or callable(layers)
    if not single and not isinstance(layers, Iterable):
        raise AttachError(f"layers= is {layers!r}; expected {_EXPECTED}, one or several")
    selectors: list[Any] = [layers] if single else list(layers)  # type: ignore[arg-type]
    if not selectors:
        raise AttachError(f"layers= is empty; expected {_EXPECTED}, at least one")
    for selector in selectors:
        _check(selector)
    found: list[nn.Module] = []
    for selector in selectors:
        new = [m for name, m in model.named_modules() if _matches(selector, name, m)]
        if not new:
            known = sorted({type(m).__name__ for m in model.modules()})
            raise AttachError(
                f"layers= names {_named(selector)}, which matches no module of this "
                f"{type(model).__name__}; it has {', '.join(known[:20])}"
            )
        for module in new:  # a ModuleList is never called: it stands for what is in it
            found.extend(module if isinstance(module, nn.ModuleList) else [module])
    found = _unique(found)
    if any(m is model for m in found):
        raise AttachError("layers= names the whole model; expected layers inside it")
    if len(_innermost(found)) != len(found):
        raise AttachError(
            "layers= names modules that lie inside each other; expected layers side by side"
        )
    return found


def _lists_of_layers(model: nn.Module, least_items: int) -> list[nn.Module]:
    total = max(1, _parameters(model))
    lists = []
    for name, module in model.named_modules():
        if not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        items = list(module)
        if len(items) < least_items or len({type(item) for item in items}) != 1:
            continue
        # Experts of a mixture run on parts of a batch that differ with the data.
        if name.rpartition(".")[2] == "experts":
            continue
        if not any(True for _ in items[0].children()):
            continue
        if _parameters(module) >= _LEAST_SHARE * total:
            lists.append(module)
    return [item for module in _innermost(list(lists)) for item in module.children()]


def _repeated_siblings(model: nn.Module) -> list[nn.Module]:
    total = max(1, _parameters(model))
    found: list[nn.Module] = []
    for parent in model.modules():
        by_class: dict[type, list[nn.Module]] = {}
        for child in parent.children():
            if any(True for _ in child.children()):
                by_class.setdefault(type(child), []).append(child)
        for siblings in by_class.values():
            if len(siblings) < 2 or isinstance(siblings[0], (nn.ModuleList, nn.Sequential)):
                continue
            if sum(map(_parameters, siblings)) >= _LEAST_SHARE * total:
                found.extend(siblings)
    return found


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    inner = {id(c) for m in modules for c in m.modules() if c is not m}
    return [m for m in modules if id(m) not in inner]


def find_layers(
    model: nn.Module, layers: Selector | Iterable[Selector] | None = None
) -> list[nn.Module]:
    """The layers that plans are made of, in the order of `model.named_modules()`.

    With `layers`: class names, names of modules, classes, modules or predicates, one or several; a
    ModuleList stands for what is in it. Without: Hugging
    Face's GradientCheckpointingLayers (the innermost), else the innermost lists of modules of one
    class that hold at least 5 % of the parameters, else repeated siblings of one class, else lists
    of one module (a layer that is called again and again). Raises AttachError where that gives
    nothing.
    """
    if layers is not None:
        return _selected(model, layers)
    ways: tuple[Callable[[], list[nn.Module]], ...] = (
        lambda: _innermost([m for m in model.modules() if _is_checkpointing_layer(m)]),
        lambda: _lists_of_layers(model, 2),
        lambda: _outermost(_repeated_siblings(model)),
        lambda: _lists_of_layers(model, 1),
    )
    for way in ways:
        found = _unique(m for m in way() if m is not model)
        if found:
            return found
    raise AttachError(
        f"no layers found in this {type(model).__name__}; name them: attach(model, budget, "
        "layers=...) takes class names, modules or a predicate (name, module) -> bool"
    )
