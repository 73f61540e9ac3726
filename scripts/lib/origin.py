"""Where a measured result comes from: revision, machine, versions, command, environment.

The keys are those that src/inspect/origin.cpp writes for results made in C++.
"""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

# They change what is measured.
VARIABLES = ("ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MKL_NUM_THREADS",
             "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "OMP_WAIT_POLICY")
# From the most that a processor may have to the least.
INSTRUCTION_SETS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "avx")


def output_of(command, cwd):
    """Standard output without its last line break; None where the command fails."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def measuring_environment():
    """What measurements run under; for programs that this process starts."""
    lines = (ROOT / "scripts/lib/measuring.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def revision(root):
    """(commit or None, whether the tree has changes beside bench/results or None)."""
    found = output_of(["git", "rev-parse", "--show-toplevel", "HEAD"], root)
    top, _, commit = (found or "").partition("\n")
    if not commit or pathlib.Path(top).resolve() != pathlib.Path(root).resolve():
        return None, None
    changes = output_of(["git", "status", "--porcelain", "--untracked-files=no", "--", ".",
                         ":(exclude)bench/results"], root)
    return commit, bool(changes)


def cpuinfo(name):
    path = pathlib.Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(rf"^{name}\s*: (.*)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def machine():
    flags = set((cpuinfo("flags") or "").split())
    sets = [name for name in INSTRUCTION_SETS if name in flags]
    return {
        "cpu": cpuinfo("model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "instruction_set": (sets[0] if sets else "none of avx") if flags else None,
        "system": " ".join((platform.system(), platform.release(), platform.machine())),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def compiler():
    """As src/inspect/origin.cpp names it, of the compiler that builds."""
    version = output_of(["c++", "-dumpfullversion"], ROOT)
    return f"g++ {version}" if version else None


def versions(*packages):
    """Of the compiler, Python, torch and further packages that are installed beside it."""
    found = {"compiler": compiler(), "python": platform.python_version()}
    for package in ("torch", *packages):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def origin(command, seed, *packages, root=ROOT):
    """`command`: its words, repository-relative; without the file that the result goes to."""
    words = [str(word).replace(f"{root}/", "") for word in command]
    while "--json" in words:
        at = words.index("--json")
        del words[at:at + 2]
    commit, modified = revision(root)
    environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {"revision": commit, "modified": modified, "date": datetime.date.today().isoformat(),
            "command": shlex.join(words), "seed": seed, "machine": machine(),
            "versions": versions(*packages), "environment": environment}
