"""`--format`: rows as the user spells them, of the fields that --json has."""

import pytest

from conftest import Cli, a_plan, a_run, api_example


def flattened(value, before=""):
    """The fields of an object, with points between levels."""
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from flattened(inner, before + name + ".")
        else:
            yield before + name


def test_a_format_is_one_line_each_of_its_fields(cli, daemon):
    daemon.runs = [a_run(), a_run(id="zz9", name="eval\tx\x1b[2J", last=None)]
    output = cli("status", "--format", r"{id}\t{name}:{peak_bytes} {{{last.seconds}}}\\")
    assert output.code == 0, output.stderr
    assert output.stdout == ("k3v9q2\ttrain:628000000 {0.25}\\\n"
                             "zz9\teval\\tx\\x1B[2J:628000000 {-}\\\n")
    assert cli("status", "zz9", "--format", "{id}").stdout == "zz9\n"
    assert cli.shown("status", "--format={step}") == "41\n41\n", "a terminal changes nothing"


def test_a_format_takes_the_fields_of_every_kind_of_row(cli, daemon):
    daemon.models = [{"fingerprint": "f1", "bytes": 7, "recorded_steps": 1, "distinct_shapes": 1,
                      "runs": 1, "updated_at": None, "taught_by": ["a", "b"]}]
    daemon.groups = [{"name": "gpu0", "total_bytes": 9, "pending_total_bytes": None,
                      "assigned_bytes": 3, "runs": []}]
    assert cli("plans", "--format", "{key} {plan.id} {plan.modes}").stdout == (
        "batch=12,source=384 7 full,full,keep,keep,keep,keep,keep,keep\n")
    assert cli("models", "--format", "{fingerprint} {taught_by}").stdout == "f1 a,b\n"
    assert cli("group", "--format", "{name} {assigned_bytes}").stdout == "gpu0 3\n"
    assert cli("group", "gpu0", "--format", "{name}").stdout == "gpu0\n"


def test_a_field_that_is_not_there_is_a_usage_error_that_lists_those_that_are(cli, daemon):
    for words in (["status"], ["status", "train"], ["plans"], ["models"], ["group"]):
        output = cli(*words, "--format", "{nmae}")
        assert output.code == 2 and output.stdout == "", words
        assert "no field 'nmae', expected one of: " in output.stderr
    assert "last.seconds" in cli("status", "--format", "{last.secs}").stderr
    daemon.runs = []  # nothing to look at
    assert cli("status", "--format", "{nmae}").code == 2
    assert cli("status", "--format", "{last.seconds}{versions}") .code == 0


def test_every_documented_field_is_known_where_no_row_shows_it(cli, daemon):
    daemon.runs, daemon.plans = [], []
    documented = set(flattened(api_example("run"))) - {"versions.pudica", "versions.torch"}
    output = cli("status", "--format", "".join("{%s}" % name for name in documented))
    assert output.code == 0, output.stderr
    daemon.runs = [a_run()]
    plan = set(flattened(a_plan())) - {"plan.teach_first_of_class"}
    assert cli("plans", "--format", "".join("{%s}" % name for name in plan)).code == 0


@pytest.mark.parametrize("given, said", [
    ("{id", "a brace is not closed"), ("id}", "a brace is not opened"), ("{}", "names no field"),
    (r"a\x", "a backslash is followed by"), ("\\", "a backslash is followed by"), ("", "expected"),
])
def test_a_format_that_makes_no_sense_is_refused_before_anybody_is_asked(folder, given, said):
    output = Cli(str(folder / "nobody.sock"))("status", "--format", given)
    assert output.code == 2 and said in output.stderr, output.stderr


def test_a_format_and_json_exclude_each_other(cli):
    output = cli("status", "--json", "--format", "{id}")
    assert output.code == 2 and "exclude each other" in output.stderr
