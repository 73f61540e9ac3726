"""What bench/rivals.py measured, in sums, as a table and as a figure: all from its cells alone."""

import html
import math
import statistics

OURS = "pudica"
WIDTH, HEIGHT, LEFT, TOP, ROW = 920, 330, 70, 52, 22
COLOURS = ("#b3261e", "#1f6feb", "#2e7d32", "#9a6700", "#6f42c1", "#0b7285", "#ad1457", "#57606a",
           "#5d4037", "#37474f", "#c2410c", "#3949ab")


# -- sums ------------------------------------------------------------------------------------


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def spread(values):
    """The geometric mean with the quartiles over cells; None of no values."""
    if not values:
        return None
    low, _, high = (statistics.quantiles(values, n=4, method="inclusive")
                    if len(values) > 1 else (values[0],) * 3)
    return {"mean": round(geometric_mean(values), 4),
            "quartiles": [round(low, 4), round(high, 4)]}


def time_of(row):
    """Over the base of its cell; None where it did not end well."""
    if row["status"] != "ok":
        return None
    if "time_of_plain" in row:
        return row["time_of_plain"]["total"]
    return row["cpu_time_vs_none"]


def names_in(cells):
    """The rows of all cells, in the order of the first that has each."""
    return list(dict.fromkeys(name for cell in cells for name in cell["rows"]))


def _rows(cells, name):
    return [(cell, cell["rows"][name]) for cell in cells if name in cell["rows"]]


def times(cells, name):
    return [time for _, row in _rows(cells, name) if (time := time_of(row)) is not None]


def against(cells, name, other):
    """Ratios to another row, of the cells in which both ended well."""
    pairs = [(time_of(row), time_of(cell["rows"][other])) for cell, row in _rows(cells, name)
             if other in cell["rows"]]
    return [own / theirs for own, theirs in pairs if own is not None and theirs is not None]


def place_of_peak(cells, name):
    """Where between floor (0) and keep-all (1) of its cell the highest peak lies."""
    return [(row["peak_bytes"] - cell["floor_bytes"]) / (cell["keep_all_bytes"] -
                                                         cell["floor_bytes"])
            for cell, row in _rows(cells, name) if row["status"] == "ok" and row["peak_bytes"]]


def summary(cells, ours):
    """By row: how many cells ended well, time over the base, the same over our row's, the peak's
    place, and in how many cells the budget was exceeded."""
    found = {}
    for name in names_in(cells):
        rows = [row for _, row in _rows(cells, name)]
        ended = [row for row in rows if row["status"] == "ok"]
        places = place_of_peak(cells, name)
        used = [row["budget_used"] for row in ended if row["budget_used"] is not None]
        found[name] = {
            "cells": len(rows), "ended_well": len(ended),
            "time": spread(times(cells, name)),
            "time_over_ours": spread(against(cells, name, ours)),
            "peak_place_median": round(statistics.median(places), 4) if places else None,
            "cells_over_budget": sum(share > 1 for share in used) if used else None,
            "other_numbers": sum(not row["same_parameters"] for row in ended),
            "by_budget": {f"{budget:g}": spread(times(
                [cell for cell in cells if cell["budget"] == budget], name))
                for budget in sorted({cell["budget"] for cell in cells})},
        }
    return found


# -- the table -------------------------------------------------------------------------------


def _ratio(value):
    if value is None:
        return "-"
    low, high = value["quartiles"]
    return f"{value['mean']:.3f} ({low:.3f} to {high:.3f})"


def _count(value):
    return "-" if value is None else str(value)


def _numbers(row):
    if row["ended_well"] == 0:
        return "-"
    return "the same" if row["other_numbers"] == 0 else f"others in {row['other_numbers']}"


