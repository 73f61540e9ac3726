"""Runs one file of Python tests; exits 77 (CTest: skipped) where the packages are missing.

PUDICA_TEST_USERS=several: the file wants to be root over several users, if need be that of a user
namespace which the system's /etc/subuid allows."""

import importlib.util
import os
import subprocess
import sys

SKIPPED = 77
NO_TESTS = 5  # pytest's exit code, also where a file skips as a whole


def become_root_of_several_users():
    """In the place of this process, where that may be done; otherwise the tests say what lacks."""
    inside = ["unshare", "--user", "--map-auto", "--map-root-user"]
    if os.geteuid() == 0:
        return
    try:
        made = subprocess.run([*inside, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return
    if made.returncode == 0:
        os.execvp(inside[0], [*inside, sys.executable, *sys.argv])


def main():
    if os.environ.get("PUDICA_TEST_USERS") == "several":
        become_root_of_several_users()
    missing = [n for n in ("pytest", "jsonschema") if importlib.util.find_spec(n) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; set PUDICA_PYTHON")
        return SKIPPED
    import pytest

    # What is installed beside and no test uses takes a second to import.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]])
    return SKIPPED if code == NO_TESTS else code


if __name__ == "__main__":  # processes that tests spawn import this file
    sys.exit(main())
