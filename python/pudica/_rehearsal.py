"""What a rehearsal sees of a program: `pudica rehearse` starts it on the emulated device, and
python/startup calls begin() when torch has come.

Each forward with gradients of a model that is trained begins a step, the next one or the
optimizer's step ends it; the peaks of torch's allocator are read and reset there. When the program
ends, or has made as many optimizer steps as were asked for, a file of JSON says what was seen:
PUDICA_REHEARSAL/PUDICA_REHEARSAL_WAY-RANK.json.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import pathlib
import sys
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _automatic
from ._errors import PudicaError
from ._flops import Flops
from ._handle import Handle
from ._installed import attached_modules
from ._hooks import _Hook
from ._reads import Reads
from ._search import Room, Search
from ._shape import ShapeReader

PLANNED, AS_IS = "planned", "as-is"


class Enough(SystemExit):
    """As many steps as were asked for: ends the program as sys.exit(0) would."""

    def __init__(self) -> None:
        super().__init__(0)


class _Forward(_Hook):
    """Before each forward of a model that is trained."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            watch: Any = self.handle
            watch.forward_begins(module, args, kwargs)


class Watch:
    """One process of the rehearsal."""

    def __init__(self, folder: pathlib.Path, way: str, most_steps: int) -> None:
        self._rooms = folder / "rooms.json"
        self._file = folder / f"{way}-{os.environ.get('RANK', '0')}.json"
        self._way = way
        self._most_steps = most_steps
        self._process = os.getpid()
        self._models: list[weakref.ref[nn.Module]] = []
        self._readers: weakref.WeakKeyDictionary[nn.Module, ShapeReader]
        self._readers = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._device: torch.device | None = None
        self._open = False
        self._steps: list[dict[str, Any]] = []
        self._optimizer_steps = 0
        self._outside = {"allocated": 0, "reserved": 0}  # peaks between steps
        self._out_of_memory: dict[str, Any] | None = None  # the last that torch told of
        self._uncaught = ""
        self._stopped = False
        self._handles: dict[Handle, dict[str, Any]] = {}
        self._flops = Flops()
        self.reads = Reads() if way == AS_IS else None

    # -- what happens ------------------------------------------------------------------------

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        """What it trains may be run, and values read, before its first forward with gradients."""
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        if (first := next(parameters, None)) is not None and first.is_cuda:
            self._use(first.device)

    def _use(self, device: torch.device) -> None:
        if self._device is not None:
            return
        self._device = device
        if self._on_cuda():
            observe = torch._C._cuda_attach_out_of_memory_observer  # type: ignore[attr-defined]
            observe(self._note_out_of_memory)
            if self.reads is not None:
                self.reads.begin()

    def first_forward(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Of a model that nobody has seen before."""
        self._use(next((p.device for p in module.parameters()), torch.device("cpu")))
        self._models.append(weakref.ref(module))
        self._readers[module] = ShapeReader()
        module.register_forward_pre_hook(
            _Forward(self), with_kwargs=True, prepend=True)  # type: ignore[arg-type]
        if self._way == AS_IS:
            self._flops.watch(module)
        self.forward_begins(module, args, kwargs)

    def forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._open and module in _automatic.without_layers:
            return  # a part of what the step that is open trains, or another call of it
        self._close()
        _, names, values = self._readers[module].read(module, args, kwargs)
        self._notice_handles()
        self._open = True
        self._steps.append({
            "model": type(module).__name__,
            "shape": ",".join(f"{n}={v}" for n, v in zip(names, values)),
            "optimizer_step": self._optimizer_steps + 1,
        })
        self._flops.begin_step()

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1 or os.getpid() != self._process:
            return
        self._optimizers.add(optimizer)
        if not self._steps:
            return
        self._close()
        self._optimizer_steps += 1
        if self._most_steps and self._optimizer_steps >= self._most_steps:
            self._stopped = True
            raise Enough

    def _close(self) -> None:
        """The end of what was open: a step, or what lies between two."""
        if self.reads is not None:
            self.reads.note_step()
        if not self._on_cuda():
            return
        stats = torch.cuda.memory_stats(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        peaks = {kind: int(stats[f"{kind}_bytes.all.peak"]) for kind in self._outside}
        if self._open:
            self._steps[-1] |= peaks | self._flops.step()
        else:
            self._outside = {kind: max(peak, self._outside[kind]) for kind, peak in peaks.items()}
        self._open = False

    def _on_cuda(self) -> bool:
        return self._device is not None and self._device.type == "cuda"

    def _note_out_of_memory(self, device: int, wanted: int, total: int, free: int) -> None:
        stats = torch.cuda.memory_stats(self._device)
        self._out_of_memory = {
            "requested_bytes": wanted,
            "allocated_bytes": int(stats["allocated_bytes.all.current"]),
            "reserved_bytes": int(stats["reserved_bytes.all.current"]),
            "step": len(self._steps),
            "shape": self._steps[-1]["shape"] if self._steps and self._open else "",
            "held": self._held(int(stats["allocated_bytes.all.current"])),
        }

    def _held(self, allocated: int) -> dict[str, int]:
        """Who holds what is allocated; storages are counted once."""
        seen: set[int] = set()

        def take(tensors: Iterator[Any]) -> int:
            total = 0
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                    storage = tensor.untyped_storage()
                    if storage._cdata not in seen:
                        seen.add(storage._cdata)
                        total += storage.nbytes()
            return total

        models = [module for ref in self._models if (module := ref()) is not None]
        parameters = [p for module in models for p in module.parameters()]
        held = {
            "parameters": take(iter(parameters)),
            "buffers": take(b for module in models for b in module.buffers()),
            "gradients": take(p.grad for p in parameters),
            "optimizer": take(value for optimizer in self._optimizers
                              for state in optimizer.state.values() if isinstance(state, dict)
                              for value in state.values()),
        }
        held["activations_and_rest"] = max(0, allocated - sum(held.values()))
        return held

    # -- what pudica learns ------------------------------------------------------------------

    def _notice_handles(self) -> None:
        for handle in {h for ref in attached_modules.values() if (h := ref()) is not None}:
            if handle in self._handles:
                continue
            self._handles[handle] = {}
            handle._state_file = ""  # the real run's
            detach = handle.detach

            def answered(handle: Handle = handle, detach: Any = detach) -> None:
                if handle.attached:
                    self._ask(handle)
                detach()

            setattr(handle, "detach", answered)  # noqa: B010  (an attribute of the instance)

    def _ask(self, handle: Handle) -> None:
        answers = self._handles[handle]
        try:
            handle._note(handle._native.end_step())
            stats = handle.stats()
            answers["stats"] = {key: stats[key] for key in (
                "steps", "learning_steps", "unplanned_steps", "overruns", "failures",
                "infeasible_steps", "recomputed_layers", "layer_calls", "recompute_seconds",
                "step_seconds", "budget_bytes", "highest_peak_bytes", "reserved_peak_bytes")}
            answers["layers"] = len(handle.layers)
            seen = self._shapes_seen()
            answers["shapes"] = self._answers_by_shape(handle, seen)
            answers["largest"] = self._largest(handle, seen)
            answers["state"] = handle.state_dict()
        except PudicaError as error:
            answers["unknown"] = str(error)

    def _shapes_seen(self) -> list[str]:
        """Of the latest dimensions, the smallest first."""
        names = list(_sizes(self._steps[-1]["shape"]))
        shapes = {str(step["shape"]) for step in self._steps}
        return sorted((s for s in shapes if list(_sizes(s)) == names),
                      key=lambda shape: (math.prod(_sizes(shape).values()), shape))

    def _answers_by_shape(self, handle: Handle, seen: list[str]) -> dict[str, Any]:
        """Of the longest, the median and the shortest batch."""
        wanted = {"longest": seen[-1], "median": seen[len(seen) // 2], "shortest": seen[0]}
        answers = {}
        for name, shape in wanted.items():
            answer = handle.estimate(shape)
            answers[name] = {"shape": shape, **{key: answer[key] for key in (
                "keep_all_peak_bytes", "floor_peak_bytes", "predicted_peak_bytes",
                "extra_seconds", "identified", "frontier", "all_full")}}
        return answers

    def _largest(self, handle: Handle, seen: list[str]) -> dict[str, Any]:
        """The largest sizes that fit each card, as the command wrote them down."""
        asked = json.loads(self._rooms.read_text(encoding="utf-8"))
        rooms = [Room(room["usable_bytes"], room["budget_bytes"], room["fits_as_is"])
                 for room in asked["rooms"]]
        search = Search(handle, _sizes(seen[-1]), asked["reserved_bytes"])
        return search.sizes([_sizes(shape) for shape in seen], rooms)

    # -- the end -----------------------------------------------------------------------------

    def see_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if self.reads is not None:
            self.reads.note_exception(trace)
        self._uncaught = "out of memory" if issubclass(kind, torch.OutOfMemoryError) else (
            f"{kind.__name__}: {error}".splitlines()[0][:400])

    def write(self) -> None:
        if self.reads is not None and self.reads.endless:
            self._uncaught = self.reads.endless
        if os.getpid() != self._process or not (self._steps or self._uncaught):
            return
        if not self._steps and self._file.exists():
            return  # of a program under the same command that trains
        if self._open:
            self._close()
        for handle in self._handles:
            if handle.attached:
                self._ask(handle)
        report: dict[str, Any] = {
            "device": str(self._device), "steps": self._steps, "stopped": self._stopped,
            "optimizer_steps": self._optimizer_steps, "outside": self._outside,
            "out_of_memory": self._out_of_memory, "uncaught": self._uncaught,
            "handles": [answers for answers in self._handles.values() if answers],
            "torch": torch.__version__,
        }
        if self._on_cuda():
            free, total = torch.cuda.mem_get_info(self._device)
            stats = torch.cuda.memory_stats(self._device)
            segments: Any = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            reserved = int(stats["reserved_bytes.all.current"])
            report |= {"total_bytes": total, "usable_bytes": free + reserved,
                       "expandable_segments": any(s["is_expandable"] for s in segments),
                       "retries": int(stats["num_alloc_retries"]),
                       "device_name": torch.cuda.get_device_name(self._device)}
        if self.reads is not None:
            report["reads"] = self.reads.report()
        self._file.write_text(json.dumps(report), encoding="utf-8")


def _sizes(shape: str) -> dict[str, int]:
    return {name: int(size) for name, size in (part.split("=") for part in shape.split(","))}


def begin() -> None:
    """In a process whose import of torch has just ended."""
    way = os.environ.get("PUDICA_REHEARSAL_WAY", PLANNED)
    watch = Watch(pathlib.Path(os.environ["PUDICA_REHEARSAL"]), way,
                  int(os.environ.get("PUDICA_REHEARSAL_STEPS", "0")))
    _automatic.plans = way == PLANNED
    _automatic.watchers.append(watch.first_forward)
    _automatic.optimizer_watchers.append(watch.optimizer_made)
    # It reads values, to raise where they are none of the kind expected.
    torch.distributions.Distribution.set_default_validate_args(False)
    register_optimizer_step_post_hook(watch.optimizer_stepped)
    atexit.register(watch.write)
    before = sys.excepthook

    def see(kind: Any, error: Any, trace: Any) -> None:
        watch.see_exception(kind, error, trace)
        before(kind, error, trace)

    sys.excepthook = see
