#!/usr/bin/env python3
"""Rules about the code that no compiler checks; prints what breaks them, exit code 1 if any does.

Rules: layers, lengths, ascii, printing, sleeps, leftovers, unnamed sources, config keys, machine
paths, header form. With --compile-headers every private header is compiled alone as well.
"""

import argparse
import pathlib
import subprocess
import sys
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))

import tidy_layers  # noqa: E402  (found through the line above)
import tidy_rules  # noqa: E402

SKIPPED_FOLDERS = {".git", ".cache", ".venv", "__pycache__", "build", "shared"}
TEXT_SUFFIXES = {".h", ".cpp", ".cu", ".py", ".sh", ".cmake", ".txt", ".md", ".json", ".in",
                 ".toml", ".yml", ".yaml", ""}


class File(typing.NamedTuple):
    path: str  # relative to the root, with /
    text: str


def names_in(root):
    """Tracked and new files where the root is a checkout, else every file below it."""
    if (root / ".git").exists():
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, capture_output=True, check=True)
        return sorted(name.decode() for name in done.stdout.split(b"\0") if name)
    found = []
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        if path.is_file() and not SKIPPED_FOLDERS.intersection(relative.parts):
            found.append(relative.as_posix())
    return sorted(found)


def read_files(root):
    files = []
    for name in names_in(root):
        path = root / name
        # Deleted but not yet committed, links, data.
        if not path.is_file() or path.is_symlink() or name.startswith("data/"):
            continue
        if path.suffix not in TEXT_SUFFIXES:
            continue
        try:
            files.append(File(name, path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # not text
    return files


def check(root):
    """All findings in the tree, sorted: 'path:line: what'."""
    files = read_files(root)
    findings = []
    for rule in (tidy_layers.layers, *tidy_rules.RULES):
        findings.extend(rule(files))
    return sorted(set(findings))


def compile_headers(root):
    """Findings for private headers that do not compile alone; those that need torch are not tried.
    """
    findings = []
    for name in names_in(root):
        private = name.startswith(("src/", "predictor/", "plan_cache/", "tests/support/"))
        if not private or not name.endswith(".h"):
            continue
        if name.startswith(("src/torch/", "src/train/", "src/cuda/")):
            continue
        command = ["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", "include", "-I", "src",
                   "-I", ".", "-I", "tests", "-include", name, "/dev/null"]
        if pathlib.Path("/usr/include/eigen3").exists():
            command[1:1] = ["-isystem", "/usr/include/eigen3"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "failed")
            findings.append(f"{name}:1: does not compile alone: {first}")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--compile-headers", action="store_true")
    options = parser.parse_args()
    findings = check(options.root)
    if options.compile_headers:
        findings += compile_headers(options.root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
