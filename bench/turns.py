"""Trainings of one kind in several ways, each in a process of its own, one step each in turn in an
order drawn anew, so that what else the machine does hits all alike. A step's time is the CPU time
of its process."""

import contextlib
import dataclasses
import hashlib
import multiprocessing
import random
import statistics
import time


def bits(tensor):
    """The bytes of a tensor of any type, wherever it lies."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def digest(model):
    """Of all parameters and buffers: equal if and only if all bits are."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode() + bits(tensor))
    return found.hexdigest()


class Turn:
    """A worker's side: waits, measures one step, tells."""

    def __init__(self, pipe):
        self._pipe = pipe
        self._started = 0.0

    def begin(self):
        self._pipe.recv()
        self._started = time.process_time()

    def end(self, **measured):
        self._pipe.send(("step", time.process_time() - self._started, measured))


@dataclasses.dataclass
class Lane:
    """What became of one way."""

    seconds: list = dataclasses.field(default_factory=list)  # of each step
    measured: list = dataclasses.field(default_factory=list)  # what its job told of each
    report: dict | None = None  # what its job returned
    failure: str = ""  # why there is none


def work(pipe, job, options, way):
    import torch

    torch.set_num_threads(1)
    try:
        pipe.send(("done", job(Turn(pipe), options, way)))
    except Exception as error:  # noqa: BLE001  (one way's failure is a result)
        words = (str(error).splitlines() or [""])[0]
        pipe.send(("failed", f"{type(error).__name__}: {words}"[:400]))


def _take(lane, pipe, worker):
    try:
        kind, *what = pipe.recv()
    except EOFError:
        worker.join()
        lane.failure = f"the process ended with exit code {worker.exitcode}"
        return
    if kind == "step":
        lane.seconds.append(what[0])
        lane.measured.append(what[1])
    elif kind == "done":
        lane.report = what[0]
    else:
        lane.failure = what[0]


def interleave(job, options, ways, steps, method="spawn"):
    """`job(turn, options, way)` of every way, for so many steps: {name: Lane}. The order of each
    round is drawn with options.seed."""
    context = multiprocessing.get_context(method)
    order = random.Random(options.seed)
    pipes, workers, lanes = {}, {}, {name: Lane() for name in ways}
    for name, way in ways.items():
        pipes[name], theirs = context.Pipe()
        workers[name] = context.Process(target=work, args=(theirs, job, options, way), daemon=True)
        workers[name].start()
        theirs.close()
    for _ in range(steps):
        for name in order.sample(sorted(ways), len(ways)):
            if not lanes[name].failure:
                with contextlib.suppress(OSError):  # it has ended: what it said last is there
                    pipes[name].send(None)
                _take(lanes[name], pipes[name], workers[name])
    for name, lane in lanes.items():
        if not lane.failure:
            _take(lane, pipes[name], workers[name])
        workers[name].join()
    return lanes


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": round(middle, 4), "quartiles": [round(low, 4), round(high, 4)]}


def over(own, reference):
    """Times of one way over another's: by turn with quartiles, and in all."""
    ratios = [mine / other for mine, other in zip(own, reference)]
    return {**quartiles(ratios), "total": round(sum(own) / sum(reference), 4)}
