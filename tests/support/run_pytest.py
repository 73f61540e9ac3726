"""Runs one file of Python tests; exits 77 (CTest: skipped) where the packages are missing."""

import importlib.util
import sys

SKIPPED = 77


def main():
    missing = [n for n in ("pytest", "jsonschema") if importlib.util.find_spec(n) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; set PUDICA_PYTHON")
        return SKIPPED
    import pytest

    return pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]])


if __name__ == "__main__":  # processes that tests spawn import this file
    sys.exit(main())
