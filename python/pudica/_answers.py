"""Answers as dicts that print well."""

from __future__ import annotations

from typing import Any

from ._budget import format_bytes


def _seconds(value: float) -> str:
    if abs(value) >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms"


class Answer(dict[str, Any]):
    """What a shape needs. Keys: key, fits, predicted_peak_bytes, floor_peak_bytes (the least that
    any plan of the menu reaches, joint segments among them), keep_all_peak_bytes, extra_seconds,
    modes, frontier, all_full (every layer recomputed by itself, as gradient checkpointing does)."""

    def __str__(self) -> str:
        fits = "fits" if self["fits"] else "does not fit"
        modes = ", ".join(f"{count} {mode}" for mode, count in self["modes"].items())
        return (
            f"{self['key']} {fits} in {format_bytes(self['budget_bytes'])}: "
            f"{format_bytes(self['predicted_peak_bytes'])} with {modes}, "
            f"{_seconds(self['extra_seconds'])} extra a step; between "
            f"{format_bytes(self['floor_peak_bytes'])} (the least that any plan reaches) and "
            f"{format_bytes(self['keep_all_peak_bytes'])} (everything kept)"
        )


class Explanation(dict[str, Any]):
    """A plan layer by layer. Keys: key, fits, reason, predicted_peak_bytes, extra_seconds, layers:
    each layer, class, mode, held_bytes, keep_held_bytes, extra_seconds, why."""

    def __str__(self) -> str:
        lines = [
            f"{self['key']}: {self['reason']}",
            f"predicted peak {format_bytes(self['predicted_peak_bytes'])} of "
            f"{format_bytes(self['budget_bytes'])}, {_seconds(self['extra_seconds'])} extra",
            "",
            f"{'layer':>5}  {'mode':<12} {'held':>10} {'extra':>10}  why",
        ]
        lines += [
            f"{layer['layer']:>5}  {layer['mode']:<12} {format_bytes(layer['held_bytes']):>10} "
            f"{_seconds(layer['extra_seconds']):>10}  {layer['why']}"
            for layer in self["layers"]
        ]
        return "\n".join(lines)
