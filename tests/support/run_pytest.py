"""Runs one file of Python tests; exits 77 (CTest: skipped) where the packages are missing."""

import importlib.util
import sys

SKIPPED = 77
NO_TESTS = 5  # pytest's exit code, also where a file skips as a whole


def main():
    missing = [n for n in ("pytest", "jsonschema") if importlib.util.find_spec(n) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; set PUDICA_PYTHON")
        return SKIPPED
    import pytest

    code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]])
    return SKIPPED if code == NO_TESTS else code


if __name__ == "__main__":  # processes that tests spawn import this file
    sys.exit(main())
