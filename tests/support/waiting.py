"""The one way in which tests wait for what another process does and tells nobody.

Where there is something to wait on (a pipe, a pidfd, a line of output), wait on that instead."""

import time

PATIENCE_S = 60  # only what is broken takes as long; nothing else follows from it
_PAUSE_S = 0.02


def wait_for(what, condition, patience_s=PATIENCE_S):
    """The first true value of `condition()`; fails naming `what` where there is none."""
    deadline = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {patience_s} s for {what}"
        time.sleep(_PAUSE_S)
