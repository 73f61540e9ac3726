"""A handle that does nothing, without the native library: with PUDICA_DISABLE=1, and what a copy or
a pickle of a handle is."""

from __future__ import annotations

from typing import Any


class InertHandle:
    """Answers as a Handle of a model that never ran a step."""

    budget = 0
    attached = False

    def __init__(self, why: str = "switched off by PUDICA_DISABLE=1") -> None:
        self.layers: list[Any] = []
        self._why = why

    def set_budget(self, budget: Any) -> None:
        """Does nothing."""

    def stats(self) -> dict[str, Any]:
        last = {"shape": "", "peak_bytes": 0, "base_bytes": 0, "host_peak_bytes": 0,
                "active_peak_bytes": 0, "reserved_peak_bytes": 0,
                "predicted_reserved_bytes": None, "gap_bytes": 0, "revocations": 0,
                "predicted_peak_bytes": None, "layer_calls": 0, "recomputed_layers": 0,
                "recomputed_calls": 0, "recompute_seconds": None, "step_seconds": 0.0,
                "learning": False, "reason": ""}
        return {"steps": 0, "learning_steps": 0, "unplanned_steps": 0, "resting_steps": 0,
                "layer_calls": 0,
                "recomputed_layers": 0, "recomputed_calls": 0, "recompute_seconds": 0.0,
                "step_seconds": 0.0, "revocations": 0, "revoked_steps": 0, "overruns": 0,
                "infeasible_steps": 0,
                "highest_peak_bytes": 0, "host_peak_bytes": 0, "reserved_peak_bytes": 0,
                "budget_bytes": 0, "budget_fraction": None, "budget_range": None,
                "policy": "none", "failures": 0,
                "state": "disabled", "layers": 0, "last_step": last, "daemon": None}

    def plans(self) -> list[dict[str, Any]]:
        return []

    def snapshot(self) -> dict[str, Any]:
        return {}

    def _unknown(self, *unused: Any, **also_unused: Any) -> Any:
        from ._errors import NotLearnedError

        raise NotLearnedError(f"nothing is learned: this handle is {self._why}")

    explain = estimate = frontier = plot = _unknown

    def save(self, path: Any) -> None:
        """Does nothing."""

    def load(self, path: Any) -> None:
        """Does nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Does nothing."""

    def detach(self) -> None:
        """Does nothing."""

    def __enter__(self) -> InertHandle:
        return self

    def __exit__(self, *unused: object) -> None:
        """Does nothing."""

    def __repr__(self) -> str:
        return f"<pudica.Handle, {self._why}>"
