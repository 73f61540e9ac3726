"""Layers run again: the native side calls back here when a backward needs a layer's tensors."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import threading
from typing import Any

import torch

from ._arguments import Template, tensors_in

# Layer calls whose frames live, by token. Tensors are not here but in the frame: what the
# native side frees is free.
_calls: dict[int, tuple[torch.nn.Module, Template]] = {}
_tokens = itertools.count(1)
_DONE, _FAILED, _OUT_OF_MEMORY = 0, 1, 2


def new_token() -> int:
    return next(_tokens)


def remember(token: int, module: torch.nn.Module, template: Template) -> None:
    _calls[token] = (module, template)


def forget_dead() -> None:
    for token in torch.ops.pudica.dead_tokens():
        _calls.pop(token, None)


def live_calls() -> int:
    forget_dead()
    return len(_calls)


def _run(token: int) -> int:
    ops: Any = torch.ops.pudica
    try:
        module, template = _calls[token]
        args, kwargs = template.rebuild(ops.rerun_inputs())
        # forward(), not the call: the user's hooks ran once, in the forward.
        output = module.forward(*args, **kwargs)
        ops.rerun_done(tensors_in(output))
        return _DONE
    except torch.OutOfMemoryError as error:
        ops.rerun_failed(str(error))
        return _OUT_OF_MEMORY
    except KeyboardInterrupt:
        ops.rerun_failed("interrupted")
        import _thread

        _thread.interrupt_main()
        return _FAILED
    except BaseException as error:  # noqa: BLE001  (a C caller is waiting for a number)
        with contextlib.suppress(Exception):
            ops.rerun_failed(f"{type(error).__name__}: {error}")
        return _FAILED


_callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(_run)
_installed = threading.Lock()


def install() -> None:
    """Once, when the library is loaded. At exit the native side stops calling us."""
    with _installed:
        address = ctypes.cast(_callback, ctypes.c_void_p).value
        torch.ops.pudica.set_rerun_callback(address)
        atexit.register(torch.ops.pudica.set_rerun_callback, 0)
