"""The page in a real browser, over the stand-in daemon and, where it is built, over pudicad.

Every page must end without a console message, an exception or a request to another origin.
"""

import json
import os
import pathlib
import sys
import urllib.request

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tests/support"))

import chromium  # noqa: E402  (found through the line above)
import fake_daemon  # noqa: E402
import real_daemon  # noqa: E402

PUDICAD = os.environ.get("PUDICAD", "")


@pytest.fixture(scope="session")
def browser():
    if chromium.find() is None:
        pytest.skip("no Chromium is installed (Debian package chromium)")
    if not fake_daemon.CHART.is_file():
        pytest.skip(f"{fake_daemon.CHART} is missing (Debian package libjs-chart.js)")
    with chromium.Chromium() as started:
        yield started


@pytest.fixture(params=["stand-in", "pudicad"])
def daemon(request):
    if request.param == "stand-in":
        with fake_daemon.FakeDaemon() as served:
            yield served
    elif not PUDICAD:
        pytest.skip("PUDICAD does not name a daemon")
    else:
        with real_daemon.RealDaemon(PUDICAD) as served:
            yield served


@pytest.fixture
def open_page(browser, daemon):
    """open_page("#/runs/ID", width=360, scheme="dark") -> a page, judged at the end of the test."""
    opened = []

    def open_one(route="#/", **look):
        page = browser.page(**look)
        opened.append(page)
        page.open(f"{daemon.address}/{route}")
        return page

    yield open_one
    for page in opened:
        page.evaluate("1")  # what was under way is heard
        strangers = [url for url in page.requests if not url.startswith(daemon.address + "/")
                     and not url.startswith("about:")]
        problems = [text for text in page.problems
                    if not any(word in text for word in page.expected)]
        page.close()
        assert problems == []
        assert strangers == []


@pytest.fixture
def ask(daemon):
    """What the API says now, over the port that the page asks."""

    def get(path):
        with urllib.request.urlopen(daemon.address + path, timeout=30) as answer:
            return json.load(answer)

    return get