def table(part):
    """Lines of Markdown."""
    budgets = list(next(iter(part["summary"].values()))["by_budget"])
    yield "| | ended well | time over " + part["base"] + " | over pudica's | " + " | ".join(
        f"at {budget}" for budget in budgets) + " | peak's place | cells over budget | numbers |"
    yield "|---" * (7 + len(budgets)) + "|"
    for name, row in part["summary"].items():
        at = [f"{value['mean']:.3f}" if (value := row["by_budget"][budget]) else "-"
              for budget in budgets]
        place = row["peak_place_median"]
        yield "| " + " | ".join([
            f"`{name}`", f"{row['ended_well']} of {row['cells']}", _ratio(row["time"]),
            _ratio(row["time_over_ours"]), *at, "-" if place is None else f"{place:.2f}",
            _count(row["cells_over_budget"]), _numbers(row),
        ]) + " |"


# Of the README's table: what users would take instead, and what pudica comes from.
SHORT = ("gradient_checkpointing=True", "torch checkpoint, every 2", "torch selective checkpoint",
         "policy mimose", "policy dtr", "policy pudica")


def short_table(part):
    """Lines of Markdown: those of SHORT that were measured."""
    yield f"| | time over {part['base']} | peak's place | cells over budget | numbers |"
    yield "|---|---|---|---|---|"
    for name in SHORT:
        if (row := part["summary"].get(name)) is None:
            continue
        place = row["peak_place_median"]
        yield (f"| `{name.removeprefix('policy ')}` | {_ratio(row['time'])} | "
               f"{'-' if place is None else f'{place:.2f}'} | {_count(row['cells_over_budget'])} "
               f"of {row['cells']} | {_numbers(row)} |")


NOTES = """Times are CPU times of all steps behind the warm-up, which is not in them (traces: the
first ten; models: the first twelve), geometric means over the cells that ended well, with
the quartiles over cells; a row that ended in fewer cells was spared those that cost it most. Over
pudica's: of the cells in which both ended well. Peak's place: the highest peak between that of
recomputing every layer (0) and that of keeping every layer (1), median."""


def page(result):
    """Lines of Markdown."""
    for title, part in parts(result):
        yield f"**{title}**: {len(part['cells'])} cells."
        yield ""
        yield from table(part)
        failures = {(name, row["detail"]) for cell in part["cells"]
                    for name, row in cell["rows"].items() if row["status"] == "failed"}
        for name, detail in sorted(failures, key=str):
            yield f"\n`{name}`: {detail}"
        yield ""
    yield NOTES


def parts(result):
    if result.get("traces"):
        yield "pudica-train over length traces", result["traces"]
    if result.get("models"):
        yield "Hugging Face models", result["models"]


# -- the figure ------------------------------------------------------------------------------


def _text(x, y, words, anchor="start", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>'
            f"{html.escape(words)}</text>")


def _ticks(least, most):
    step = next(size for size in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1e9)
                if (most - least) / size <= 8)
    first = math.floor(least / step)
    return [round(step * n, 10) for n in range(first, math.ceil(most / step) + 1)]


