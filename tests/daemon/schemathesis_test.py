"""The OpenAPI document against the daemon by schemathesis; over TCP, which only reads."""

import pytest
from pudicad import Daemon

schemathesis = pytest.importorskip(
    "schemathesis", minversion="4",
    reason="schemathesis 4 is not installed: fuzz_test.py is the check")
hypothesis = pytest.importorskip("hypothesis")


@pytest.fixture(name="daemon", scope="module")
def daemon_fixture():
    with Daemon("--listen", "127.0.0.1:0") as daemon:
        daemon.register("train", resume="train")
        yield daemon


def test_every_answer_is_as_documented(daemon):
    host, port = daemon.tcp()
    schema = schemathesis.openapi.from_url(f"http://{host}:{port}/v1/openapi.json")
    operations = [operation.ok() for operation in schema.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:

        @hypothesis.settings(max_examples=15, deadline=None, database=None, derandomize=True,
                             suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(case=operation.as_strategy())
        def check(case):
            if (case.query or {}).get("wait"):
                case.query["wait"] = 0
            response = case.call()
            assert response.status_code < 500 or response.status_code == 503, response.text
            schemathesis.checks.load_all_checks()
            case.validate_response(response, checks=[
                schemathesis.checks.CHECKS.get_one("status_code_conformance"),
                schemathesis.checks.CHECKS.get_one("content_type_conformance"),
                schemathesis.checks.CHECKS.get_one("response_schema_conformance")])

        check()
    assert daemon.alive()
