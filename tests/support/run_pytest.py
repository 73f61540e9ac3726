"""Runs one file of Python tests; exits 77 (CTest: skipped) where the packages are missing."""

import importlib.util
import sys

SKIPPED = 77

missing = [name for name in ("pytest", "jsonschema") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {sys.executable} has no {', '.join(missing)}; set PUDICA_PYTHON")
    sys.exit(SKIPPED)

import pytest  # noqa: E402  (known to exist only here)

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
