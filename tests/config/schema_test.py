"""The JSON Schema accepts what the reader accepts: the default file, and no file of bad/."""

import json
import os
import pathlib

import jsonschema
import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
SCHEMA = json.loads((ROOT / "configs/pudica.schema.json").read_text())
FIXTURES = ROOT / "tests/fixtures/config"
# What no schema can say: that a key is repeated, or that two keys belong together.
BEYOND_SCHEMA = {"repeated_key.json", "warmup_order.json"}


def test_schema_is_itself_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_default_file_validates():
    jsonschema.validate(json.loads((ROOT / "configs/default.json").read_text()), SCHEMA)


def paths(pattern):
    found = sorted(FIXTURES.glob(pattern))
    assert found, f"no fixtures match {pattern}"
    return found


@pytest.mark.parametrize("path", paths("good/*.json"), ids=lambda path: path.name)
def test_good_files_validate(path):
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)


@pytest.mark.parametrize("path", paths("bad/*.json"), ids=lambda path: path.name)
def test_bad_files_are_refused(path):
    if path.name in BEYOND_SCHEMA:
        pytest.skip("the schema cannot express this rule")
    try:
        value = json.loads(path.read_text())
    except json.JSONDecodeError:
        return
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)
