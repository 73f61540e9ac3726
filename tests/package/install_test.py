"""What `cmake --install` gives a user of the programs: manual pages, and units of systemd that
start the program where it is."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

BUILD = os.environ["PUDICA_BUILD_DIR"]


@pytest.fixture(name="prefix", scope="module")
def prefix_fixture(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix, "--component",
                           "pudica_programs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return prefix


def test_each_program_has_its_manual_page(prefix):
    programs = {path.name for path in (prefix / "bin").iterdir()}
    pages = {path.stem for path in (prefix / "share" / "man").rglob("*.[18]")}
    assert {"pudica", "pudicad"} <= programs and programs == pages


def test_the_unit_starts_the_program_that_was_installed(prefix):
    units = prefix / "share" / "systemd" / "user"
    assert (units / "pudicad.socket").is_file()
    started = re.search(r"^ExecStart=(.*)$", (units / "pudicad.service").read_text(), re.M)[1]
    assert pathlib.Path(started) == prefix / "bin" / "pudicad"
    version = subprocess.run([started, "--version"], capture_output=True, text=True)
    assert version.returncode == 0, version


def test_run_and_rehearse_find_what_they_need(prefix, tmp_path):
    program = prefix / "bin" / "pudica"
    shown = subprocess.run([program, "run", "--", "sh", "-c", "echo $PYTHONPATH"],
                           capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    startup = prefix / "share" / "pudica" / "startup"
    assert shown.stdout == f"{startup}\n" and (startup / "sitecustomize.py").is_file()
    if not (pathlib.Path(BUILD) / "emulated_device" / "libemulated_device.so").exists():
        pytest.skip("no emulated device in this build")
    done = subprocess.run([program, "rehearse", "--", "true"], capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)})
    assert done.returncode == 1 and "trained no model" in done.stderr, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(prefix, tmp_path):
    units = prefix / "share" / "systemd" / "user"
    done = subprocess.run(["systemd-analyze", "--user", "--man=no", "verify",
                           units / "pudicad.service", units / "pudicad.socket"],
                          capture_output=True, text=True,
                          env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    assert done.returncode == 0 and "pudicad" not in done.stderr, done.stderr
