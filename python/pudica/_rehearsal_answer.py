"""What a rehearsal answers, as an object that prints well."""

from __future__ import annotations

import copy
import html
from typing import Any

from ._budget import format_bytes

_CELL = "text-align:left;padding:0 1em 0 0"


def _table(rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        return "".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in cells)

    return f"<table>{''.join(f'<tr>{line(row)}</tr>' for row in rows)}</table>"


def _fits(value: bool | None) -> str:
    return "unknown" if value is None else "fits" if value else "does not fit"


def _bytes(value: int | None) -> str:
    return "unknown" if value is None else format_bytes(value)


def _largest(card: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {sizes['as_is']}, with a plan {sizes['with_plan']}"
        for name, sizes in card["largest"].items()
    )


def _doubt(doubt: dict[str, Any]) -> str:
    return " ".join(str(doubt[part]) for part in ("file", "line", "text") if part in doubt)


class Rehearsal:
    """The answer of rehearse(): prints as that of `pudica rehearse`."""

    def __init__(self, name: str, answer: dict[str, Any], page: str) -> None:
        self._name = name
        # Of the child process, and of the folder that went with it.
        self._answer = {**answer, "command": [name], "learned": None}
        own = ("Rehearsed", "Learned")
        lines = [line for line in page.splitlines() if not line.startswith(own)]
        self._page = "\n".join([f"Rehearsed    {name}", *lines])

    @property
    def fits_as_is(self) -> bool:
        """Measured: it trains on the card without pudica."""
        return bool(self._answer["fits_as_is"])

    @property
    def fits_with_plan(self) -> bool:
        """Measured: it trains attached, no step over the budget."""
        return bool(self._answer["fits_with_plan"])

    def to_dict(self) -> dict[str, Any]:
        """The fields of docs/schemas/rehearsal.schema.json."""
        return copy.deepcopy(self._answer)

    def plot(self, axes: Any = None) -> Any:
        """Draws what less memory costs at the longest batch with matplotlib, which must be
        installed; returns the axes."""
        from ._plot import plot_frontier

        points = [(int(p["peak_bytes"]), float(p["extra_seconds"]))
                  for p in self._answer["frontier"]]
        points.sort(key=lambda point: point[1])
        return plot_frontier(points, int(self._answer["budget_bytes"]), axes)

    def __str__(self) -> str:
        return self._page

    def __repr__(self) -> str:
        answer = self._answer
        return (f"<pudica.Rehearsal of {self._name} on {answer['card']}: as it is "
                f"{_fits(self.fits_as_is)}, with a plan {_fits(self.fits_with_plan)}>")

    def _repr_html_(self) -> str:
        answer = self._answer
        kept, planned = answer["keep_all_peak"], answer["planned_peak"] or {}
        ways = [
            ["", "", "allocated"],
            ["as it is", _fits(self.fits_as_is), _bytes(kept["allocated_bytes"])],
            ["with a plan", _fits(self.fits_with_plan), _bytes(planned.get("allocated_bytes"))],
            ["every layer recomputed", "", _bytes(answer["checkpointing"]["peak_bytes"])],
        ]
        cards = [["card", "as it is", "with a plan", "largest"]] + [
            [card["card"], _fits(card["fits_as_is"]), _fits(card["fits_with_plan"]), _largest(card)]
            for card in answer["cards"]
        ]
        doubts = "".join(f"<li>{html.escape(_doubt(doubt))}</li>" for doubt in answer["doubts"])
        title = f"{self._name} on {answer['card']} with {_bytes(answer['memory_bytes'])}"
        return (f"<b>{html.escape(title)}</b>{_table(ways)}{_table(cards)}"
                + (f"What this cannot know:<ul>{doubts}</ul>" if doubts else ""))
