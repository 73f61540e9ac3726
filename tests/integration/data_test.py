"""What the batches are made of: text, one length, two lengths, the end of an epoch; bad files."""

import os
import pathlib

import pytest

DATA = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"]) / "data"
POLICIES = "none,full,pudica"


def shapes(run, policy="none"):
    return [tuple(map(int, row["shape"].split("x"))) for row in run.rows[policy]]


def check_same_training(run, *names):
    assert run.code == 0, run.stderr
    for name in names or POLICIES.split(","):
        assert run.policies[name]["status"] == "ok", run.policies[name]["detail"]
    assert len(run.digests()) == 1
    assert None not in run.digests()


@pytest.fixture(scope="module")
def two_lengths(train):
    return train(data=f"lengths:{DATA / 'multi30k_en_de.csv'}", max_length=24, steps=12, batch=4,
                 policy="none,full,mimose,pudica,oracle", budget=0.5)


def test_two_lengths_train_alike_within_the_budget(two_lengths, result_validator):
    check_same_training(two_lengths, "none", "full", "pudica", "oracle")
    result_validator.validate(two_lengths.result)
    for name in ("full", "pudica", "oracle"):
        assert two_lengths.policies[name]["overruns"] == 0
        assert two_lengths.policies[name]["budget_used"] <= 1
    assert two_lengths.result["data"]["file"] == "multi30k_en_de.csv"
    assert two_lengths.result["data"]["max_length"] == 24


def test_two_lengths_are_two_dimensions_of_the_key(two_lengths):
    keys = shapes(two_lengths)
    assert {len(key) for key in keys} == {3}
    assert all(key[0] == 4 and 1 <= key[1] <= 24 and 1 <= key[2] <= 24 for key in keys)
    assert len({key[1] for key in keys}) > 1 and len({key[2] for key in keys}) > 1
    planned = {plan["shape"] for plan in two_lengths.plans("pudica")["plans"]}
    assert planned <= {row["shape"] for row in two_lengths.rows["pudica"]}
    assert any(shape.count("x") == 2 for shape in planned)


@pytest.mark.parametrize("columns, expected", [
    (":b,a", (3, 21, 9)), (":b", (3, 21)), ("", (3, 7))])
def test_columns_are_read_as_named(train, tmp_path, columns, expected):
    path = tmp_path / "three.csv"
    path.write_text("a,len,b\n9,5,11\n3,7,21\n2,6,12\n")
    done = train(data=f"lengths:{path}{columns}", steps=2, batch=3, policy="full")
    assert done.code == 0, done.stderr
    assert shapes(done, "full") == [expected, expected]


@pytest.fixture(scope="module")
def short_last_batch(train, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "five.csv"
    path.write_text("len\n10\n20\n30\n40\n50\n")
    return train(data=f"lengths:{path}", steps=8, batch=2, policy=POLICIES, budget=0.6)


def test_the_last_batch_of_an_epoch_is_short(short_last_batch):
    check_same_training(short_last_batch)
    keys = shapes(short_last_batch)
    assert [key[0] for key in keys] == [2, 2, 1, 2, 2, 1, 2, 2]
    for epoch in (keys[:3], keys[3:6]):  # the longest example is in one batch of each epoch
        assert max(length for _, length in epoch) == 50
        assert {length for _, length in epoch} <= {10, 20, 30, 40, 50}
    assert short_last_batch.policies["pudica"]["budget_used"] <= 1


def test_a_batch_larger_than_the_data_is_the_data(train, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("len\n11\n22\n")
    done = train(data=f"lengths:{path}", steps=3, batch=4, policy="full")
    assert done.code == 0, done.stderr
    assert shapes(done, "full") == [(2, 22)] * 3


def test_lines_of_text_are_examples_of_their_bytes(train, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("abc\r\n\nzw\xf6lf\n".encode() + b"\xff\x00tail")
    done = train(data=f"text:{path}", steps=2, batch=3, policy="full")
    assert done.code == 0, done.stderr
    assert shapes(done, "full") == [(3, 6), (3, 6)]


def test_the_seed_chooses_batches_and_parameters(train):
    runs = [train(steps=2, max_length=40, policy="full", seed=seed) for seed in (7, 7, 8)]
    digests = [run.policies["full"]["params_sha256"] for run in runs]
    assert digests[0] == digests[1] != digests[2]


@pytest.fixture(scope="module")
def plain(train):
    return train(steps=8, max_length=64, policy="full")


@pytest.mark.parametrize("key, value", [("attention", "math"), ("dtype", "bf16"),
                                        ("dropout", "0")])
def test_variants_of_the_model_train_alike(train, plain, result_validator, key, value):
    done = train(steps=8, max_length=64, policy="full,pudica", budget=0.5,
                 model=f"mini,hidden=32,layers=4,{key}={value}")
    check_same_training(done, "full", "pudica")
    result_validator.validate(done.result)
    assert done.result["model"][key] == (0 if key == "dropout" else value)
    assert done.policies["pudica"]["budget_used"] <= 1
    assert done.digests().isdisjoint(plain.digests())
    if key == "attention":  # whose scores are kept
        assert done.result["keep_all_bytes"] > plain.result["keep_all_bytes"]


@pytest.mark.parametrize("content, words", [
    ("len\n12\nx7\n", ["line 3", "column len", "'x7'", "expected an integer"]),
    ("src_len,tgt_len\n4,5\n6\n", ["line 3", "column tgt_len", "''", "expected"]),
    ("len\n12\n-4\n", ["line 3", "'-4'"]),
    ("len\n99999999999999999999\n", ["line 2", "'99999999999999999999'"]),
    ("length\n12\n", ["line 1", "'length'", "len"]),
    ("len\n", ["no line"]),
])
def test_bad_lengths_name_the_place(train, tmp_path, content, words):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    done = train(data=f"lengths:{path}", steps=2)
    assert done.code == 2, done.stderr
    for word in ["--data", str(path), *words]:
        assert word in done.stderr
    assert not done.out.exists()


def test_a_missing_column_is_named(train):
    done = train(data=f"lengths:{DATA / 'qqp.csv'}:length", steps=2)
    assert done.code == 2
    for word in ["--data", "'length'", "len,q1_len,q2_len"]:
        assert word in done.stderr


@pytest.mark.parametrize("kind", ["text", "lengths"])
def test_what_cannot_be_read_is_refused(train, tmp_path, kind):
    for path in (tmp_path / "missing", tmp_path):
        done = train(data=f"{kind}:{path}", steps=2)
        assert done.code == 2, done.stderr
        assert "--data" in done.stderr and str(path) in done.stderr


def test_an_empty_text_is_refused(train, tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text("\n\n")
    done = train(data=f"text:{path}", steps=2)
    assert done.code == 2
    assert "--data" in done.stderr and "no line with text" in done.stderr


def test_two_lengths_need_two_layers(train):
    done = train(data=f"lengths:{DATA / 'multi30k_en_de.csv'}", model="mini,layers=1", steps=2)
    assert done.code == 2
    assert "--model" in done.stderr and "layers=1" in done.stderr
