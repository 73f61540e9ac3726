"""Models that pudica cannot be right on yet, each with the reason and what to do."""

from __future__ import annotations

from torch import nn

from ._errors import AttachError

# Class names, so that nothing is imported that the user has not got.
_WRAPPERS = {
    "OptimizedModule": (
        "what torch.compile returns takes the hooks of the layers in it away, and around a part of "
        "a layer it does not stand being run again",
        "attach to the model uncompiled, and compile parts inside the layers in place: "
        "part.compile()",
    ),
    "DataParallel": (
        "its replicas share the layers' hooks",
        "use torch.nn.parallel.DistributedDataParallel",
    ),
    "FullyShardedDataParallel": (
        "FSDP1 frees and gathers parameters around each layer in ways that were not tested",
        "use FSDP2 (torch.distributed.fsdp.fully_shard)",
    ),
    "DeepSpeedEngine": (
        "ZeRO partitions parameters around each layer in ways that were not tested",
        "use DistributedDataParallel or FSDP2",
    ),
    "PipelineStage": ("a pipeline runs parts of the model in an order of its own", ""),
}


def _refuse(name: str, module: nn.Module, why: str, instead: str) -> AttachError:
    where = f"module '{name}'" if name else "the model"
    advice = f"; {instead}" if instead else ""
    return AttachError(f"cannot attach: {where} is a {type(module).__name__}: {why}{advice}")


def check_model(model: object) -> nn.Module:
    """The model, if pudica can attach to it. Raises AttachError."""
    if not isinstance(model, nn.Module):
        raise AttachError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    for name, module in model.named_modules():
        for base in type(module).__mro__:
            if base.__name__ in _WRAPPERS and base.__module__.split(".")[0] in (
                "torch",
                "deepspeed",
            ):
                raise _refuse(name, module, *_WRAPPERS[base.__name__])
        if isinstance(module, (nn.Module,)) and "torch.jit" in type(module).__module__:
            raise _refuse(
                name, module, "a scripted module runs no Python hooks", "attach to the module it "
                "was scripted from"
            )
    lazy = [name for name, p in model.named_parameters() if nn.parameter.is_lazy(p)]
    if lazy:
        raise AttachError(
            f"cannot attach: parameter '{lazy[0]}' has no shape yet; run one forward of the model "
            "first"
        )
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise _refuse("", model, *_WRAPPERS["OptimizedModule"])
    return model


def check_layers(model: nn.Module, layers: list[nn.Module]) -> None:
    """Raises AttachError for layers that cannot be planned."""
    if not any(p.requires_grad for p in model.parameters()):
        raise AttachError(
            "no parameter of the model requires gradients; expected a model to be trained"
        )
    compiled = [m for m in layers if getattr(m, "_compiled_call_impl", None) is not None]
    if compiled:
        raise AttachError(
            f"cannot attach: {len(compiled)} of {len(layers)} layers "
            f"({type(compiled[0]).__name__}) are compiled, and run no operators that could be "
            "planned; expected layers that are not compiled"
        )
