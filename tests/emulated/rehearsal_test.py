"""`pudica rehearse`: scripts that know nothing of pudica get an answer, or a sentence why not."""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import jsonschema
import pytest

from emulated_run import ROOT, emulated

PROGRAM = os.environ["PUDICA_CLI"]
SCRIPT = ROOT / "tests/emulated/rehearsed_programs.py"
SCHEMA = json.loads((ROOT / "docs/schemas/rehearsal.schema.json").read_text())
RUN = (PROGRAM, "run", "--")
AMPLE, TIGHT, NONE = 4 << 30, 1_395_864_371, 922_746_880  # for `plain`


def environment(folder, **changes):
    package = os.environ.get("PUDICA_TEST_PACKAGES") or ROOT / "python"
    path = f"{package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), **changes}


def rehearsed(folder, *command, options=()):
    """What `pudica rehearse` of that command did in that folder."""
    done = subprocess.run(
        [PROGRAM, "rehearse", *map(str, options), "--", *map(str, command)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder, check=False,
        timeout=280, env=environment(folder))
    assert list(folder.glob("pudica-*")) == [], "a folder was left"
    return done


@pytest.fixture(name="rehearse")
def rehearse_fixture(tmp_path):
    """rehearse(words of the program, options=...): (exit code, answer or None, standard error)."""

    def run(*words, options=(), python=(sys.executable,), program=SCRIPT):
        done = rehearsed(tmp_path, *python, program, *words, options=["--json", *options])
        answer = json.loads(done.stdout) if done.stdout else None
        if answer is not None:
            jsonschema.validate(answer, SCHEMA)
        return done.returncode, answer, done.stderr

    return run


@pytest.fixture(scope="module", name="plain")
def plain_fixture(tmp_path_factory):
    """plain(memory): (answer, folder of --out) of all steps of `plain`, rehearsed once a memory."""

    @functools.cache
    def once(memory):
        folder = tmp_path_factory.mktemp("plain")
        done = rehearsed(folder, sys.executable, SCRIPT, "plain",
                         options=["--memory", memory, "--steps", 0, "--out", folder / "out"])
        assert done.returncode == 0, done.stderr
        assert (folder / "out" / "answer.txt").read_text().rstrip() == done.stdout.rstrip()
        answer = json.loads((folder / "out" / "answer.json").read_text())
        jsonschema.validate(answer, SCHEMA)
        return answer, folder / "out"

    return once


@functools.cache
def bare(*words, command=(), **changes):
    """What the same program measures by itself, or under a command, on the emulated device."""
    done = emulated(*command, sys.executable, SCRIPT, *words, **changes)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def kinds(answer):
    return {doubt["kind"] for doubt in answer["doubts"]}


def test_what_fits_as_it_is_was_measured_to_the_byte(plain):
    answer, _ = plain(AMPLE)
    assert answer["fits_as_is"] and answer["fits_with_plan"]
    alone = bare("measured", "plain", PUDICA_EMULATED_BYTES=str(AMPLE))
    assert answer["keep_all_peak"] == {"allocated_bytes": alone["allocated"],
                                       "reserved_bytes": alone["reserved"]}
    assert answer["doubts"] == [] and answer["steps"] == 30
    assert answer["longest"]["shape"] == "batch=16,length=248"
    assert answer["floor_peak"]["allocated_bytes"] < answer["longest"]["keep_all_peak_bytes"]


def test_a_plan_that_fits_is_the_one_that_the_run_makes(plain):
    answer, _ = plain(TIGHT)
    assert not answer["fits_as_is"] and answer["fits_with_plan"]
    alone = bare("measured", "plain", PUDICA_EMULATED_BYTES=str(TIGHT))
    assert answer["dies_as_is"]["step"] == alone["died_in_step"]
    assert answer["dies_as_is"]["shape"] == "batch=16,length=248"
    held = answer["dies_as_is"]["held"]
    assert sum(held.values()) == answer["dies_as_is"]["allocated_bytes"]
    assert 1.9 < held["optimizer"] / held["parameters"] < 2.1  # AdamW's two moments
    real = bare("measured", "plain", command=RUN, PUDICA_EMULATED_BYTES=str(TIGHT))
    assert answer["planned_peak"] == {"allocated_bytes": real["allocated"],
                                      "reserved_bytes": real["reserved"]}
    assert real["reserved"] <= answer["budget_bytes"]


def test_checkpointing_of_every_layer_stands_beside_the_plan(plain):
    answer, _ = plain(TIGHT)
    kept = bare("measured", "plain")
    again = bare("measured", "checkpointed")
    told = answer["checkpointing"]
    assert told["peak_bytes"] == pytest.approx(again["allocated"], rel=0.01)
    assert told["extra_flops_share"] == pytest.approx(again["flops"] / kept["flops"] - 1, rel=1e-6)
    planned = bare("measured", "plain", command=RUN, PUDICA_EMULATED_BYTES=str(TIGHT))
    assert answer["plan_extra_flops_share"] == pytest.approx(
        planned["flops"] / kept["flops"] - 1, rel=1e-6)
    assert 0 < answer["plan_extra_flops_share"] < told["extra_flops_share"]


def test_checkpointing_that_the_script_does_itself_is_not_counted_twice(rehearse, plain):
    answer, _ = plain(AMPLE)
    _, again, _ = rehearse("checkpointed", options=["--memory", AMPLE, "--steps", 0])
    assert again["checkpointing"]["extra_flops_share"] == pytest.approx(
        answer["checkpointing"]["extra_flops_share"])


def test_the_largest_sizes_that_fit_fit_and_larger_ones_do_not(rehearse):
    memory = 2 << 30
    _, answer, _ = rehearse("several_batches", options=["--memory", memory, "--steps", 0])
    shape = dict(part.split("=") for part in answer["longest"]["shape"].split(","))
    batch, length = int(shape["batch"]), int(shape["length"])
    assert answer["largest"]["batch"]["seen"] == [4, 16]

    def fits(*words, planned):
        command = [PROGRAM, "run", "--"] if planned else []
        done = emulated(*command, sys.executable, SCRIPT, "measured", "several_batches", *words,
                        PUDICA_EMULATED_BYTES=str(memory))
        assert done.returncode == 0, done.stderr
        return "allocated" in json.loads(done.stdout.splitlines()[-1])

    # As it is, the allocator may give back what it has reserved and not in use, and go on.
    peak = answer["keep_all_peak"]
    spared = peak["reserved_bytes"] / peak["allocated_bytes"]
    for way, planned, beyond in (("as_is", False, 1.1 * spared), ("with_plan", True, 1.2)):
        most = answer["largest"]["batch"][way]
        assert batch < most < answer["largest"]["batch"]["searched_up_to"]
        assert fits(most, length, planned=planned)
        assert not fits(int(most * beyond), length, planned=planned)
        longest = answer["largest"]["length"][way]
        assert fits(batch, longest, planned=planned)
        assert not fits(batch, int(longest * beyond), planned=planned)


FIXED, EXPANDABLE = "expandable_segments:False", "expandable_segments:True"


@pytest.mark.parametrize(("variable", "own"), [
    ("PYTORCH_CUDA_ALLOC_CONF", FIXED), ("PYTORCH_ALLOC_CONF", EXPANDABLE)])
def test_the_segments_that_reserve_less_are_advised(rehearse, monkeypatch, variable, own):
    monkeypatch.setenv(variable, f"garbage_collection_threshold:0.9,{own}")
    _, answer, _ = rehearse("plain", options=["--memory", TIGHT, "--steps", 12])
    told = answer["segments"]
    for kind, setting in (("fixed", FIXED), ("expandable", EXPANDABLE)):
        alone = bare("measured", "plain", 12, **{variable: setting})
        assert told[kind] == {"allocated_bytes": alone["allocated"],
                              "reserved_bytes": alone["reserved"]}
    assert told["expandable"]["reserved_bytes"] < 0.9 * told["fixed"]["reserved_bytes"]
    assert told["advice"] == "expandable"


def test_where_little_is_reserved_in_vain_no_segments_are_tried(rehearse, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", EXPANDABLE)
    _, answer, _ = rehearse("alike")
    told = answer["segments"]
    assert told["expandable"]["allocated_bytes"] > 0.95 * told["expandable"]["reserved_bytes"]
    assert told["fixed"] is None and told["advice"] == "either"


def test_a_script_that_sets_its_own_segments_is_not_advised(rehearse):
    _, answer, _ = rehearse("insisting", options=["--steps", 6])
    assert answer["segments"]["fixed"] is None and answer["segments"]["advice"] == "either"


def test_the_table_has_eight_cards(rehearse):
    _, answer, _ = rehearse("several_batches", options=["--steps", 12])
    cards = answer["cards"]
    assert len({card["card"] for card in cards}) == 8
    assert [card["memory_bytes"] >> 30 for card in cards] == [14, 15, 31, 23, 39, 79, 79, 139]
    for small, large in zip(cards, cards[1:]):
        if small["memory_bytes"] <= large["memory_bytes"]:
            assert small["largest"]["batch"]["as_is"] <= large["largest"]["batch"]["as_is"]


def test_a_script_that_imports_pudica_before_torch(rehearse):
    first = ("import runpy, sys, pudica; del sys.argv[0]; "
             "runpy.run_path(sys.argv[0], {}, '__main__')")
    code, answer, errors = rehearse("several_batches", python=(sys.executable, "-c", first))
    assert code == 0, errors
    assert answer["planned_peak"] is not None and answer["frontier"]


def test_a_python_without_pudica_is_told_so(rehearse, tmp_path, monkeypatch):
    (tmp_path / "pudica").mkdir()
    (tmp_path / "pudica" / "__init__.py").write_text("raise ImportError('not for this Python')\n")
    monkeypatch.setenv("PUDICA_TEST_PACKAGES", str(tmp_path))
    code, answer, errors = rehearse("plain")
    assert code == 1 and answer is None
    assert re.search(r"a rehearsal needs pudica in the command's own Python, and \S+ cannot import "
                     r"it: ImportError: not for this Python", errors.splitlines()[-1]), errors


def test_no_plan_fits_is_exit_code_4(rehearse):
    code, answer, _ = rehearse("plain", options=["--memory", NONE, "--steps", 0])
    assert code == 4 and not answer["fits_as_is"] and not answer["fits_with_plan"]
    assert answer["floor_peak"]["allocated_bytes"] > 0, "learned without the card's limit"


def test_a_fraction_lies_between_recomputing_and_keeping_the_longest_batch(rehearse):
    _, answer, _ = rehearse("plain", options=["--budget", "0.5", "--steps", 12])
    floor = answer["floor_peak"]["allocated_bytes"]
    keep_all = answer["keep_all_peak"]["allocated_bytes"]
    assert floor < answer["budget_bytes"] < keep_all
    assert answer["overruns"] == 0


def test_a_step_takes_what_its_products_take_at_the_rates_of_the_card(rehearse):
    def step_seconds(card):
        _, answer, _ = rehearse("alike", options=["--device", card])
        return answer["step_seconds"]

    flops = bare("measured", "alike")["flops"] / 4  # of a step
    slow, fast = step_seconds("V100"), step_seconds("H100")
    assert flops / 15.7e12 < slow < 3 * flops / 15.7e12
    assert 2 < slow / fast < 66.9 / 15.7


def test_a_budget_is_taken(rehearse):
    _, answer, _ = rehearse("plain", options=["--budget", "700MiB", "--steps", 12])
    assert answer["budget_bytes"] == 700 << 20
    assert answer["planned_peak"]["reserved_bytes"] <= 700 << 20
    assert kinds(answer) == {"stopped"}


@pytest.mark.parametrize(
    "program", ["accumulating", "own_function", "evaluating", "many_optimizers"])
def test_other_ways_to_train(rehearse, program):
    code, answer, _ = rehearse(program, options=["--steps", 0])
    assert code == 0 and answer["fits_as_is"]
    alone = bare("measured", program)
    assert answer["keep_all_peak"]["allocated_bytes"] == alone["allocated"]
    assert answer["planned_peak"] is not None and answer["frontier"]


def test_reads_are_named(rehearse):
    code, answer, _ = rehearse("reading", options=["--steps", 0])
    reads = [doubt for doubt in answer["doubts"] if doubt["kind"] == "read"]
    line = next(number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1)
                if "loss.item()" in text)
    assert code == 0 and len(reads) == 1
    assert reads[0]["file"].endswith("rehearsed_programs.py")
    assert (reads[0]["line"], reads[0]["count"]) == (line, 12)


def test_an_evaluation_that_reads_each_of_many_batches_ends_by_itself(rehearse):
    code, answer, errors = rehearse("evaluating_by_value", options=["--steps", 0])
    assert code == 0, errors
    assert [doubt["count"] for doubt in answer["doubts"] if doubt["kind"] == "read"] == [12_000]
    assert "the rehearsal waits for the end of a loop" in errors


def test_generating_goes_on_to_the_longest(rehearse):
    pytest.importorskip("transformers")
    code, answer, errors = rehearse("generating", options=["--steps", 0])
    assert code == 0, errors
    assert answer["steps"] == 2 and answer["frontier"], "of the training, which is planned"


def test_a_model_without_layers_is_measured_as_it_is(rehearse, tmp_path):
    folder = tmp_path / "answer"
    code, answer, errors = rehearse("without_layers", options=["--steps", 0, "--out", folder])
    assert code == 0, errors
    alone = bare("measured", "without_layers")
    assert answer["keep_all_peak"] == {"allocated_bytes": alone["allocated"],
                                       "reserved_bytes": alone["reserved"]}
    assert answer["steps"] == 8 and kinds(answer) == {"unattached"}
    assert json.loads((folder / "answer.json").read_text()) == answer
    assert (answer["frontier"], answer["largest"]) == ([], {})
    page = (folder / "answer.txt").read_text()
    assert "\nWith a plan  there is none: pudica attached to nothing\n" in page


def test_sampling_before_the_first_step_is_read_and_not_checked(rehearse):
    code, answer, errors = rehearse("sampling_first", options=["--steps", 0])
    assert code == 0, errors
    (read,) = (doubt for doubt in answer["doubts"] if doubt["kind"] == "read")
    assert read["count"] == 5 * 10, "those before the first forward with gradients among them"
    assert read["code"].startswith("drawn.append(int(") and "policy.sample()))" in read["code"]


@pytest.mark.parametrize(("program", "said"), [
    ("broken", "the command failed in the rehearsal, behind step 1, with exit code 1: "
               "ValueError: a mistake"),
    ("compiled", "the emulated device has no Triton, which torch.compile compiles for"),
    ("endless", r"a loop that reads values of the device at \S+rehearsed_programs.py:\d+ went on "
                "for 10000 reads without a step or anything new from the host; "),
    ("on_cpu", "the script trained on 'cpu'; expected a CUDA device"),
    ("no_such_program", "trained no model|the command failed in the rehearsal, behind step 0"),
])
def test_one_sentence_says_why_there_is_no_answer(rehearse, program, said):
    code, answer, errors = rehearse(program)
    assert code == 1 and answer is None
    assert re.search(said, errors.splitlines()[-1]), errors


def test_an_error_that_was_caught_is_a_doubt(rehearse):
    code, answer, _ = rehearse("catching", options=["--memory", "8GiB"])
    assert code == 0 and "caught" in kinds(answer)


def test_parts_that_are_compiled(rehearse):
    code, answer, errors = rehearse("compiled_parts")
    assert code == 0 and answer["fits_as_is"]
    assert "unplanned" not in kinds(answer) or "is not planned" in errors


def test_ranks_of_torchrun(rehearse):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", "2")
    code, answer, errors = rehearse("rank", python=launcher, options=["--devices", 2])
    assert code == 0, errors
    assert answer["ranks"] == 2 and answer["fits_with_plan"]


def test_what_was_learned_starts_a_run(plain):
    _, folder = plain(AMPLE)
    stats = bare("learning", command=(PROGRAM, "run", "--config", folder / "pudica.json", "--"),
                 PUDICA_EMULATED_BYTES=str(AMPLE))
    assert (stats["learning_steps"], stats["overruns"], stats["steps"]) == (0, 0, 30)


def test_a_signal_ends_it_and_nothing_is_left(tmp_path):
    with subprocess.Popen(
            [PROGRAM, "rehearse", "--steps", "0", "--", sys.executable, SCRIPT, "waiting"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(tmp_path)) as child:
        assert child.stderr is not None
        assert any(line == "waiting\n" for line in child.stderr)
        children = pathlib.Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children.split())
    assert list(tmp_path.glob("pudica-*")) == []


@pytest.mark.parametrize(("options", "said"), [
    (["--device", "H101"], "--device is 'H101'; expected one of T4"),
    (["--memory", "much"], "--memory"),
    (["--memory", "1MiB"], "which the context takes"),
    (["--budget", "much"], "--budget"),
    (["--steps", "-1"], "--steps"),
])
def test_bad_options_are_exit_code_2(rehearse, options, said):
    code, answer, errors = rehearse("plain", options=options)
    assert code == 2 and answer is None and said in errors


def test_a_command_that_cannot_start_is_exit_code_2(rehearse):
    code, _, errors = rehearse("x", python=("/nonexistent/python",))
    assert code == 2 and "cannot start '/nonexistent/python'" in errors
    assert subprocess.run([PROGRAM, "rehearse"], capture_output=True, check=False).returncode == 2


def test_the_page_says_the_same(plain):
    page = (plain(TIGHT)[1] / "answer.txt").read_text()
    assert "As it is     does not fit: out of memory in step 6 (batch=16,length=248)" in page
    assert "With a plan  fits\n" in page
    assert "none is measured" in page
    assert re.search(r"\nSegments     use PYTORCH_ALLOC_CONF=expandable_segments:True\n"
                     r"  reserves   1.5 GiB in fixed ones, .*\n  reserves   1.2 GiB in expandable",
                     page)
    assert re.search(r"\nEvery layer  recomputed, .*\n  needs      [\d.]+ MiB allocated at the "
                     r"longest batch \(predicted\)\n  costs      \d+\.\d % more FLOPs", page)


@pytest.mark.parametrize(("script", "package"), [
    ("train_loop.py", "torch"), ("finetune_trainer.py", "transformers"),
    ("finetune_lightning.py", "lightning")])
def test_examples(rehearse, tmp_path, script, package):
    pytest.importorskip(package)
    words = ["--device", "cuda"]
    if script == "finetune_trainer.py":
        words += ["--output", tmp_path / "out"]
    code, answer, errors = rehearse(*words, program=ROOT / "examples" / script,
                                    options=["--memory", "2GiB", "--steps", 12])
    assert code == 0, errors
    assert answer["fits_as_is"] and answer["steps"] == 12
