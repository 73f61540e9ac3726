"""What scripts/gpu_check found, as one result: OUT/result.json.

    gpu_result.py OUT REVISION_FILE ASKED
"""

import json
import pathlib
import sys

from gpu_values import fault_of
from origin import origin


def read(file):
    """None: that part did not run, or did not end."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def tests_of(folder):
    """Counts, and the names of those that failed."""
    found = {"passed": 0, "skipped": [], "failed": []}
    for log in sorted(folder.glob("*.log")):
        report = read(log.with_suffix(".json"))
        if report is None or report["failures"] or report["tests"] == 0:
            found["failed"].append(log.stem)
        elif any(test["result"] == "SKIPPED" for suite in report["testsuites"]
                 for test in suite["testsuite"]):
            found["skipped"].append(log.stem)
        else:
            found["passed"] += 1
    return found


def values_of(values):
    """Of gpu_values.py."""
    kinds = values["kinds"]
    found = [way for one in kinds for way in one.get("ways", {}).values()]
    ways = {way for one in kinds for way in one.get("ways", {})}
    return {"kinds": len(kinds), "ways": sorted(ways),
            "kinds_with_the_same_bits": sum(not fault_of(one) for one in kinds),
            "overruns": sum(way["overruns"] for way in found),
            "infeasible_steps": sum(way.get("infeasible_steps", 0) for way in found),
            "seen": kinds}


def steps_of(real, emulated):
    """Of gpu_steps.py: how many steps were told to the byte."""
    rows = real["steps"]
    planned = [row for row in rows if row["predicted"]]
    return {"budget_bytes": real["budget"], "steps": len(rows), "failures": real["failures"],
            "over_by_reserved": sum(row["reserved"] > real["budget"] for row in rows),
            "planned": len(planned),
            "largest_error": max((abs(row["in_use"] / row["predicted"] - 1) for row in planned),
                                 default=None),
            "as_on_the_emulated_device": sum(
                row["in_use"] == other["in_use"] for row, other in zip(rows, emulated["steps"])),
            "real": rows, "emulated": emulated["steps"]}


def main(out, revision_file, asked):
    import torch

    out, revision_file = pathlib.Path(out), pathlib.Path(revision_file)
    result = {"schema": "pudica.bench/1", "benchmark": "gpu_check",
              **origin(["scripts/gpu_check"], 1, "transformers"),
              "device": torch.cuda.get_device_name(0), "asked": asked}
    # Of the binaries: the tree may be a copy in a repository of its own.
    result |= read(revision_file) or {}
    if any((out / "tests").glob("*.log")):
        result["tests"] = tests_of(out / "tests")
    if (values := read(out / "values.json")) is not None:
        result["values"] = values_of(values)
    real, emulated = read(out / "steps_real.json"), read(out / "steps_emulated.json")
    if real and emulated:
        result["steps"] = steps_of(real, emulated)
    if (bits := read(out / "bits.json")) is not None:
        result["bits"] = bits["cases"]
    if (card := read(out / "card.json")) is not None:
        result["card"] = {"clock": card["clock"],
                          **{cell["name"]: cell for cell in card["cells"]}}
    file = out / "result.json"
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"gpu_check: {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
