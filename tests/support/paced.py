"""A training that goes on only as its test reads on: it ends no sooner than the test wants."""

import fcntl
import os
import select
import threading

import pytest

from waiting import PATIENCE_S

_PIPE_BYTES = 4096  # the least that Linux gives: a training is a few steps ahead of its reader


class PacedRecord:
    """`path` is for --record: a pipe."""

    def __init__(self, folder):
        self.path = folder / "paced-record"
        os.mkfifo(self.path)
        self._end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._closing, self._close = os.pipe()
        self._wanted = self._seen = 0
        self._reader = None

    def pass_steps(self, count):
        """Returns when `count` more steps were made."""
        self._wanted += count
        while self._seen < self._wanted:
            ready, _, _ = select.select([self._end], [], [], PATIENCE_S)
            assert ready, f"{self._seen} steps, then none for {PATIENCE_S} s"
            piece = os.read(self._end, _PIPE_BYTES)
            assert piece, f"it ended after {self._seen} steps"
            self._seen += piece.count(b"\n")
        return True

    def let_go(self):
        """From now on the training waits for nobody."""
        assert self._seen > 0, "nobody has opened the pipe yet"
        self._reader = threading.Thread(target=self._read_all)
        self._reader.start()

    def _read_all(self):
        while self._closing not in select.select([self._end, self._closing], [], [])[0]:
            if not os.read(self._end, _PIPE_BYTES):
                return

    def close(self):
        os.close(self._close)
        if self._reader is not None:
            self._reader.join()
        os.close(self._closing)
        os.close(self._end)


@pytest.fixture
def paced_record(tmp_path):
    """For test files to import."""
    record = PacedRecord(tmp_path)
    yield record
    record.close()
