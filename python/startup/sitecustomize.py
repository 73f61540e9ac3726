"""What `pudica run` puts before a Python program's first line: its folder is first in PYTHONPATH.

Nothing is imported here but the standard library. Where the program imports torch, the first
optimizer that it makes brings in `pudica._automatic`; trainers of Transformers and Lightning do so
when they are made. A program that does none of it runs as without.
"""

import functools
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PROGRAM = "PUDICA_ATTACH_PROGRAM"  # which program of this run attaches: others under it do not
# They import torch, train nothing and start what trains.
_LAUNCHERS = frozenset((
    "accelerate", "accelerate.commands.launch", "deepspeed", "fabric", "lightning",
    "torch.distributed.launch", "torch.distributed.run", "torchrun",
))


def _program():
    """The script, module or code that this interpreter was started with."""
    words = iter(getattr(sys, "orig_argv", sys.argv)[1:])
    for word in words:
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, None)
        elif not word.startswith("-") or word == "-":
            return os.path.realpath(word)
        elif not word.startswith("--") and word[-1] in "mc":
            return next(words, "") if word[-1] == "m" else f"-c {next(words, '')}"
    return ""


def _is_launcher(program):
    return os.path.basename(program) in _LAUNCHERS


def _may_attach():
    disabled = os.environ.get("PUDICA_DISABLE") == "1" and not os.environ.get("PUDICA_REHEARSAL")
    if os.environ.get("PUDICA_ATTACH") != "1" or disabled:
        return False
    program = _program()
    if _is_launcher(program):
        return False
    claimed = os.environ.get(_PROGRAM)
    # Processes that multiprocessing spawns are of the program; so is a rank that runs it again.
    return claimed in (None, program) or "--multiprocessing-fork" in sys.orig_argv


def _contained(call, *arguments):
    """Calls into pudica. What fails there never reaches the program."""
    try:
        call(*arguments)
    except Exception as error:
        import logging

        logging.getLogger("pudica.run").warning("nothing was attached: %r", error)


def _automatic():
    from pudica import _automatic

    return _automatic


def _after_init(kind, told):
    """`told` hears of each object of the class that was made, by the name of the function."""
    init = kind.__init__

    @functools.wraps(init)
    def wrapped(self, *arguments, **options):
        init(self, *arguments, **options)
        _contained(lambda: getattr(_automatic(), told)(self))

    kind.__init__ = wrapped


def _torch_came(torch):
    os.environ.setdefault(_PROGRAM, _program())
    _after_init(torch.optim.Optimizer, "optimizer_made")
    if os.environ.get("PUDICA_REHEARSAL"):
        spec = getattr(sys.modules.get("pudica"), "__spec__", None)
        if getattr(spec, "_initializing", False):
            _when_pudica_is_there.append(_rehearse)  # the program imports it, and torch by it
        else:
            _rehearse()


_when_pudica_is_there = []


def _pudica_came(module):
    while _when_pudica_is_there:
        _when_pudica_is_there.pop()()


def _rehearse():
    try:
        from pudica import _rehearsal
    except Exception as error:
        _cannot_rehearse(error)
    _rehearsal.begin()


def _cannot_rehearse(error):
    """Ends the program, which nobody would watch, and tells the command why."""
    import json

    way, rank = os.environ.get("PUDICA_REHEARSAL_WAY"), os.environ.get("RANK", "0")
    told = os.path.join(os.environ["PUDICA_REHEARSAL"], f"{way}-{rank}.json")
    reason = f"{sys.executable} cannot import it: {type(error).__name__}: {error}"
    with open(told, "w", encoding="utf-8") as file:
        json.dump({"cannot": reason}, file)
    raise SystemExit(1) from None


def _transformers_came(module):
    _after_init(module.Trainer, "transformers_trainer_made")


def _generation_came(module):
    if os.environ.get("PUDICA_REHEARSAL"):
        from pudica import _generation

        _contained(_generation.run_to_the_longest, module)


def _lightning_came(module):
    _after_init(module.Trainer, "lightning_trainer_made")


_AWAITED = {
    "pudica": _pudica_came,
    "torch": _torch_came,
    "transformers.generation.utils": _generation_came,
    "transformers.trainer": _transformers_came,
    "lightning.pytorch.trainer.trainer": _lightning_came,
    "pytorch_lightning.trainer.trainer": _lightning_came,
}


class _Finder:
    """Finds nothing by itself; of a module that is awaited it sees the end of the import."""

    def find_spec(self, name, path=None, target=None):
        came = _AWAITED.get(name)
        if came is None:
            return None
        del _AWAITED[name]
        found = None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None and found is None:
                found = find(name, path, target)
        if found is not None and hasattr(found.loader, "exec_module"):
            _tell_after(found.loader, came)
        return found


def _tell_after(loader, came):
    execute = loader.exec_module

    def exec_module(module):
        del loader.exec_module
        execute(module)
        _contained(came, module)

    loader.exec_module = exec_module


def _next_sitecustomize():
    """The one that Python would have found without this folder."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


if _may_attach():
    sys.meta_path.insert(0, _Finder())
_next_sitecustomize()
