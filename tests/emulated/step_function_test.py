"""pudica.rehearse(): the answer of `pudica rehearse` for a function that makes one step."""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys

import jsonschema
import pytest
import torch
from emulated_run import ROOT

import pudica
from rehearsed_programs import Net, lengths

PROGRAM = os.environ["PUDICA_CLI"]
SCHEMA = json.loads((ROOT / "docs/schemas/rehearsal.schema.json").read_text())
TIGHT = 1_395_864_371


def setup():
    model = Net().cuda()
    return model, torch.optim.AdamW(model.parameters())


def step(made, batch):
    model, optimizer = made
    model(batch["words"]).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def failing(made, batch):
    step(made, batch)
    raise ValueError("a mistake\nof the step")


def sized(made, batch):
    """The batch itself is what has to fit."""
    step(made, {"words": torch.zeros(batch, 8, dtype=torch.long, device="cuda")})


def batches(count=30):
    for length in lengths(count):
        yield {"words": torch.zeros(16, length, dtype=torch.long)}


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert list(folder.iterdir()) == []
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert children == []


def test_the_answer_is_that_of_the_command(tmp_path):
    answer = pudica.rehearse(step, batches(), memory=TIGHT, setup=setup)
    done = subprocess.run(
        [PROGRAM, "rehearse", "--json", "--memory", str(TIGHT), "--steps", "0", "--",
         sys.executable, str(ROOT / "tests/emulated/rehearsed_programs.py"), "plain"],
        capture_output=True, text=True, check=False, timeout=280,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}"})
    expected = json.loads(done.stdout)
    told = answer.to_dict()
    jsonschema.validate(told, SCHEMA)
    assert told["command"] == ["step"] and told["learned"] is None
    for field in ("steps", "memory_bytes", "budget_bytes", "fits_as_is", "fits_with_plan"):
        assert told[field] == expected[field], field
    assert not answer.fits_as_is and answer.fits_with_plan
    # A batch is held for the length of its step here.
    for peak in ("keep_all_peak", "planned_peak"):
        assert told[peak]["allocated_bytes"] == pytest.approx(
            expected[peak]["allocated_bytes"], rel=0.01)
    assert str(answer).startswith("Rehearsed    step\nOn           A100-80 with 1.3 GiB")
    assert "As it is     does not fit: out of memory in step 6" in str(answer)
    assert "as it is does not fit, with a plan fits" in repr(answer)
    page = answer._repr_html_()
    assert "step on A100-80 with 1.3 GiB" in page and page.count("<tr>") == 4 + 9


def test_it_is_drawn():
    pytest.importorskip("matplotlib")
    answer = pudica.rehearse(step, batches(5), setup=setup)
    assert answer.plot().get_xlabel() == "peak memory, MiB"


def test_errors_of_the_step_come_back_with_their_traceback():
    with pytest.raises(pudica.RehearsalError) as caught:
        pudica.rehearse(failing, batches(2), setup=setup)
    assert "the step function failed in the rehearsal: ValueError: a mistake" in str(caught.value)
    trace = str(caught.value.__cause__)
    assert "step_function_test.py" in trace and "in failing" in trace
    assert 'raise ValueError("a mistake\\nof the step")' in trace
    assert "_rehearsed.py" not in trace


def test_what_fits_nowhere_is_an_answer():
    answer = pudica.rehearse(sized, [16, 60_000], memory="1GiB", setup=setup)
    assert not answer.fits_as_is and not answer.fits_with_plan


def test_only_so_many_batches_are_taken():
    def endless():
        while True:
            yield {"words": torch.zeros(16, 8, dtype=torch.long)}

    assert pudica.rehearse(step, endless(), setup=setup, most_batches=3).to_dict()["steps"] == 3


@pytest.mark.parametrize(("options", "said"), [
    ({"batches": []}, "batches is empty"),
    ({"memory": "much"}, "--memory"),
    ({"budget": 0.5}, "budget is 0.5, a fraction of the device; expected bytes"),
    ({"budget": "0.5"}, "a fraction of the device"),
    ({"device": "K80"}, "--device is 'K80'; expected one of T4"),
])
def test_what_cannot_be_meant_is_said(options, said):
    arguments = {"batches": [{}], "setup": setup, **options}
    with pytest.raises(pudica.RehearsalError, match=said):
        pudica.rehearse(step, **arguments)


def test_a_package_without_the_emulated_device_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PUDICA_EMULATED_DIR", str(tmp_path))
    with pytest.raises(pudica.RehearsalError, match="no emulated device beside this program"):
        pudica.rehearse(step, batches(1), setup=setup)


def test_what_cannot_be_taken_along_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pudica.RehearsalError, match="cannot be taken into another process"):
        pudica.rehearse(lambda made, batch: step(made, batch), batches(1), setup=setup)


def test_functions_without_a_module_go_by_cloudpickle():
    if importlib.util.find_spec("cloudpickle") is None:
        pytest.skip("cloudpickle is not installed")
    answer = pudica.rehearse(lambda made, batch: step(made, batch), batches(3), setup=setup)
    assert answer.fits_as_is


def test_the_example_of_the_documentation(tmp_path):
    page = (ROOT / "docs/rehearse.md").read_text(encoding="utf-8")
    script = tmp_path / "example.py"
    script.write_text(page.split("```python\n")[1].split("```")[0])
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=280,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}"})
    assert done.returncode == 0, done.stderr
    assert "With a plan  fits" in done.stdout and "'with_plan': " in done.stdout


SCRIPT = """
import signal
import sys
import torch
import pudica
sys.path.append(sys.argv[1])
from rehearsed_programs import Net


def step(batch):
    if not isinstance(batch, torch.Tensor):
        with open(sys.argv[2], "w") as told:
            told.write("waiting")
        signal.pause()
    model = Net(layers=3).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    model(batch).mean().backward()
    optimizer.step()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in shells' background jobs
    words = torch.zeros(2, 8, dtype=torch.long)
    print(pudica.rehearse(step, [words if len(sys.argv) == 2 else "wait"]))
"""


def started(tmp_path, *words):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(ROOT / "tests/emulated"), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}"})


def test_a_script_rehearses_its_own_functions(tmp_path):
    with started(tmp_path) as script:
        out, errors = script.communicate(timeout=280)
    assert script.returncode == 0, errors
    assert "As it is     fits" in out and "Steps        1" in out


def test_ctrl_c_ends_all_of_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with started(tmp_path, str(pipe)) as script:
        assert pipe.read_text().startswith("waiting")
        script.send_signal(signal.SIGINT)
        _, errors = script.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and script.returncode != 0
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(pipe) not in lines
