"""Training under a byte budget: one line on any PyTorch model.

    import pudica
    handle = pudica.attach(model, budget="20GiB")

The training loop stays as it is, and so does every result, to the bit. See docs/python.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._between import between
from ._errors import (
    AttachError,
    BudgetError,
    ConfigError,
    NotLearnedError,
    PudicaError,
    RehearsalError,
    ShapeError,
    StateError,
)

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._attach import attach, policies
    from ._handle import Handle
    from ._layers import find_layers
elif os.environ.get("PUDICA_DISABLE") == "1":
    from ._inert import InertHandle as Handle

    def attach(model: Any, budget: Any = None, *unused: Any, **also_unused: Any) -> Handle:
        """An inert handle: PUDICA_DISABLE=1."""
        return Handle()

    def policies() -> list[str]:
        """None: PUDICA_DISABLE=1."""
        return []

    from ._layers import find_layers
else:
    from ._attach import attach, policies
    from ._handle import Handle
    from ._layers import find_layers
from ._rehearse import rehearse

__all__ = [
    "AttachError",
    "BudgetError",
    "ConfigError",
    "Handle",
    "NotLearnedError",
    "PudicaError",
    "RehearsalError",
    "ShapeError",
    "StateError",
    "__version__",
    "attach",
    "between",
    "find_layers",
    "policies",
    "rehearse",
]
