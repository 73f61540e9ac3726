"""Runs one benchmark program, and says in its report by which command and with which torch."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import origin


def torch_version():
    """Of the torch that was built against; None where the benchmarks were built without."""
    python = os.environ.get("PUDICA_PYTHON")
    preset = os.environ.get("PUDICA_PRESET")
    if not python or preset == "core" or (not preset and os.environ.get("PUDICA_TORCH") == "OFF"):
        return None
    # Not by importing it, which takes seconds.
    code = "from importlib.metadata import version; print(version('torch'))"
    return origin.output_of([python, "-c", code], None)


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
    name = pathlib.Path(options.binary).name.removesuffix("_bench")
    command = ["scripts/bench", name, *(["--calls", options.calls] if options.calls else [])]
    about = origin.origin(command, None, root=options.root)
    about["versions"]["torch"] = torch_version()
    machine = about["machine"]
    print(f"{machine['cpu']}, {machine['instruction_set']}, {machine['cores']} cores, "
          f"load {machine['load_1min']:.2f}\n"
          f"revision {about['revision'] or 'unknown'}{' (modified)' if about['modified'] else ''}, "
          f"{about['versions']['compiler'] or 'compiler unknown'}, "
          f"torch {about['versions']['torch'] or 'not used'}", flush=True)
    report = run(options)
    # What the program says of itself is of what was built: it wins, but for what it cannot know.
    versions = {**about["versions"], **report.get("versions", {})}
    versions["python"] = about["versions"]["python"]
    report = {**about, **report, "command": about["command"], "versions": versions}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n",
                                              encoding="utf-8")


if __name__ == "__main__":
    main()