def _apart(places, least, most):
    """The heights of labels that would lie on each other, moved apart: down, and up again where the
    last would lie beyond `most`."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for above, below in zip(order, order[1:]):
        moved[below] = max(moved[below], moved[above] + least)
    limit = most
    for place in reversed(order):
        moved[place] = min(moved[place], limit)
        limit = moved[place] - least
    return moved


def _is_ours(name):
    return name in (OURS, f"policy {OURS}")


def _colours(names):
    """Ours has the first, and nobody else."""
    others = iter(COLOURS[1:] * (1 + len(names) // (len(COLOURS) - 1)))
    return {name: COLOURS[0] if _is_ours(name) else next(others) for name in names}


def lines_by_budget(title, part, top):
    """Time over the base by budget, a line a row."""
    rows = {name: row["by_budget"] for name, row in part["summary"].items()
            if any(row["by_budget"].values()) and name != part["base"]}
    if not rows:
        return
    budgets = [float(budget) for budget in next(iter(rows.values()))]
    means = [value["mean"] for row in rows.values() for value in row.values() if value]
    ticks = _ticks(min([1.0, *means]), max(means))
    right, bottom = WIDTH - 230, top + HEIGHT - 60
    scale = max(budgets[-1] - budgets[0], 1e-9)

    def x(budget):
        return LEFT + 20 + (budget - budgets[0]) / scale * (right - LEFT - 40)

    def y(time):
        return bottom - (time - ticks[0]) / (ticks[-1] - ticks[0]) * (bottom - top - 20)

    yield _text(LEFT, top, f"{title}: time over {part['base']}, by budget", extra='class="title"')
    for tick in ticks:
        yield f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{right}"/>'
        yield _text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end")
    for budget in budgets:
        yield _text(x(budget), bottom + 18, f"{budget:g}", "middle")
    yield _text((LEFT + right) / 2, bottom + 38,
                "budget: 0 recomputes every layer of the longest batch, 1 keeps them", "middle")
    drawn = [(name, [(x(float(budget)), y(value["mean"])) for budget, value in row.items()
                     if value]) for name, row in rows.items()]
    labels = _apart([points[-1][1] for _, points in drawn], 15, bottom)
    colours = _colours(list(rows))
    for (name, points), label in zip(drawn, labels):
        colour = colours[name]
        width = 3 if _is_ours(name) else 1.6
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        for px, py in points:
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{width + 1}" fill="{colour}"/>'
        yield (f'<path d="M{points[-1][0]:.1f} {points[-1][1]:.1f}L{right + 10} {label:.1f}" '
               f'stroke="{colour}" stroke-width="0.8" opacity="0.6"/>')
        yield _text(right + 14, label + 4, name, extra=f'style="fill:{colour}"')


def bars(title, part, top):
    """Time over the base, a line a row, with quartiles; beside it the place of the peak."""
    rows = [(name, row) for name, row in part["summary"].items()
            if row["time"] and name != part["base"]]
    if not rows:
        return
    rows.sort(key=lambda entry: entry[1]["time"]["mean"])
    ends = [end for _, row in rows for end in (*row["time"]["quartiles"], row["time"]["mean"])]
    ticks = _ticks(min([1.0, *ends]), max(ends))
    left, right, bottom = 250, WIDTH - 150, top + 24 + ROW * len(rows)

    def x(time):
        return left + (time - ticks[0]) / (ticks[-1] - ticks[0]) * (right - left)

    yield _text(LEFT, top, f"{title}: time over {part['base']}", extra='class="title"')
    yield _text(WIDTH - 10, top, "place of the peak", "end")
    for tick in ticks:
        yield f'<path class="grid" d="M{x(tick):.1f} {top + 14}V{bottom}"/>'
        yield _text(x(tick), bottom + 16, f"{tick:g}", "middle")
    for number, (name, row) in enumerate(rows):
        y = top + 28 + ROW * number
        colour = COLOURS[0] if _is_ours(name) else COLOURS[1]
        low, high = row["time"]["quartiles"]
        yield _text(left - 10, y + 4, name, "end")
        yield (f'<path d="M{x(low):.1f} {y}H{x(high):.1f}" stroke="{colour}" stroke-width="4" '
               'opacity="0.35"/>')
        yield f'<circle cx="{x(row["time"]["mean"]):.1f}" cy="{y}" r="5" fill="{colour}"/>'
        place = row["peak_place_median"]
        yield _text(WIDTH - 10, y + 4, "-" if place is None else f"{place:.2f}", "end")


def figure(result):
    """The text of an SVG file."""
    drawn, top = [], TOP
    for title, part in parts(result):
        by_budget = len(next(iter(part["summary"].values()))["by_budget"]) > 1
        if by_budget:
            drawn += lines_by_budget(title, part, top)
            top += HEIGHT + 20
        drawn += bars(title, part, top)
        top += 24 + ROW * len(part["summary"]) + 50
    style = ("text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600}"
             ".grid{stroke:#d0d7de;stroke-width:1}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" '
        'aria-label="Time of pudica and its rivals over training without them">',
        f"<style>{style}</style>", f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>',
        *drawn, "</svg>"]) + "\n"
