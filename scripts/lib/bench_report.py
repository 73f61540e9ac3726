"""Runs one benchmark program and adds the machine to its report."""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile


def first_line_of(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def processor():
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def machine(root):
    changed = first_line_of(["git", "status", "--porcelain", "--untracked-files=no"], root)
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "compiler": first_line_of(["c++", "--version"], root),
        "torch": torch_version(),
        "revision": first_line_of(["git", "rev-parse", "HEAD"], root),
        "modified": changed is not None,
    }


def torch_version():
    """Of the torch that was built against; None where the benchmarks were built without."""
    python = os.environ.get("PUDICA_PYTHON")
    preset = os.environ.get("PUDICA_PRESET")
    if not python or preset == "core" or (not preset and os.environ.get("PUDICA_TORCH") == "OFF"):
        return None
    # Not by importing it, which takes seconds.
    code = "from importlib.metadata import version; print(version('torch'))"
    return first_line_of([python, "-c", code], None)


def run(options):
    """The program's own report, with what it prints passed on to the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        command = [options.binary, "--json", str(path)]
        if options.calls:
            command += ["--calls", str(options.calls)]
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            sys.exit(f"bench: {options.binary} failed with exit code {done.returncode}")
        return json.loads(path.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--json", help="file for the results")
    options = parser.parse_args()
    about = machine(options.root)
    print(f"{about['processor']}, {about['cores']} cores, load {about['load_1min']:.2f}, "
          f"revision {about['revision'] or 'unknown'}{' (modified)' if about['modified'] else ''}\n"
          f"{about['compiler'] or 'compiler unknown'}, torch {about['torch'] or 'not used'}",
          flush=True)
    report = run(options)
    report["machine"] = about
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n",
                                              encoding="utf-8")


if __name__ == "__main__":
    main()
