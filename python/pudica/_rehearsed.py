"""The child process of pudica.rehearse(): runs the step function over the batches, as often as
`pudica rehearse` starts it."""

from __future__ import annotations

import multiprocessing.spawn
import pathlib
import pickle
import traceback
from typing import Any

import torch

PAYLOAD, MAIN, FAILED = "payload.pickle", "main.pickle", "failed.txt"


def _moved(value: Any) -> Any:
    """Tensors to the device, in lists, tuples and dicts too."""
    if isinstance(value, dict):
        return {key: _moved(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_moved, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_moved, value))
    if isinstance(value, torch.Tensor) or callable(getattr(value, "to", None)):
        return value.to("cuda")
    return value


def main(folder: str) -> None:
    files = pathlib.Path(folder)
    try:
        # As processes that multiprocessing spawns: what the program's own file defines is there.
        multiprocessing.spawn.prepare(pickle.loads((files / MAIN).read_bytes()))
        step, setup, batches = pickle.loads((files / PAYLOAD).read_bytes())
        made = () if setup is None else (setup(),)
        for batch in batches:
            step(*made, _moved(batch))
    except torch.OutOfMemoryError:
        raise  # which is an answer
    except Exception as error:
        frames = traceback.TracebackException.from_exception(error)
        del frames.stack[0]  # this function
        text = "".join(frames.format())
        (files / FAILED).write_text(f"{type(error).__name__}: {error}\0{text}", encoding="utf-8")
        raise
