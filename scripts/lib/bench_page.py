"""Writes bench/results/README.md, the figures of every kept result, read from its file, and the
README's table of rivals."""

import os
import pathlib
import re
import sys

import bench_manifest
import rivals_report

INTRO = """# Results

Written by `scripts/bench --page` from the files here and from `bench/manifest.json`, which says
what is kept, by which command it is made and which code it speaks of. `scripts/bench --stale` lists
what is no longer true of the code, `scripts/bench --renew` measures that anew. Each file names
revision, machine, versions, seed, environment and spread. A result is valid for that machine and
that revision; machines are shared and noisy: read ratios of one file, not seconds of two.
"""


def number(value, digits=4):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, (int, float)):
        return f"{value:.{digits}g}" if abs(value) < 1e4 else f"{value:.0f}"
    if isinstance(value, list):
        between = ", " if any(isinstance(item, str) for item in value) else " to "
        return between.join(number(item) for item in value) or "none"
    return str(value)


def figure(value):
    """A measured value with its spread, where it has both."""
    if not isinstance(value, dict):
        return number(value)
    middle = value.get("median", value.get("p50"))
    text = f"{number(middle)} ({number(value['quartiles'])})" if "quartiles" in value else "-"
    return text + (f", p99 {number(value['p99'])}" if value.get("p99") is not None else "")


def at(result, path):
    """The value under a dotted path; None where a part of it is missing."""
    for key in path.split("."):
        if not isinstance(result, dict):
            return None
        result = result.get(key)
    return result


def percent(value):
    return "-" if value is None else f"{100 * value:.3f} %"


def of_policy(policy):
    """The cells of a policy's row."""
    prediction = policy.get("prediction") or {}
    left_out = (prediction.get("left_out") or {}).items()
    reasons = ", ".join(f"{count} {why}" for why, count in left_out if count)
    ended_well = policy["status"] == "ok"
    yield f"`{policy['name']}`"
    yield number(policy.get("cpu_time_vs_none")) if ended_well else policy["status"]
    yield number(policy.get("cpu_time_vs_none_quartiles")) if ended_well else "-"
    yield number(policy.get("budget_used"), 6)
    yield number(policy.get("overruns"))
    yield number(policy.get("revoked_steps"))
    yield (f"{percent(prediction['mean_abs_rel'])} / {percent(prediction['max_under'])}"
           if prediction else "-")
    yield f"{prediction['steps']}; {reasons or 'none'}" if "steps" in prediction else "-"


def trained(result):
    """A row a policy."""
    yield ("| policy | time over `none` (CPU clock) | of a step, quartiles | budget used "
           "| overruns | revoked steps | prediction: mean / most under "
           "| steps it is of; left out |")
    yield "|---|---|---|---|---|---|---|---|"
    for policy in result["policies"]:
        yield "| " + " | ".join(of_policy(policy)) + " |"
    digests = {policy["params_sha256"] for policy in result["policies"] if policy["params_sha256"]}
    yield ""
    yield (f"Different digests of the parameters after {result['steps']} steps: {len(digests)}. "
           "Time is that of the steps after the tenth.")


def measured(kept, result):
    yield "| case | median (quartiles) | p99 | values |"
    yield "|---|---|---|---|"
    for case in result["cases"]:
        if re.search(kept.cases, case["name"]):
            unit = f" {case['unit']}" if case["unit"] else ""
            yield (f"| {case['name']} | {number(case['median'])}{unit} "
                   f"({number(case.get('quartiles'))}) | {number(case.get('p99'))} "
                   f"| {case['calls']} |")


def figures(kept, result):
    yield "| | |"
    yield "|---|---|"
    for label, path in kept.figures.items():
        yield f"| {label} | {figure(at(result, path))} |"


def section(kept):
    yield f"\n## `{kept.name}.json`\n"
    yield f"{kept.about[0].upper()}{kept.about[1:]}. `{kept.command}`"
    result = kept.read()
    if not isinstance(result, dict):
        yield "\nNot measured."
        return
    machine = result.get("machine") or {}
    device = f"{result['device']}, " if "device" in result else ""
    yield (f"at {str(result.get('revision'))[:12]}, {result.get('date')}: {device}"
           f"{machine.get('cpu')}, "
           f"{machine.get('instruction_set')}, {machine.get('cores')} cores, "
           f"load {number(machine.get('load_1min'))} before it.\n")
    if result.get("benchmark") == "rivals":
        yield f"![time and memory of each]({kept.name}.svg)\n"
        yield from rivals_report.page(result)
    elif "policies" in result:
        yield from trained(result)
    elif "cases" in result:
        yield from measured(kept, result)
    else:
        yield from figures(kept, result)


def page(root):
    kept = bench_manifest.load(root)
    minutes = sum(entry.minutes for entry in kept if not entry.needs_card)
    lines = [INTRO + f"Renewing all takes about {minutes:g} minutes on two cores; what needs a "
             "card is made on one."]
    for entry in kept:
        lines += section(entry)
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- scripts/bench --page writes from here -->", "<!-- to here -->"


def readme(root, text):
    """The README with the table of what was measured last."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    kept = next(one for one in bench_manifest.load(root) if one.name == "rivals_quick")
    result = kept.read()
    machine, models = result["machine"], result["models"]
    budgets = " and ".join(f"{budget:g}" for budget in
                           sorted({cell["budget"] for cell in models["cells"]}))
    lines = [
        "", f"![time and memory of each](bench/results/{kept.name}.svg)", "",
        *rivals_report.short_table(models), "",
        f"{len(models['cells'])} Hugging Face models, budget at {budgets} between recomputing and "
        f"keeping every layer of the longest batch, {result['clock']}; {machine['cpu']}, torch "
        f"{result['versions']['torch']}, revision {result['revision'][:12]}, {result['date']}.", ""]
    return text[:begin] + "\n".join(lines) + text[end:]


def main(root):
    root = pathlib.Path(root)
    (root / "bench/results/README.md").write_text(page(root), encoding="utf-8")
    front = root / "README.md"
    if front.exists():  # not in a tree of results alone
        front.write_text(readme(root, front.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(os.environ.get("PUDICA_ROOT") or pathlib.Path(__file__).resolve().parents[2]))
