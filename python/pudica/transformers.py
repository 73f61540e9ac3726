"""Hugging Face's Trainer.

    import pudica.transformers
    pudica.transformers.install(trainer, budget="20GiB")
    trainer.train()

`Trainer(..., callbacks=[PudicaCallback(budget="20GiB")])` does the same, but its numbers reach
`trainer.state.log_history` and the callbacks after it only: Trainer asks its own loggers first.
"""

from __future__ import annotations

import importlib
import logging
import os
import pathlib
from collections.abc import Iterable
from typing import Any, Literal

from ._budget import Budget
from ._errors import AttachError
from ._layers import Selector
from ._session import Session

_log = logging.getLogger("pudica")
_FILE = "pudica.json"  # in each checkpoint folder


def _callback_base() -> Any:
    try:
        return importlib.import_module("transformers").TrainerCallback
    except ImportError as error:
        raise ImportError(
            f"pudica.transformers needs Hugging Face's transformers ({error}): "
            "pip install transformers"
        ) from None


_Base: Any = _callback_base()


class PudicaCallback(_Base):  # type: ignore[misc]
    """Attaches to the Trainer's model for the length of train(). Arguments as of pudica.attach().

    In each log line: `pudica/memory_of_budget` (highest measured peak since the last one, as a
    share of the budget), `pudica/recomputed` (share of the steps' time in which layers ran again),
    `pudica/recomputed_calls` (share of layer calls that did), `pudica/headroom_mib` (what
    recomputing recovered at that peak). The learned model is saved as `pudica.json` in each
    checkpoint folder, and read again on resume. Gradient checkpointing is taken over while it
    trains, and given back.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        layers: Selector | Iterable[Selector] | None = None,
        config: str | os.PathLike[str] | None = None,
        *,
        enforce: Literal["soft", "hard"] = "soft",
        daemon: bool | None = None,
        name: str | None = None,
        policy: str | None = None,
        resume_from: str | os.PathLike[str] | None = None,
    ) -> None:
        """`resume_from`: the checkpoint folder whose learned model a resumed run begins with; None:
        `args.resume_from_checkpoint`, else the one of the step in `args.output_dir`."""
        self.session = Session(budget, layers, config, enforce, daemon, name, policy)
        self._resume_from = resume_from
        self.automatic = False  # put there by `pudica run`: gives way to the program's own
        self._bars: list[Any] = []  # callbacks with a progress bar, where install() showed them

    @property
    def handle(self) -> Any:
        """The pudica.Handle of the run that goes on, or of the last one; None before."""
        return self.session.handle

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.begin(kwargs["model"], lambda: _check(args))
        if state.global_step > 0:
            self._resume(args, state)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.note_step()

    on_pre_optimizer_step = on_substep_end
    on_step_end = on_substep_end

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        logs = kwargs.get("logs")
        if logs is None or "loss" not in logs:
            return  # an evaluation's or the end's
        numbers = self.session.numbers(forget=True)
        logs.update(numbers)
        if state.log_history:
            state.log_history[-1].update(numbers)
        self._show(numbers)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = _checkpoint_folder(args, state)
        if args.should_save and folder.is_dir():
            self.session.save(folder / _FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.end()

    def _resume(self, args: Any, state: Any) -> None:
        places = [self._resume_from, args.resume_from_checkpoint, _checkpoint_folder(args, state)]
        folders = [pathlib.Path(p) for p in places if isinstance(p, (str, os.PathLike))]
        if not any(self.session.load(folder / _FILE) for folder in folders):
            _log.info(
                "resumed without a learned model: no %s in %s", _FILE, ", ".join(map(str, folders))
            )

    def _show(self, numbers: dict[str, float]) -> None:
        for callback in self._bars:
            bar = getattr(callback, "training_bar", None)
            if bar is not None and numbers and hasattr(bar, "set_postfix"):
                bar.set_postfix(
                    memory=f"{numbers['pudica/memory_of_budget']:.0%}",
                    recomputed=f"{numbers['pudica/recomputed']:.0%}",
                    refresh=False,
                )


def install(
    trainer: Any,
    budget: Budget | None = None,
    layers: Selector | Iterable[Selector] | None = None,
    config: str | os.PathLike[str] | None = None,
    **options: Any,
) -> PudicaCallback:
    """Puts a PudicaCallback (arguments as its) before the trainer's other callbacks, so that its
    numbers reach every logger and the progress bar. Raises AttachError where there is one."""
    callbacks = trainer.callback_handler.callbacks
    callbacks[:] = [c for c in callbacks if not getattr(c, "automatic", False)]
    if any(isinstance(callback, PudicaCallback) for callback in callbacks):
        raise AttachError(
            "this trainer has a PudicaCallback already; expected either install() or callbacks="
        )
    callback = PudicaCallback(budget, layers, config, **options)
    callback._bars = [c for c in callbacks if hasattr(c, "training_bar")]
    callbacks.insert(0, callback)
    return callback


def _checkpoint_folder(args: Any, state: Any) -> pathlib.Path:
    return pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _check(args: Any) -> None:
    # What the model itself does not show: Trainer wraps it later, or not in its modules.
    if getattr(args, "torch_compile", False):
        raise AttachError(
            "TrainingArguments(torch_compile=True): compiled code runs no layer hooks, and nothing "
            "could be planned; expected torch_compile=False"
        )
    if getattr(args, "deepspeed", None):
        raise AttachError(
            "TrainingArguments(deepspeed=...): ZeRO partitions parameters around each layer in "
            "ways that were not tested; use DistributedDataParallel or FSDP2"
        )
    if getattr(args, "n_gpu", 0) > 1:
        raise AttachError(
            f"{args.n_gpu} GPUs in one process: Trainer would use DataParallel, whose replicas "
            "share the layers' hooks; start one process a GPU with torchrun"
        )
