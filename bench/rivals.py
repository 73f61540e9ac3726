"""Every system of the field that this repository has, working, beside pudica: one run, the same
seeds, the same digest of parameters.

traces: pudica-train over the committed lengths, all its policies. models: Hugging Face models under
pudica's policies, gradient_checkpointing=True, torch.utils.checkpoint on every n-th layer and
selectively, and torch.compile with a memory budget. A cell is a trace or a model, a budget and a
seed; within it every row trains in a process of its own, one step each in turn. A budget is a
fraction between what the longest batch needs with every layer recomputed and with every layer kept.

With --json FILE a table (.md) and a figure (.svg) are written beside it, made from it alone; with
--from FILE they are made of a result that is there.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "bench")]

import rivals_models  # noqa: E402
import rivals_report  # noqa: E402
import rivals_traces  # noqa: E402
from origin import measuring_environment, origin  # noqa: E402

# What is asked of each form: ten minutes on two cores, or all that can be said.
FORMS = {
    "quick": {
        "traces": {"traces": ["SQuAD 384", "QQP", "Alpaca"], "budgets": [0.2, 0.6], "seeds": [1],
                   "steps": 40, "model": "mini"},
        "models": {"models": list(rivals_models.MODELS), "budgets": [0.4], "seeds": [1],
                   "steps": 32, "layers": 4, "hidden": 64, "compiled": ["encoder (BERT)"]},
    },
    "full": {
        "traces": {"traces": list(rivals_traces.TRACES), "budgets": [0.1, 0.2, 0.4, 0.8],
                   "seeds": [1, 2, 3], "steps": 40, "model": "small"},
        "models": {"models": list(rivals_models.MODELS), "budgets": [0.2, 0.5, 0.8],
                   "seeds": [1, 2, 3], "steps": 60, "layers": 6, "hidden": 128,
                   "compiled": list(rivals_models.MODELS)},
    },
}
LEAST_STEPS = {"traces": 11, "models": rivals_models.WARMUP + 3}


def words(text):
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(kind, expected):
    def read(text):
        try:
            return [kind(word) for word in words(text)]
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' seen, expected {expected}") from None

    return read


def read_options():
    parser = argparse.ArgumentParser(
        prog="rivals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten minutes on two cores")
    parser.add_argument("--part", choices=["traces", "models"], help="only this one")
    parser.add_argument("--policies", type=words, help="only these; default: all there are")
    parser.add_argument("--traces", type=words, help=f"of {', '.join(rivals_traces.TRACES)}")
    parser.add_argument("--models", type=words, help=f"of {', '.join(rivals_models.MODELS)}")
    parser.add_argument("--budgets", type=numbers(float, "fractions such as 0.2,0.5"))
    parser.add_argument("--seeds", type=numbers(int, "integers such as 1,2,3"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--compiled", type=words, help="models that torch.compile gets too, "
                        "minutes each; default: all, in the quick form the first")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--from", type=pathlib.Path, dest="source", metavar="FILE")
    options = parser.parse_args()
    for given, known in ((options.traces, rivals_traces.TRACES),
                         (options.models, rivals_models.MODELS),
                         (options.compiled, rivals_models.MODELS)):
        if unknown := [name for name in given or [] if name not in known]:
            parser.error(f"'{unknown[0]}' seen, expected some of {', '.join(known)}")
    if not all(0 <= budget <= 1 for budget in options.budgets or []):
        parser.error(f"--budgets {options.budgets}: expected fractions from 0 to 1")
    for part, least in LEAST_STEPS.items():
        if options.part in (None, part) and options.steps and options.steps < least:
            parser.error(f"--steps {options.steps}: expected at least {least}")
    return options


def form_of(part, options):
    """The options of one part, as the form has them and as they were given."""
    form = dict(FORMS["quick" if options.quick else "full"][part])
    for name in form:
        if (given := getattr(options, name, None)) is not None:
            form[name] = given
    return argparse.Namespace(**form, policies=options.policies)


def say(line):
    print(line, file=sys.stderr, flush=True)


def measure(options):
    form = FORMS["quick" if options.quick else "full"]
    seeds = options.seeds or form["traces"]["seeds"]
    result = {"schema": "pudica.bench/1", "benchmark": "rivals",
              **origin(["bench/rivals.py", *sys.argv[1:]], seeds[0], "transformers"),
              "clock": "CPU time of each process, one thread",
              "form": "quick" if options.quick else "full"}
    for part, module in (("traces", rivals_traces), ("models", rivals_models)):
        if options.part not in (None, part):
            continue
        asked = form_of(part, options)
        cells = module.run(asked, say)
        ours = rivals_report.OURS if part == "traces" else f"policy {rivals_report.OURS}"
        result[part] = {"base": module.BASE,
                        "asked": {key: value for key, value in vars(asked).items() if value},
                        "cells": cells, "summary": rivals_report.summary(cells, ours)}
    return result


def write(result, path):
    """The result, and its table and figure beside it."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    table = "\n".join(rivals_report.page(result)) + "\n"
    path.with_suffix(".md").write_text(table, encoding="utf-8")
    path.with_suffix(".svg").write_text(rivals_report.figure(result), encoding="utf-8")


def main():
    options = read_options()
    if options.source:
        result = json.loads(options.source.read_text(encoding="utf-8"))
        write(result, options.json or options.source)
        return
    os.environ.update(measuring_environment())  # of the workers, which begin as new programs
    with tempfile.TemporaryDirectory(prefix="pudica-rivals-") as cache:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # workers start no processes
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        try:
            result = measure(options)
        except RuntimeError as error:  # a policy that there is none of, a program that failed
            raise SystemExit(f"bench/rivals.py: {error}") from None
    if options.json:
        write(result, options.json)
    print("\n".join(rivals_report.page(result)))


if __name__ == "__main__":
    main()
