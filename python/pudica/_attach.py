"""attach(): from a model and a budget to a Handle."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from . import _native
from ._budget import Budget, from_setting, resolve
from ._classes import LayerClasses
from ._cuda import expand_segments
from ._errors import AttachError, BudgetError, ConfigError, StateError, from_native
from ._forced import forced_clock, forced_policy
from ._handle import Handle
from ._installed import attached_modules
from ._layers import Selector, find_layers
from ._newcomers import Newcomers
from ._refusals import check_layers, check_model

_log = logging.getLogger("pudica")


def _fingerprint(model: nn.Module, layers: list[nn.Module], device: torch.device) -> str:
    words = [type(model).__qualname__, torch.__version__, device.type]
    words += [f"{name}:{tuple(p.shape)}:{p.dtype}" for name, p in model.named_parameters()]
    classes = LayerClasses(layers)
    words += [classes.id_of(layer) for layer in layers]
    return "python " + hashlib.sha256("\n".join(words).encode()).hexdigest()


def _device_of(model: nn.Module) -> torch.device:
    devices = {p.device for p in model.parameters()}
    if len(devices) > 1:
        raise AttachError(
            f"the model's parameters lie on {', '.join(sorted(map(str, devices)))}; expected one "
            "device"
        )
    device = next(iter(devices), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise AttachError(f"the model is on device {device}; expected cpu or cuda")
    return device


def policies() -> list[str]:
    """The names of the policies that attach() can plan by."""
    return [str(name) for name in _native.ops.attachable_policies()]


def _config_path(config: str | os.PathLike[str] | None) -> str:
    if config is not None:
        if not isinstance(config, (str, os.PathLike)):
            raise ConfigError(f"config is {config!r}; expected the path of a configuration file")
        return os.fspath(config)
    return os.environ.get("PUDICA_CONFIG", "")


def _usual_name(model: nn.Module) -> str:
    """The script and its model: "train.py:BertModel"; without a script "python:BertModel"."""
    script = pathlib.Path(sys.argv[0]).name if sys.argv and sys.argv[0] else ""
    return f"{script if script not in ('', '-c', '-m') else 'python'}:{type(model).__name__}"


def _check_words(
    enforce: object, daemon: object, name: object, allocator: object, policy: object
) -> None:
    if enforce not in ("soft", "hard"):
        raise AttachError(f'enforce is {enforce!r}; expected "soft" or "hard"')
    if daemon is not None and not isinstance(daemon, bool):
        raise AttachError(f"daemon is {daemon!r}; expected True, False or None")
    if name is not None and not isinstance(name, str):
        raise AttachError(f"name is {name!r}; expected a str or None")
    if allocator not in (None, "expandable"):
        raise AttachError(f'allocator is {allocator!r}; expected None or "expandable"')
    if policy is not None and not isinstance(policy, str):
        raise AttachError(f'policy is {policy!r}; expected None or one of {", ".join(policies())}')


def _check_free(model: nn.Module) -> None:
    taken = {h for m in model.modules() if (ref := attached_modules.get(m)) and (h := ref())}
    for handle in taken:
        if not handle._automatic:
            raise AttachError(
                f"this {type(model).__name__} is attached already; detach() the first handle, or "
                "change its budget with set_budget()"
            )
        handle.detach()


def _newcomers(model: nn.Module, chosen: list[nn.Module], layers: object) -> Newcomers | None:
    """Layers that were named one by one, or that a function picks, are those and no others."""
    return Newcomers(model, chosen) if layers is None or isinstance(layers, (str, type)) else None


def attach(
    model: nn.Module,
    budget: Budget | None = None,
    layers: Selector | Iterable[Selector] | None = None,
    config: str | os.PathLike[str] | None = None,
    *,
    enforce: Literal["soft", "hard"] = "soft",
    daemon: bool | None = None,
    name: str | None = None,
    allocator: Literal["expandable"] | None = None,
    policy: str | None = None,
) -> Handle:
    """Keeps the training of `model` within `budget` bytes of measured peak memory.

    The loop stays as it is: each forward of the model with gradients on is planned by the shape of
    its arguments, and the step ends with the optimizer's step. Results never change by one bit.

    budget: an int is bytes; a float in (0, 1] a fraction of the device (on CPU of the smaller of
        the cgroup's limit and the memory available now); a str bytes with a unit ("20GiB"),
        or "auto" (0.9; of a CUDA device 0.9 of what this process has or could get);
        between(0.4) so much of the way from recomputing every layer of the longest batch seen to
        keeping them. None: PUDICA_BUDGET, the configuration's, "auto".
    layers: what plans are made of, where they are not found by themselves: class names, names of
        modules, classes, modules or predicates (name, module) -> bool, one or several.
    config: a configuration file (docs/configuration.md); None: PUDICA_CONFIG.
    enforce: "soft": at the budget kept layers are given back, and with nothing left training goes
        on and the overrun is counted; "hard": the allocator refuses (torch.OutOfMemoryError).
    daemon: whether to register with pudicad; None: as configured.
    name: of this run for the daemon and its command line; else as in "train.py:BertModel".
    allocator: of a CUDA device. Under a budget new segments are expandable, unless
        PYTORCH_ALLOC_CONF says expandable_segments:False; "expandable": whatever was set.
    policy: which rule plans, with its options: "pudica" or, to compare it with, a rival such as
        "full", "every_n:n=3" or "mimose"; policies() names all. None: the configuration's.

    Raises AttachError (what pudica cannot be right on, each with its reason), BudgetError,
    ConfigError. With PUDICA_DISABLE=1 the handle does nothing.
    """
    _check_words(enforce, daemon, name, allocator, policy)
    model = check_model(model)
    _check_free(model)
    chosen = find_layers(model, layers)
    check_layers(model, chosen)
    device = _device_of(model)
    if allocator is not None:
        expand_segments(device)
    path = _config_path(config)
    try:
        configured = json.loads(_native.ops.configured(path))
    except RuntimeError as error:
        raise from_native(error, BudgetError) from None
    limits = from_setting(configured, device) if budget is None else resolve(budget, device)
    settings = {
        "budget_bytes": limits.bytes,
        "budget_fraction": limits.fraction,
        "hard": enforce == "hard",
        "device": str(device),
        "config": path,
        "daemon": daemon,
        "name": name or _usual_name(model),
        "model": f"{type(model).__name__}: {len(chosen)} layers of {type(chosen[0]).__name__}",
        "fingerprint": _fingerprint(model, chosen, device),
        "policy": forced_policy() if policy is None else policy,
        "clock": forced_clock(),
    }
    handle = Handle(model, chosen, settings, _newcomers(model, chosen, layers))
    try:
        handle._load_state_file(str(configured.get("state_file", "")))
    except (OSError, StateError) as error:
        _log.warning("the learned model is not used: %s", error)
    return handle
