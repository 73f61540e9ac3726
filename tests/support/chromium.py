"""Drives a headless Chromium over its DevTools protocol through a pipe, without dependencies.

    with Chromium() as browser:
        page = browser.page(width=1600, scheme="dark")
        page.open("http://127.0.0.1:8080/")
        page.wait_for("document.querySelectorAll('.run-card').length === 3")
"""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DEADLINE_S = 30
TRAMPOLINE = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])"""
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37,
        "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find():
    """The path of an installed Chromium, None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class ProtocolError(Exception):
    """The browser refused a command, or the page threw while evaluating."""


class Chromium:
    """One browser process with its own profile; ends with the `with` block."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="pudica-chromium-")
        self._ids = 0
        self._buffer = b""
        self._pages = {}
        words = [find(), "--headless=new", "--remote-debugging-pipe", "--no-first-run",
                 "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                 "--force-color-profile=srgb", f"--user-data-dir={self._profile.name}"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium refuses to run as root with it
        commands, answers = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands[0], answers[1])]
        self._log = open(pathlib.Path(self._profile.name) / "stderr", "wb")
        self._process = subprocess.Popen(
            [sys.executable, "-c", TRAMPOLINE, *map(str, high), *words], pass_fds=high,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        for end in (*high, commands[0], answers[1]):
            os.close(end)
        self._write_end, self._read_end = commands[1], answers[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProtocolError, OSError):
            self.call("Browser.close")
        for end in (self._write_end, self._read_end):
            os.close(end)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._profile.cleanup()

    def call(self, method, session=None, **parameters):
        self._ids += 1
        wanted = self._ids
        message = {"id": wanted, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write_end, data):]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._next(deadline)
            if answer is None:
                raise ProtocolError(f"{method}: no answer in {DEADLINE_S} s")
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise ProtocolError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self, deadline):
        """The next message; events go to their page first. None: the deadline has passed."""
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read_end], [], [], left)[0]:
                return None
            piece = os.read(self._read_end, 1 << 20)
            if not piece:
                raise ProtocolError("the browser has ended")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        page = self._pages.get(message.get("sessionId"))
        if page is not None and "method" in message:
            page.hear(message["method"], message["params"])
        return message

    def listen(self, seconds):
        """Hears events until nothing comes for `seconds`."""
        while self._next(time.monotonic() + seconds) is not None:
            pass

    def page(self, **look):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.look(**look)
        return page


class Page:
    """One tab. `problems`: console errors, warnings, exceptions; `requests`: every address."""

    def __init__(self, browser, session, target):
        self._browser = browser
        self._session = session
        self._target = target
        self.problems = []
        self.requests = []
        self.statuses = {}
        self.expected = []  # words of problems that a test brings about

    def call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def hear(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in (
                "error", "warning", "assert"):
            words = [str(one.get("value", one.get("description"))) for one in parameters["args"]]
            self.problems.append(" ".join(words))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            entry = parameters["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}".strip())
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Network.responseReceived":
            self.statuses[parameters["response"]["url"]] = parameters["response"]["status"]

    def look(self, width=1600, height=1000, scheme="light", reduced_motion=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        motion = "reduce" if reduced_motion else "no-preference"
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion}])

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression):
        """The value of the expression; a promise's once it is settled."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ProtocolError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait_for(self, condition, seconds=DEADLINE_S):
        """Waits until the expression is true, and returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(condition)
            except ProtocolError:
                value = None  # the document is being replaced
            if value not in (None, False, 0, ""):  # an element is {} here
                return value
            if time.monotonic() > deadline:
                text = self.evaluate("document.body ? document.body.innerText : ''") or ""
                raise AssertionError(f"not within {seconds} s: {condition}\nproblems: "
                                     f"{self.problems}\npage: {text[:1500]}")
            self._browser.listen(0.05)

    def press(self, key, shift=False, control=False):
        code = KEYS[key]
        text = {"text": "\r"} if key == "Enter" else {}
        modifiers = (8 if shift else 0) | (2 if control else 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers,
                      windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path, clip=None):
        """The whole page as PNG, or (left, top, width, height) of it."""
        area = {}
        if clip is not None:
            area["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                          **area)
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))

    def close(self):
        self._browser.call("Target.closeTarget", targetId=self._target)
