"""Makes results under bench/results anew, each by the command that bench/manifest.json gives it.

Without NAME: those that are stale. What takes long comes last. The page is written after each.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import bench_manifest
import bench_page
import bench_stale
from origin import revision


def command_of(kept, build, folder):
    """(words, the file that they leave the result in)."""
    program, *words = shlex.split(kept.command)
    out = folder / "result.json"
    if program == "pudica-train":
        return [str(build / "bin" / program), *words, "--out", str(folder)], out
    interpreter = [sys.executable] if program.endswith(".py") else []
    return [*interpreter, str(kept.root / program), *words, "--json", str(out)], out


def environment_of(root, build):
    python_path = str(root / "python")
    return {**os.environ, "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1",
            "PUDICA_NATIVE_LIBRARY": str(next(build.glob("python/libpudica_python.so"), ""))}


def renew(kept, build):
    """Seconds it took; raises RuntimeError with the reason where it was not made."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pudica-bench-") as name:
        words, out = command_of(kept, build, pathlib.Path(name))
        done = subprocess.run(words, cwd=kept.root, env=environment_of(kept.root, build),
                              check=False)
        if done.returncode != 0 or not out.exists():
            raise RuntimeError(f"{shlex.join(words)}: exit {done.returncode}")
        result = json.loads(out.read_text(encoding="utf-8"))
        result["command"] = kept.command
        whole = out.with_suffix(".whole")
        whole.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        shutil.move(whole, kept.root / kept.path)
        figure = out.with_suffix(".svg")
        if figure.exists():
            shutil.move(figure, (kept.root / kept.path).with_suffix(".svg"))
    return time.monotonic() - begin


def chosen(root, names):
    kept = {entry.name: entry for entry in bench_manifest.load(root)}
    if unknown := [name for name in names if name not in kept]:
        raise SystemExit(f"bench --renew: '{unknown[0]}' is not in bench/manifest.json; known: "
                         f"{' '.join(kept)}")
    if names:
        if on_a_card := [name for name in names if kept[name].needs_card]:
            raise SystemExit(f"bench --renew: '{on_a_card[0]}' needs a CUDA device: "
                             f"{kept[on_a_card[0]].command} --help")
        return [entry for entry in kept.values() if entry.name in names]
    return [entry for entry, _ in bench_stale.stale(root)
            if entry is not None and not entry.needs_card]


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench --renew", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if revision(options.root)[1] is not False:
        raise SystemExit("bench --renew: the tree has changes, or is no repository: a result of it "
                         "would name code that nobody else has; commit first")
    wanted = chosen(options.root, options.names)
    print(f"{len(wanted)} results, about {sum(entry.minutes for entry in wanted):g} minutes on two "
          "cores", flush=True)
    failed = 0
    for entry in wanted:
        print(f"\n== {entry.name}: {entry.command}", flush=True)
        try:
            print(f"{entry.path}: {renew(entry, options.build):.0f} s", flush=True)
            bench_page.main(options.root)
        except (RuntimeError, OSError, ValueError) as error:
            failed += 1
            print(f"bench --renew: {entry.name}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
