"""Which lines of a program read values of the emulated device, where values mean nothing.

torch itself says when an operation waits for the device (its sync debug mode), as a warning in the
middle of the Python call; the stand-in counts copies to the host. A warning after which that count
has grown is a read, and the stack says whose.
"""

from __future__ import annotations

import ctypes
import dataclasses
import linecache
import logging
import os
import pathlib
import sys
import sysconfig
import warnings
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch

from ._automatic import say
from ._emulated import counter

_WARNING = "called a synchronizing CUDA operation"
_MOST_LINES, _MOST_CODE = 6, 100  # of a statement that is shown
_HERE = str(pathlib.Path(__file__).resolve().parent)
_TORCH = str(pathlib.Path(torch.__file__).resolve().parent)
_STANDARD = sysconfig.get_path("stdlib")
_PACKAGES = sysconfig.get_path("purelib")


def _whose(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is none of torch's, Python's or ours."""
    while frame is not None:
        name = frame.f_code.co_filename
        ours = name.startswith((_HERE, _TORCH)) or name.startswith("<")
        standard = name.startswith(_STANDARD) and not name.startswith(_PACKAGES)
        if not ours and not standard:
            return frame
        frame = frame.f_back
    return None


def _shown(name: str) -> str:
    for folder in (_PACKAGES, os.getcwd()):
        if name.startswith(folder + os.sep):
            return name[len(folder) + 1:]
    return name


def _statement(name: str, line: int) -> str:
    """The line, and those behind it as long as a bracket is open."""
    code = linecache.getline(name, line).strip()
    for behind in range(line + 1, line + _MOST_LINES):
        if sum(map(code.count, "([{")) <= sum(map(code.count, ")]}")) or len(code) > _MOST_CODE:
            break
        space = "" if code.endswith(("(", "[", "{")) else " "
        code = f"{code}{space}{linecache.getline(name, behind).strip()}"
    return code if len(code) <= _MOST_CODE else f"{code[:_MOST_CODE]} ..."


class Endless(SystemExit):
    """A loop whose end hangs on a value of the device: nobody knows whether it would end."""

    def __init__(self) -> None:
        super().__init__(1)


@dataclasses.dataclass
class _SinceStep:
    """Reads at one place since the last step."""

    count: int = 0
    in_a_row: int = 0  # with nothing new from the host in between
    uploads: int = -1  # copies to the device, at the latest of them


class Reads:
    """Counts by place. begin() once the device is in use."""

    # Reads at one place between two steps, after which a loop is taken for one without an end.
    # Where no data come from the host in between, only values of the device can end it; where they
    # do, as in an evaluation, the data may.
    _MOST_IN_A_ROW = 10_000
    _MOST = 100_000
    _TELLING = 1000  # whoever waits is told why

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], int] = {}
        self._last = ""
        self._since_step: dict[tuple[str, int], _SinceStep] = {}
        self.endless = ""  # the loop that was ended, in words
        self._seen = self._at_begin = 0
        self._count: Any = None
        self._uploads: Any = None

    def note_step(self) -> None:
        """A step began or ended."""
        self._since_step.clear()

    def begin(self) -> None:
        self._count = counter("reads", ctypes.c_uint64)
        self._uploads = counter("uploads", ctypes.c_uint64)
        if self._count is None or self._uploads is None:
            return
        self._seen = self._at_begin = int(self._count())
        warnings.filterwarnings("always", message=f".*{_WARNING}.*")
        show: Any = warnings._showwarnmsg  # type: ignore[attr-defined]

        def see(message: Any) -> None:
            if _WARNING in str(message.message):
                self._note()
            else:
                show(message)

        warnings._showwarnmsg = see  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is a prototype: unplaced reads are counted
            torch.cuda.set_sync_debug_mode("warn")

    def _note(self) -> None:
        now = int(self._count())
        if now == self._seen:
            return  # it waited for a copy to the device
        self._seen = now
        self._add(_whose(sys._getframe(1)))

    def _add(self, frame: FrameType | None) -> None:
        if frame is None:
            return
        place = frame.f_code.co_filename, frame.f_lineno
        self._places[place] = self._places.get(place, 0) + 1
        self._last = f"{_shown(place[0])}:{place[1]}"
        since = self._since_step.setdefault(place, _SinceStep())
        uploads = int(self._uploads())
        since.in_a_row = since.in_a_row + 1 if uploads == since.uploads else 1
        since.uploads = uploads
        since.count += 1
        if since.count == self._TELLING:
            say("%d reads of values of the device at %s since the last step: the rehearsal waits "
                "for the end of a loop", since.count, self._last, level=logging.WARNING)
        if since.in_a_row >= self._MOST_IN_A_ROW:
            self._end(f"{since.in_a_row} reads without a step or anything new from the host")
        if since.count >= self._MOST:
            self._end(f"{since.count} reads without a step")

    def _end(self, seen: str) -> NoReturn:
        self.endless = (
            f"a loop that reads values of the device at {self._last} went on for {seen}; where its "
            "end hangs on them it cannot be rehearsed: bound it, or leave it out"
        )
        raise Endless

    def note_exception(self, trace: TracebackType | None) -> None:
        """A read in the very call that failed, of which torch had no time to tell."""
        if self._count is None or int(self._count()) == self._seen:
            return
        frames = []
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        self._add(_whose(frames[-1] if frames else None))

    def report(self) -> dict[str, Any]:
        """`places`, most first; the `last`; `unplaced`: copies of which torch did not say where."""
        total = int(self._count()) - self._at_begin if self._count is not None else 0
        places = [
            {"file": _shown(name), "line": line, "count": count,
             "code": _statement(name, line)}
            for (name, line), count in sorted(self._places.items(), key=lambda item: -item[1])
        ]
        unplaced = max(0, total - sum(self._places.values()))
        return {"places": places, "last": self._last, "unplaced": unplaced}
