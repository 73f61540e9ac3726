"""Programs and files that scripts/lib/unpack.sh has put into the user's cache, for tests only."""

import os
import pathlib
import shutil

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "pudica"


def _unpacked(pattern):
    found = [path for path in sorted(CACHE.glob(pattern)) if (
        CACHE / path.relative_to(CACHE).parts[0] / ".complete").exists()]
    return found[-1] if found else None


def axe():
    """The file of axe-core, which judges a page for people who cannot see or use a mouse; None
    where it is not there."""
    return _unpacked("axe-*/axe_playwright_python/axe.min.js")


def _libraries(root):
    """The folder of what stands beside a program of Debian."""
    return next(iter(sorted(root.glob("usr/lib/*-linux-gnu"))), None)


def zsh():
    """zsh, and for one that is unpacked what its .zshenv must say to find its files; None."""
    if shutil.which("zsh"):
        return shutil.which("zsh"), ""
    program = _unpacked("shells/bin/zsh")
    if program is None:
        return None
    root = program.parents[1]
    modules = next(_libraries(root).glob("zsh/*"))
    functions = root / "usr/share/zsh/functions"
    return str(program), f"module_path=({modules})\nfpath=({functions} {functions}/**/*(/N))\n"


def fish():
    """fish, and the variables that one which is unpacked needs; None where there is none."""
    if shutil.which("fish"):
        return shutil.which("fish"), {}
    program = _unpacked("shells/usr/bin/fish")
    if program is None:
        return None
    return str(program), {"LD_LIBRARY_PATH": str(_libraries(program.parents[2]))}


def promtool():
    """Prometheus's own checker of rules, installed or unpacked; None where there is none."""
    return shutil.which("promtool") or _unpacked("promtool/usr/bin/promtool")
