"""The picture of the Pareto fronts, as SVG: the average JCT against p99, makespan and fairness, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10

from simulator.leaderboard.front import AGAINST, Against, average_h, dominating, front
from simulator.leaderboard.standings import Standing

_PANEL, _HEIGHT, _LEFT, _TOP, _BOTTOM = 300, 300, 52, 26, 44
_LEGEND_ROW, _LEGEND_COLUMNS = 18, 3
_STYLE = (
    ".front { font: 12px system-ui, sans-serif; } .front text { fill: currentColor; } .front .axis { stroke: currentColor; "
    "stroke-width: 1; } .front .best { fill: none; stroke: #0969da; stroke-width: 2; } .front .on { fill: #0969da; } "
    ".front .off { fill: none; stroke: currentColor; }"
)


def front_picture(standings: Sequence[Standing], ground: str = "none") -> str:
    """Return one panel for each figure that stands against the average JCT, and a legend with the policies' numbers.

    Filled points, joined by a line, are the front; hollow ones are dominated. Policies without a positive figure are left out.
    `ground` is the colour of the background; a picture in a file of its own needs one, because its ink is dark by default.
    """
    width = _PANEL * len(AGAINST)
    rows = -(-len(standings) // _LEGEND_COLUMNS)
    height = _HEIGHT + _LEGEND_ROW * rows + 8
    panels = "".join(_panel(standings, against, _PANEL * place) for place, against in enumerate(AGAINST))
    title = "Pareto fronts: the average JCT against p99, makespan and fairness; the table has the figures"
    return (
        f"<svg class='front' xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' aria-label='{title}'>"
        f"<style>{_STYLE}</style><rect width='100%' height='100%' fill='{ground}'/>{panels}{_legend(standings, width)}</svg>"
    )


def _panel(standings: Sequence[Standing], against: Against, left: int) -> str:
    shown = [each for each in standings if average_h(each) > 0 and against.value(each) > 0]
    if not shown:
        return ""
    across = _Axis([average_h(each) for each in shown], left + _LEFT, left + _PANEL - 20)
    upwards = _Axis([against.value(each) for each in shown], _HEIGHT - _BOTTOM, _TOP)
    best = front(shown, against)
    corners = _steps([(across.at(average_h(each)), upwards.at(against.value(each))) for each in best])
    parts = [
        f"<path class='axis' fill='none' d='M{left + _LEFT - 8} {_TOP - 8}V{_HEIGHT - _BOTTOM + 8}H{left + _PANEL - 8}'/>",
        f"<text x='{left + 4}' y='12'>{escape(_named(against.name, against.unit))}</text>",
        f"<text x='{left + _PANEL - 8}' y='{_HEIGHT - 8}' text-anchor='end'>average JCT, h</text>",
        *(_tick(left + _LEFT - 11, upwards.at(value) + 4, value, "end") for value in upwards.ends),
        *(_tick(across.at(value), _HEIGHT - _BOTTOM + 22, value, "middle") for value in across.ends),
        f"<path class='best' d='{corners}'/>",
    ]
    for number, each in enumerate(standings, 1):
        if each in shown:
            x, y = across.at(average_h(each)), upwards.at(against.value(each))
            kind = "on" if dominating(each, shown, against) is None else "off"
            parts.append(
                f"<circle class='{kind}' cx='{x}' cy='{y}' r='4'/><text x='{x + 6}' y='{y - 5}'>{number}</text>"
            )
    return "".join(parts)


class _Axis:
    """A logarithmic axis. Invariant: every value given is between its two ends."""

    def __init__(self, values: Sequence[float], begin: int, end: int) -> None:
        """Put the least value at `begin` and the largest at `end`."""
        self.ends = tuple(dict.fromkeys((min(values), max(values))))
        self._low = log10(self.ends[0])
        self._begin, self._scale = begin, (end - begin) / ((log10(self.ends[-1]) - self._low) or 1.0)

    def at(self, value: float) -> float:
        """Return the coordinate of a value."""
        return round(self._begin + (log10(value) - self._low) * self._scale, 1)


def _steps(points: Sequence[tuple[float, float]]) -> str:
    """Return the path along which nothing can be reached without a loss in one of the figures."""
    first, *others = points
    return f"M{first[0]} {first[1]}" + "".join(f"H{x}V{y}" for x, y in others)


def _tick(x: float, y: float, value: float, anchor: str) -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"<text x='{x}' y='{round(y, 1)}' text-anchor='{anchor}'>{text}</text>"


def _legend(standings: Sequence[Standing], width: int) -> str:
    rows = -(-len(standings) // _LEGEND_COLUMNS)
    return "".join(
        f"<text x='{4 + width // _LEGEND_COLUMNS * (place // rows)}' y='{_HEIGHT + _LEGEND_ROW * (place % rows + 1)}'>"
        f"{place + 1} {escape(each.policy[:44])}</text>"
        for place, each in enumerate(standings)
    )


def _named(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name
