"""The budget's grammar, its two ends, and budgets that nothing fits in."""

import pytest

POLICIES = "none,full,pudica"
RUN = {"steps": 8, "max_length": 64, "policy": POLICIES}


@pytest.fixture(scope="module")
def at_floor(train):
    return train(budget="0.0", **RUN)


@pytest.fixture(scope="module")
def at_keep_all(train):
    return train(budget="1.0", **RUN)


def test_fraction_zero_is_the_floor_and_still_trains(at_floor):
    assert at_floor.code == 0, at_floor.stderr
    assert at_floor.result["budget_bytes"] == at_floor.result["floor_bytes"]
    for name in ("full", "pudica"):
        assert at_floor.policies[name]["status"] == "ok", at_floor.policies[name]["detail"]
        assert at_floor.policies[name]["budget_used"] <= 1
        assert at_floor.policies[name]["overruns"] == 0
    assert at_floor.policies["none (capped)"]["status"] == "oom"


def test_fraction_one_keeps_all_and_capping_none_changes_nothing(at_keep_all):
    result, policies = at_keep_all.result, at_keep_all.policies
    assert at_keep_all.code == 0, at_keep_all.stderr
    assert result["budget_bytes"] == result["keep_all_bytes"]
    assert {policy["status"] for policy in policies.values()} == {"ok"}
    assert policies["none (capped)"]["budget_used"] == 1
    # Nothing is left of the budget for its margin: pudica may recompute a layer, or two in part.
    learnt = [row for row in at_keep_all.rows["pudica"] if row["learning"] == "0"]
    assert learnt
    assert {row["recomputed_layers"] for row in learnt[1:]} <= {"0", "1", "2"}
    assert at_keep_all.policies["pudica"]["recomputed_share"] < 0.1


def test_the_budget_changes_memory_and_not_the_training(at_floor, at_keep_all):
    assert at_floor.digests() == at_keep_all.digests()
    assert len(at_floor.digests()) == 1


@pytest.mark.parametrize("text, expected_bytes", [
    ("2MiB", 2 << 20), ("0.0025GB", 2_500_000), ("2500000", 2_500_000)])
def test_bytes_are_taken_as_given(train, text, expected_bytes):
    done = train(budget=text, steps=1, max_length=64, policy="full")
    assert done.code == 0, done.stderr
    assert done.result["budget_bytes"] == expected_bytes
    assert done.policies["full"]["budget_used"] == (
        done.policies["full"]["peak_bytes"] / expected_bytes)


def test_a_budget_below_the_floor_is_out_of_memory_in_words(train, result_validator):
    done = train(budget="100KiB", **RUN)
    assert done.code == 0, done.stderr
    result_validator.validate(done.result)
    assert done.result["budget_bytes"] < done.result["floor_bytes"]
    assert done.policies["none"]["status"] == "ok"
    for name in ("none (capped)", "full", "pudica"):
        policy = done.policies[name]
        assert policy["status"] == "oom" and policy["oom"] is True
        assert "budget" in policy["detail"]
        assert f"{name}: oom after" in done.stderr
    assert "did not finish" in done.stdout


@pytest.mark.parametrize("text", ["1.5", "nan", "inf", "-0.5", "0.5.5", "600 apples", "0",
                                  "99999999999999GiB"])
def test_what_is_no_budget_is_refused(train, text):
    done = train(f"--budget={text}", **RUN)
    assert done.code == 2, done.stderr
    assert "--budget" in done.stderr and f"'{text}'" in done.stderr
    assert "expected bytes (600MiB, 1.5GB, an integer) or a fraction" in done.stderr
    assert not done.out.exists()


def test_argument_over_environment_over_file_over_default(train, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"budget": "3MiB"}')
    small = {"steps": 1, "max_length": 32, "policy": "full"}
    from_file = train(config=config, **small)
    from_environment = train(config=config, env={"PUDICA_BUDGET": "4MiB"}, **small)
    from_argument = train(config=config, env={"PUDICA_BUDGET": "4MiB"}, budget="5MiB", **small)
    named_by_environment = train(env={"PUDICA_CONFIG": str(config)}, **small)
    seen = [run.result["budget_bytes"] >> 20
            for run in (from_file, from_environment, from_argument, named_by_environment)]
    assert seen == [3, 4, 5, 3]


def test_a_bad_budget_in_the_environment_is_refused(train):
    done = train(env={"PUDICA_BUDGET": "plenty"}, steps=2, policy="full")
    assert done.code == 2
    assert "BUDGET" in done.stderr.upper() and "'plenty'" in done.stderr
