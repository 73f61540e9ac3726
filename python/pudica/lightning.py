"""Lightning, as `lightning.pytorch` or as `pytorch_lightning`.

    from pudica.lightning import PudicaCallback
    trainer = Trainer(..., callbacks=[PudicaCallback(budget="20GiB")])
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any, Literal

from ._budget import Budget
from ._layers import Selector
from ._session import Session

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _callback_bases() -> tuple[type, ...]:
    # Of the package that the program has imported; both may be, and neither knows the other.
    imported = [module for name in _PACKAGES if (module := sys.modules.get(name))]
    if imported:
        return tuple(module.Callback for module in imported)
    for name in _PACKAGES:
        try:
            return (importlib.import_module(name).Callback,)
        except ModuleNotFoundError:
            continue
    raise ImportError(
        "pudica.lightning needs lightning or pytorch_lightning, and neither is installed: "
        "pip install lightning"
    )


_Base: Any = type("_Base", _callback_bases(), {})


class PudicaCallback(_Base):  # type: ignore[misc]
    """Attaches to the LightningModule for the length of fit(). Arguments as of pudica.attach().

    In the progress bar and the logger: `pudica/memory_of_budget` (highest measured peak since the
    last log line, as a share of the budget), `pudica/recomputed` (share of the steps' time
    in which layers ran again), `pudica/recomputed_calls` (share of layer calls that did),
    `pudica/headroom_mib` (what recomputing recovered at that peak). The learned model is part of
    the checkpoint's callback states.
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
    ) -> None:
        super().__init__()
        self.session = Session(budget, layers, config, enforce, daemon, name, policy)

    @property
    def handle(self) -> Any:
        """The pudica.Handle of the run that goes on, or of the last one; None before."""
        return self.session.handle

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.session.begin(pl_module)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self.session.note_step()  # under accumulation: the batch before this one

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.session.note_step()
        every = max(1, trainer.log_every_n_steps or 1)
        numbers = self.session.numbers(forget=trainer.global_step % every == 0)
        for name, value in numbers.items():
            pl_module.log(name, value, prog_bar=True, on_step=True, on_epoch=False)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.session.end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.session.end()

    def state_dict(self) -> dict[str, Any]:
        return self.session.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.session.take(state_dict)
