"""What cannot be run is refused with exit code 2, before any training, in words that help."""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])


def check_refused(done, *words):
    assert done.code == 2, f"exit code {done.code}: {done.stderr}"
    for word in words:
        assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"
    assert "step 1/" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("options, words", [
    ({"policy": "pudicaa"}, ["--policy", "'pudicaa'", "expected", "did you mean 'pudica'"]),
    ({"policy": "none,mimose:rule=x"}, ["--policy", "'rule'", "'x'", "paper or code"]),
    ({"policy": "pudica:menu=keep+x"}, ["--policy", "'menu'", "'keep+x'", "selective"]),
    ({"policy": "every_n:n=0"}, ["--policy", "'n'", "'0'"]),
    ({"policy": "sac:save=mm+"}, ["--policy", "'save'", "'mm+'", "names of operators"]),
    ({"policy": "sac:save=adm_m"}, ["policy 'sac'", "'adm_m'", "operator that torch knows"]),
    ({"policy": "none,,full"}, ["--policy", "'none,,full'", "expected policy names"]),
    ({"policy": "full,full"}, ["--policy", "'full'", "once"]),
    ({"model": "huge"}, ["--model", "'huge'", "mini, small or base"]),
    ({"model": "mini,layer=3"}, ["--model", "layer", "layers hidden heads"]),
    ({"model": "mini,layers=x"}, ["--model", "layers", "'x'", "an integer from 1"]),
    ({"model": "mini,hidden=33"}, ["--model", "hidden=33", "heads=2"]),
    ({"model": "mini,dtype=fp8"}, ["--model", "dtype", "'fp8'", "fp32 or bf16"]),
    ({"model": "mini,vocab=100"}, ["--model", "vocab=100", "256"]),
    ({"batch": "0"}, ["--batch", "'0'", "an integer from 1"]),
    ({"steps": "0"}, ["--steps", "'0'", "an integer from 1"]),
    ({"max_length": "0"}, ["--max-length", "'0'"]),
    ({"device": "tpu"}, ["--device", "'tpu'", "cpu or cuda"]),
    ({"name": "n" * 101}, ["--name", "101 characters", "at most 100"]),
    ({"warmup_mode": "fast"}, ["--warmup-mode", "'fast'", "revocable or sheltered"]),
    ({"data": "words.txt"}, ["--data", "'words.txt'", "text:FILE"]),
], ids=lambda value: "".join(value.values()) if isinstance(value, dict) else value[0])
def test_bad_values_are_named(train, options, words):
    check_refused(train(**{"steps": 2, **options}), *words)


@pytest.mark.parametrize("words, expected", [
    (["--no-such-option", "3"], "--no-such-option"),
    (["stray"], "stray"),
    (["--seed"], "--seed"),
])
def test_bad_command_lines_point_to_the_help(train, words, expected):
    check_refused(train(*words), expected, "--help")


@pytest.mark.parametrize("content, words", [
    ('{"budgget": "1GiB"}', ["budgget", "unknown key", "nearest known key is budget"]),
    ('{"cache": {"capacity": -1}}', ["cache.capacity", "-1", "expected"]),
    ('{"budget": "1GiB",', ["line 1", "syntax error"]),
    ("[]", ["expected"]),
])
def test_bad_configurations_name_file_and_key(train, tmp_path, content, words):
    path = tmp_path / "config.json"
    path.write_text(content)
    check_refused(train(config=path, steps=2, policy="full"), str(path), *words)


def test_a_rule_of_the_menu_that_names_no_operator_is_named(train, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"planner": {"keep_operators": ["aten::ad_mm"]}}')
    run = train(config=path, steps=2, policy="pudica", budget="1GiB")
    assert run.code != 0
    assert "'aten::ad_mm'" in run.stderr + run.stdout


def test_unreadable_configurations_are_named(train, tmp_path):
    for path in (tmp_path / "missing.json", tmp_path):
        check_refused(train(config=path, steps=2, policy="full"), str(path), "cannot be read")


def test_out_must_be_a_folder_that_can_be_written(train, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    check_refused(train(out=file, steps=2, policy="full"), "--out", str(file))
    check_refused(train(out=file / "below", steps=2, policy="full"), "--out", str(file / "below"))
    assert file.read_text() == "mine"
    check_refused(train(out="/proc/pudica", steps=2, policy="full"), "--out", "/proc/pudica")
    check_refused(train("--out=", steps=2, policy="full"), "--out", "expected")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(train, tmp_path):
    tmp_path.chmod(0o500)
    check_refused(train(out=tmp_path, steps=2, policy="full"), "--out", str(tmp_path))


@pytest.mark.parametrize("option", ["state", "record"])
def test_files_to_write_need_a_folder(train, tmp_path, option):
    path = tmp_path / "missing" / "file"
    check_refused(train(**{option: path}, steps=2, policy="pudica"), f"--{option}", str(path))


def test_out_may_exist_and_hold_files(train, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "result.json").write_text("old")
    done = train(out=tmp_path, steps=1, max_length=32, policy="full")
    assert done.code == 0, done.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert done.result["schema"] == "pudica.result/1"


def test_out_is_made_with_its_parents(train, tmp_path):
    done = train(out=tmp_path / "a" / "b", steps=1, max_length=32, policy="full")
    assert done.code == 0, done.stderr
    assert done.result["steps"] == 1


def test_of_a_repeated_option_the_later_wins(train):
    done = train("--steps", "2", "--policy", "full", "--seed", "9", "--batch", "3",
                 "--max-length", "32", "--model", "mini,hidden=16,layers=2",
                 steps="zero", policy="nonsense", seed=4, max_length=64)
    assert done.code == 0, done.stderr
    result = done.result
    assert (result["steps"], result["seed"], result["data"]["batch"]) == (2, 9, 3)
    assert result["data"]["max_length"] == 32
    assert (result["model"]["hidden"], result["model"]["layers"]) == (16, 2)
    assert list(done.policies) == ["full"]


@pytest.mark.parametrize("option, word", [("--help", "--policy"), ("--version", "pudica-train ")])
def test_help_and_version_go_to_stdout(train, option, word):
    done = train(option)
    assert done.code == 0
    assert word in done.stdout and done.stderr == ""
    assert not done.out.exists()


@pytest.mark.parametrize("document", ["docs/man/pudica-train.1", "docs/pudica-train.md"])
def test_every_option_is_documented(train, document):
    help_text = train("--help").stdout
    options = set(re.findall(r"(?m)^ +(?:-\w,)?(--[a-z-]+)", help_text)) - {"--help", "--version"}
    assert {"--name", "--budget", "--record"} <= options
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\-", "-")
    assert [option for option in sorted(options) if option not in text] == []
