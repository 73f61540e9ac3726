"""Lists the results under bench/results that are not true of the code as it is committed.

A line a result with the reason; nothing where all is well. Exit codes: 0 all is well, 1 some are
stale, 2 this tree cannot tell (no repository, or too little of its history).
"""

import functools
import os
import pathlib
import subprocess
import sys

import bench_code
import bench_manifest

KEYS = {"revision": str, "modified": bool, "command": str, "seed": int, "machine": dict,
        "versions": dict, "environment": dict}
MACHINE_KEYS = ("cpu", "cores", "memory_bytes", "instruction_set")
LEAST_FOR_P99 = 100  # values; the 99th percentile of fewer is simply their largest
VERSION_KEYS = ("compiler", "torch", "python")  # null where it plays no part


class Unknowable(Exception):
    """The tree does not hold what is needed to tell."""


class Repository:
    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        try:
            top = self.git("rev-parse", "--show-toplevel").strip()
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unknowable("this tree is no git repository (an exported one?): which code a "
                             "result is of cannot be told here") from error
        if pathlib.Path(top).resolve() != self.root:
            raise Unknowable("this tree is part of another repository: which code a result is of "
                             "cannot be told here")
        self.shallow = self.git("rev-parse", "--is-shallow-repository").strip() == "true"

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, check=True)
        return done.stdout.decode("utf-8", errors="replace")

    @functools.lru_cache(maxsize=None)
    def holds(self, revision):
        """Whether the commit is in the history of HEAD, so that a clone has it too."""
        try:
            self.git("merge-base", "--is-ancestor", revision, "HEAD")
        except subprocess.CalledProcessError:
            return False
        return True

    def blobs(self, revision, paths):
        """Object by path of the files under `paths`."""
        listed = self.git("ls-tree", "-r", "-z", revision, "--", *paths)
        return {line.partition("\t")[2]: line.partition("\t")[0].split()[2]
                for line in listed.split("\0") if line}

    def changed(self, revision, paths):
        """The files whose code differs between then and HEAD."""
        then, now = self.blobs(revision, paths), self.blobs("HEAD", paths)
        return [path for path in sorted(then.keys() | now.keys())
                if then.get(path) != now.get(path) and not self.same(then, now, path)]

    def same(self, then, now, path):
        texts = [self.text(blobs[path]) if path in blobs else "" for blobs in (then, now)]
        return bench_code.same_code(path, *texts)

    @functools.lru_cache(maxsize=None)
    def text(self, blob):
        return self.git("cat-file", "blob", blob)


def spread_in(value):
    """Whether a measured value has quartiles, or its least and most, somewhere."""
    if isinstance(value, dict):
        if {"min", "max"} <= value.keys() or any("quartiles" in key for key in value):
            return True
        return any(spread_in(item) for item in value.values())
    return isinstance(value, list) and any(spread_in(item) for item in value)


def missing_keys(result):
    missing = [key for key, kind in KEYS.items() if not isinstance(result.get(key), kind)]
    # A training of pudica-train has no Python in it.
    versions = VERSION_KEYS[:2] if "policies" in result else VERSION_KEYS
    for key, names in (("machine", MACHINE_KEYS), ("versions", versions)):
        held = result.get(key)
        if isinstance(held, dict):
            missing += [f"{key}.{name}" for name in names if name not in held]
    if not spread_in({key: value for key, value in result.items() if key != "machine"}):
        missing.append("a spread (quartiles, or min and max)")
    return missing


def false_p99(result):
    for case in result.get("cases", []):
        if case.get("p99") is not None and case.get("calls", 0) < LEAST_FOR_P99:
            return f"'{case['name']}' has a p99 of {case.get('calls', 0)} values"
    return ""


def reason(kept, repository):
    """Why the result is stale; empty where it is not."""
    result = kept.read()
    if result is None:
        return "not there; make it: scripts/bench --renew " + kept.name
    if isinstance(result, str):
        return result
    if missing := missing_keys(result):
        return "lacks " + ", ".join(missing)
    if wrong := false_p99(result):
        return wrong
    if result["command"] != kept.command:
        return f"made by '{result['command']}', and the manifest says '{kept.command}'"
    revision = result["revision"]
    if not repository.holds(revision):
        if repository.shallow:
            raise Unknowable(f"{kept.path}: this clone is shallow and does not reach {revision}; "
                             "git fetch --unshallow brings the rest")
        return f"made at {revision}, which the history of this branch does not hold"
    if result["modified"]:
        return f"made from a changed tree at {revision[:12]}"
    if changed := repository.changed(revision, kept.sources):
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"since {revision[:12]} changed: {changed[0]}{more}"
    return ""


def stale(root):
    """(kept result or None, line) of everything that is not as it should be."""
    manifest = bench_manifest.load(root)
    repository = Repository(root)
    found = [(kept, f"{kept.path}: {why}") for kept in manifest
             if (why := reason(kept, repository))]
    known = {kept.path for kept in manifest}
    for file in sorted((pathlib.Path(root) / "bench/results").glob("*.json")):
        if (path := f"bench/results/{file.name}") not in known:
            found.append((None, f"{path}: not in bench/manifest.json"))
    return found


def main(root):
    try:
        found = stale(root)
    except Unknowable as error:
        print(f"bench --stale: {error}", file=sys.stderr)
        return 2
    for _, line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(os.environ.get("PUDICA_ROOT") or pathlib.Path(__file__).resolve().parents[2]))
