"""Every script explains itself, refuses what it does not know, and works from any directory."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
SCRIPTS = ["test", "check", "install", "wheel", "bench", "bench_daemon", "demo", "emulated"]


def run(name, *arguments, cwd):
    return subprocess.run([str(ROOT / "scripts" / name), *arguments], cwd=cwd, text=True,
                          capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_from_any_directory(name, tmp_path):
    done = run(name, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: scripts/{name}")


# demo hands every option on to pudica-train, which refuses what it does not know.
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "demo"])
def test_unknown_options_are_refused(name, tmp_path):
    done = run(name, "--no-such-option", cwd=tmp_path)
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


@pytest.mark.parametrize("arguments, message", [
    (["install"], "PREFIX is missing"),
    (["install", "a", "b"], "one PREFIX expected"),
    (["bench"], "NAME is missing"),
    (["bench", "no_such_benchmark"], "no benchmark 'no_such_benchmark'"),
    (["bench", "--json"], "--json needs a value"),
    (["bench_daemon", "--runs", "few"], "--runs 'few'"),
    (["check", "--seconds"], "--seconds"),
    (["emulated", "--card"], "--card needs a value"),
    (["emulated"], "Usage: scripts/emulated"),
    (["wheel", "--torch"], "--torch ''"),
    (["wheel", "--torch", "2.11"], "--torch '2.11'"),
    (["wheel", "--out"], "--out needs a folder"),
])
def test_missing_and_extra_arguments_are_refused(arguments, message, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("path", sorted(ROOT.glob("scripts/*")) + [ROOT / ".ci/run"],
                         ids=lambda path: path.name)
def test_shell_scripts_stop_at_the_first_error(path):
    text = path.read_text() if path.is_file() else ""
    if not text.startswith("#!/usr/bin/env bash"):
        pytest.skip("not a shell script")
    assert "\nset -euo pipefail\n" in text
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def unpack(home, command):
    script = f"""PUDICA_ROOT='{ROOT}'; source '{ROOT}/scripts/lib/unpack.sh'
        fetch() {{ {command}; }}; pudica_unpack thing fetch"""
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], text=True, check=False,
                          env=os.environ | {"XDG_CACHE_HOME": str(home)}, capture_output=True)


def test_what_tests_use_is_unpacked_once(tmp_path):
    for _ in range(2):
        assert unpack(tmp_path, "echo here >> file").returncode == 0
    assert (tmp_path / "pudica/thing/file").read_text() == "here\n"


def test_what_cannot_be_unpacked_leaves_nothing_and_is_tried_again(tmp_path):
    assert unpack(tmp_path, "touch part; return 1").returncode == 1
    assert not (tmp_path / "pudica/thing").exists()
    assert unpack(tmp_path, "touch whole").returncode == 0
    assert [path.name for path in (tmp_path / "pudica/thing").glob("[a-z]*")] == ["whole"]


@pytest.fixture
def checkout(tmp_path):
    """A checkout of its own that has the quick checks and nothing else."""
    (tmp_path / "scripts/lib").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/lib/quick_check.sh", tmp_path / "scripts/lib")
    shutil.copy(ROOT / ".clang-format", tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def quick_check(checkout, name, **environment):
    return subprocess.run([checkout / "scripts/lib/quick_check.sh", name], text=True,
                          env=os.environ | environment, capture_output=True, check=False)


@pytest.mark.skipif(shutil.which("clang-format-14") is None, reason="no clang-format-14")
def test_sources_that_are_not_formatted_are_named(checkout):
    assert quick_check(checkout, "format").returncode == 0
    (checkout / "a b.cpp").write_text("int  x;\n")
    done = quick_check(checkout, "format")
    assert done.returncode not in (0, 77) and "a b.cpp:1" in done.stderr
    (checkout / "a b.cpp").write_text("int x;\n")
    assert quick_check(checkout, "format").returncode == 0


def test_types_are_checked_as_the_project_says(checkout):
    if any(importlib.util.find_spec(name) is None for name in ("mypy", "torch")):
        pytest.skip("no mypy, or no torch")
    (checkout / "pyproject.toml").write_text('[tool.mypy]\nstrict = true\nfiles = ["a.py"]\n')
    (checkout / "a.py").write_text("def f(x):\n    return x\n")
    done = quick_check(checkout, "types", PUDICA_PYTHON=sys.executable)
    assert done.returncode == 1 and "a.py:1" in done.stdout
    (checkout / "a.py").write_text("def f(x: int) -> int:\n    return x\n")
    assert quick_check(checkout, "types", PUDICA_PYTHON=sys.executable).returncode == 0


def test_a_quick_check_without_its_tool_says_so(checkout):
    done = quick_check(checkout, "types", PUDICA_PYTHON="false")
    assert done.returncode == 77 and done.stdout.startswith("skipped: false has no mypy")
    assert quick_check(checkout, "colours").returncode == 2


@pytest.mark.parametrize("setting, missing", [
    ("ATEN_CPU_CAPABILITY=default", ""),
    ("ATEN_CPU_CAPABILITY=avx2", ""),
    ("ONEDNN_MAX_CPU_ISA=AVX512_CORE", "avx512bw avx512vl"),
    ("ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16", "avx512bw avx512vl avx512_bf16"),
])
def test_instruction_sets_that_the_processor_has_not_are_told(setting, missing, tmp_path):
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512dq avx512_vnni fma\n")
    command = f"source {ROOT}/scripts/lib/isa.sh; pudica_isa_missing {tmp_path}/cpuinfo {setting}"
    assert subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True,
                          text=True, check=True).stdout.strip() == missing


def test_without_flags_only_the_default_is_left(tmp_path):
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    command = (f"source {ROOT}/scripts/lib/isa.sh; for s in ${{PUDICA_ISA_SETTINGS[@]}}; do"
               f" [ -n \"$(pudica_isa_missing {tmp_path}/cpuinfo $s)\" ] || echo $s; done")
    assert subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True,
                          text=True, check=True).stdout.split() == ["ATEN_CPU_CAPABILITY=default"]


def test_what_failed_tests_printed_comes_last(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.20)
project(failing NONE)
enable_testing()
add_test(NAME good COMMAND echo fine)
add_test(NAME one/0 COMMAND sh -c "seq 100; echo first; false")
add_test(NAME one/02 COMMAND sh -c "echo second; false")
""")
    build = tmp_path / "build" / "release"
    for command in (["cmake", "-S", tmp_path, "-B", build], ["ctest", "--test-dir", build]):
        subprocess.run(command, capture_output=True, check=False)
    report = f"source {ROOT}/scripts/lib/build.sh; PUDICA_ROOT={tmp_path} pudica_report_failures"
    lines = subprocess.run(["bash", "-c", report + " release"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    first = lines.index("== one/0 failed; the end of what it printed:")
    second = lines.index("== one/02 failed; the end of what it printed:")
    assert "first" in lines[first:second] and "second" not in lines[first:second]
    assert "100" in lines and "1" not in lines and "fine" not in lines
    assert "second" in lines[second:]
    assert lines[-1] == "1 passed, 2 failed"
