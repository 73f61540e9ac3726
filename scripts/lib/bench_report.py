"""Runs one Google Benchmark program and reports median, p99 and spread of each case."""

import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys


def quantile(values, share):
    """The nearest-rank quantile: always a value that was seen."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summarize(benchmarks):
    """Rows by case from the repetitions in a benchmark's JSON; aggregates are left out."""
    times, units, counters = {}, {}, {}
    for entry in benchmarks:
        if entry.get("run_type") != "iteration" or entry.get("error_occurred"):
            continue
        name = entry["run_name"]
        times.setdefault(name, []).append(entry["real_time"])
        units[name] = entry["time_unit"]
        counters[name] = {
            key: value
            for key, value in entry.items()
            if isinstance(value, float) and key not in ("real_time", "cpu_time")
        }
    rows = []
    for name, values in times.items():
        median = quantile(values, 0.5)
        spread = (quantile(values, 0.75) - quantile(values, 0.25)) / median if median else 0.0
        rows.append({
            "name": name,
            "unit": units[name],
            "repetitions": len(values),
            "median": median,
            "p99": quantile(values, 0.99),
            "min": min(values),
            "max": max(values),
            "spread": spread,
            "counters": counters[name],
        })
    return rows


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
        "revision": first_line_of(["git", "rev-parse", "HEAD"], root),
        "modified": changed is not None,
    }


def run(options):
    command = [
        options.binary,
        "--benchmark_format=json",
        f"--benchmark_repetitions={options.repetitions}",
        f"--benchmark_filter={options.filter}",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {options.binary} failed with exit code {done.returncode}")
    try:
        return json.loads(done.stdout)["benchmarks"]
    except (json.JSONDecodeError, KeyError):
        sys.exit(f"bench: {options.binary} wrote no benchmark results")


def table(report):
    about = report["machine"]
    lines = [
        f"{about['processor']}, {about['cores']} cores, load {about['load_1min']:.2f}",
        f"revision {about['revision'] or 'unknown'}{' (modified)' if about['modified'] else ''}",
        "",
        f"{'case':<52} {'median':>12} {'p99':>12} {'spread':>8}",
    ]
    for row in report["cases"]:
        lines.append(f"{row['name']:<52} {row['median']:>9.3f} {row['unit']:<2} "
                     f"{row['p99']:>9.3f} {row['unit']:<2} {100 * row['spread']:>6.1f} %")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--filter", default=".")
    parser.add_argument("--json", help="file for the results")
    options = parser.parse_args()
    report = {"schema": "pudica.bench/1", "machine": machine(options.root)}
    report["benchmark"] = pathlib.Path(options.binary).name.removesuffix("_bench")
    report["cases"] = summarize(run(options))
    if not report["cases"]:
        sys.exit(f"bench: no case matches '{options.filter}'")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n",
                                              encoding="utf-8")
    print(table(report))


if __name__ == "__main__":
    main()
