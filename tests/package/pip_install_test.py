"""`pip install .` into an environment of its own, then the package from there: no build tree, no
PYTHONPATH, the programs on the environment's path."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

torch = pytest.importorskip("torch")
SOURCE = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
BUILD_LIMIT_S = 1500

PROGRAM = """
import torch
import pudica
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
plain = [p.detach().clone() for p in model.parameters()]
with pudica.attach(model, budget="1GiB", layers=[torch.nn.Linear], daemon=False) as handle:
    for length in (8, 24, 16, 40):
        model(torch.randn(2, length, 64)).pow(2).mean().backward()
    stats = handle.stats()
assert stats["failures"] == 0 and stats["steps"] == 3, stats  # the last one is still open
print(pudica.__file__)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("pip") / "env"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    # What is installed beside this test, torch among it, is there too; torch is gigabytes.
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = pathlib.Path(sysconfig.get_path("purelib", vars=scheme))
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*pip, str(SOURCE)], env=bare(), capture_output=True, text=True, timeout=BUILD_LIMIT_S
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder


def bare() -> dict[str, str]:
    """The environment's variables without what leads to a build tree."""
    hides = ("PYTHONPATH", "LD_LIBRARY_PATH")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in hides and not name.startswith("PUDICA_")
    }


def run(environment: pathlib.Path, *command: str, cwd: pathlib.Path) -> str:
    program = str(environment / "bin" / command[0])
    done = subprocess.run(
        [program, *command[1:]], env=bare(), cwd=cwd, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_package_trains(environment: pathlib.Path, tmp_path: pathlib.Path) -> None:
    where = run(environment, "python", "-c", PROGRAM, cwd=tmp_path).strip()
    assert pathlib.Path(where).is_relative_to(environment)


def needed(library: pathlib.Path) -> list[str]:
    """The libraries that it names."""
    done = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)


def libraries(environment: pathlib.Path) -> pathlib.Path:
    (folder,) = environment.glob("lib/python*/site-packages/pudica/lib")
    return folder


@pytest.mark.skipif(torch.version.cuda is None, reason="this torch is not built for CUDA")
def test_the_cuda_part_is_inside_and_loads(
    environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    library = libraries(environment) / "libpudica_torch_cuda.so"
    assert "libc10_cuda.so" in needed(library)
    load = "import ctypes, sys, pudica; ctypes.CDLL(sys.argv[1]); print('loaded')"
    assert run(environment, "python", "-c", load, str(library), cwd=tmp_path) == "loaded\n"


def test_the_rest_does_not_need_cuda(environment: pathlib.Path) -> None:
    for name in ("libpudica_torch.so", "libpudica_python.so"):
        names = needed(libraries(environment) / name)
        assert "libtorch_cpu.so" in names
        assert not [name for name in names if "cuda" in name], names


@pytest.mark.parametrize("program", ["pudica", "pudicad", "pudica-train"])
def test_the_programs_start(
    environment: pathlib.Path, program: str, tmp_path: pathlib.Path
) -> None:
    assert run(environment, program, "--version", cwd=tmp_path).strip()


def test_its_tests_pass_from_a_clone(environment: pathlib.Path) -> None:
    tests = ["python/tests/test_prediction.py", "python/tests/test_left_out.py"]
    ended = run(environment, "python", "-m", "pytest", "-q", *tests, cwd=SOURCE)
    assert "passed" in ended and "failed" not in ended
