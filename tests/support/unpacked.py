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


def promtool():
    """Prometheus's own checker of rules, installed or unpacked; None where there is none."""
    return shutil.which("promtool") or _unpacked("promtool/usr/bin/promtool")
