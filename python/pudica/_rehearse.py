"""pudica.rehearse(): whether a step function fits a card, asked of `pudica rehearse`."""

from __future__ import annotations

import importlib
import itertools
import json
import multiprocessing.spawn
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from . import _rehearsed
from ._budget import Budget
from ._errors import RehearsalError
from ._rehearsal_answer import Rehearsal

_HERE = pathlib.Path(__file__).resolve().parent
_NO_PLAN_FITS = 4
_FRACTION = re.compile(r"\s*\d*\.\d*\s*")
_CHILD = """
import json, sys
with open(sys.argv[1] + "/path.json") as file:
    sys.path[:] = json.load(file)
import torch
from pudica import _rehearsed
_rehearsed.main(sys.argv[1])
"""


class _InTheChild(Exception):
    """The traceback of another process, as a cause."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def __str__(self) -> str:
        return f'\n"""\n{self._text}"""'


def rehearse(
    step_function: Callable[..., Any],
    batches: Iterable[Any],
    memory: int | str | None = None,
    budget: Budget | None = None,
    *,
    device: str = "A100-80",
    setup: Callable[[], Any] | None = None,
    most_batches: int = 50,
) -> Rehearsal:
    """Whether training by `step_function` fits a card, without the card.

    `step_function(batch)` makes one step: forward, backward, optimizer. It is called in a child
    process on an emulated device (docs/rehearse.md) with each of the first `most_batches`, whose
    tensors are moved to "cuda" before. With `setup`, what that returns comes first:
    `step_function(setup(), batch)`; it is called once in the child and makes model and optimizer
    there, on "cuda". Both are taken there by pickle, as multiprocessing takes them.

    `memory`: bytes, or text with a unit; None: the card's. `budget`: of the plan, as attach() takes
    it, but for fractions of the device: bytes, between(0.4), or "auto". `device`: one of the cards
    of `pudica rehearse`. Nothing of it stays, neither a file nor a process. Raises RehearsalError
    where there is no answer: with the traceback of the step function as its cause where that
    failed.
    """
    program = _program()
    taken = list(itertools.islice(batches, most_batches))
    if not taken:
        raise RehearsalError("batches is empty; expected at least one")
    if isinstance(budget, float) or (isinstance(budget, str) and _FRACTION.fullmatch(budget)):
        raise RehearsalError(
            f"budget is {budget!r}, a fraction of the device; expected bytes (an int, or a text "
            'such as "20GiB"), between(0.4), or "auto"'
        )
    words = ["--steps", "0", "--device", device]
    for option, value in (("--memory", memory), ("--budget", budget)):
        if value is not None:
            words += [option, str(value)]
    with tempfile.TemporaryDirectory(prefix="pudica-step-") as folder:
        files = pathlib.Path(folder)
        main = multiprocessing.spawn.get_preparation_data("rehearsal")
        main.pop("authkey", None)  # secret, and of no use there
        (files / _rehearsed.MAIN).write_bytes(pickle.dumps(main))
        (files / _rehearsed.PAYLOAD).write_bytes(_carried((step_function, setup, taken)))
        (files / "path.json").write_text(json.dumps(sys.path), encoding="utf-8")
        command = [
            str(program), "rehearse", "--json", "--out", str(files / "answer"), *words, "--",
            sys.executable, "-c", _CHILD, folder,
        ]
        code, said = _run(command)
        if code not in (0, _NO_PLAN_FITS):
            raise _error(files / _rehearsed.FAILED, said)
        answer = json.loads((files / "answer" / "answer.json").read_text(encoding="utf-8"))
        page = (files / "answer" / "answer.txt").read_text(encoding="utf-8")
    name = getattr(step_function, "__qualname__", repr(step_function))
    return Rehearsal(name, answer, page)


def _program() -> pathlib.Path:
    """The command, of the package or of a build tree."""
    native = os.environ.get("PUDICA_NATIVE_LIBRARY")
    beside = pathlib.Path(native).parent.parent if native else _HERE
    program = beside / "bin" / "pudica"
    if not program.exists():
        raise RehearsalError(
            f"there is no {program}; a rehearsal needs the package's own command: install the "
            "package with: pip install ."
        )
    return program


def _carried(payload: Any) -> bytes:
    """For another process. What no module holds goes by cloudpickle, where that is installed."""
    interactive = not hasattr(sys.modules["__main__"], "__file__")
    try:
        if not interactive:
            return pickle.dumps(payload)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        reason = str(error)
    else:
        reason = "the program has no file"
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        raise RehearsalError(
            f"the step function cannot be taken into another process: {reason}; define it, and "
            "setup, at the top of a module, or: pip install cloudpickle"
        ) from None
    carried: bytes = cloudpickle.dumps(payload)
    return carried


def _run(command: list[str]) -> tuple[int, str]:
    """Exit code, and the last line of what it said. It ends with this."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    ) as process:
        try:
            _, said = process.communicate()
        except BaseException:  # Ctrl-C among them
            process.terminate()
            process.communicate()
            raise
    lines = said.strip().splitlines()
    return process.returncode, lines[-1].removeprefix("pudica: ") if lines else ""


def _error(failed: pathlib.Path, said: str) -> RehearsalError:
    if not failed.exists():
        return RehearsalError(said)
    name, _, text = failed.read_text(encoding="utf-8").partition("\0")
    error = RehearsalError(f"the step function failed in the rehearsal: {name}")
    error.__cause__ = _InTheChild(text)
    return error
