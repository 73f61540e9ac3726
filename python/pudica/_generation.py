"""generate() of Transformers in a rehearsal: it runs to its longest.

What ends it earlier are values, which mean nothing on the emulated device; the length is the
host's own. The memory of the longest is what a rehearsal is asked for.
"""

from __future__ import annotations

import functools
import threading
from typing import Any


class _Reached(threading.local):
    """Whether the criteria asked last saw the longest length; None: nobody knows."""

    longest: bool | None = None


def run_to_the_longest(module: Any) -> None:
    """`module` is transformers.generation.utils, just imported. One that is made otherwise than is
    known here stays as it is: a loop that never ends is noticed."""
    criteria: Any = getattr(module, "StoppingCriteriaList", None)
    mixin: Any = getattr(module, "GenerationMixin", None)
    goes_on: Any = getattr(mixin, "_has_unfinished_sequences", None)
    if not hasattr(criteria, "max_length") or goes_on is None:
        return
    ask, generate = criteria.__call__, mixin.generate
    reached = _Reached()

    @functools.wraps(ask)
    def asked(self: Any, input_ids: Any, *arguments: Any, **options: Any) -> Any:
        most = self.max_length
        reached.longest = None if most is None else input_ids.shape[-1] >= most
        return ask(self, input_ids, *arguments, **options)

    @functools.wraps(goes_on)
    def decided(self: Any, *arguments: Any, **options: Any) -> Any:
        longest, reached.longest = reached.longest, None
        if longest is None:
            return goes_on(self, *arguments, **options)
        return not longest

    @functools.wraps(generate)
    def begun(self: Any, *arguments: Any, **options: Any) -> Any:
        reached.longest = None  # one before may have ended by an error
        return generate(self, *arguments, **options)

    criteria.__call__ = asked
    mixin.generate = begun
    mixin._has_unfinished_sequences = decided
