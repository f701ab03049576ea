"""Max-min fair rates by progressive filling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def max_min(
    uses: Mapping[int, Mapping[int, float]],
    capacity: Mapping[int, float],
    limits: Mapping[int, float],
) -> dict[int, float]:
    """Return max-min fair rates of flows: no rate can rise without lowering one that is not larger.

    `uses[flow][link]` is the link capacity that a unit of the flow's rate takes, `limits[flow]` the flow's own maximum rate. All
    rates rise together; when a link is full, the flows on it stay. All sums are made in the order of `uses`, which callers sort,
    so that the result does not depend on the order of events.
    """
    left = dict(capacity)
    weight, on_link = _loads(uses, capacity)
    rates: dict[int, float] = {}
    by_limit = sorted(uses, key=lambda flow: (limits[flow], flow))
    first = 0
    while len(rates) < len(uses):
        while by_limit[first] in rates:
            first += 1
        level, full = limits[by_limit[first]], -1
        for link, share in weight.items():
            if share > 0.0 and left[link] < level * share:
                level, full = left[link] / share, link
        stay: Sequence[int] = on_link[full] if full >= 0 else (by_limit[first],)
        for flow in stay:
            if flow in rates:
                continue
            rates[flow] = level
            for link, share in uses[flow].items():
                left[link] = max(0.0, left[link] - share * level)
                weight[link] -= share
        if full >= 0:
            weight[full] = 0.0
    return rates


def _loads(
    uses: Mapping[int, Mapping[int, float]], capacity: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, list[int]]]:
    """Return for each link the sum of its flows' shares, and its flows."""
    weight = dict.fromkeys(capacity, 0.0)
    on_link: dict[int, list[int]] = {link: [] for link in capacity}
    for flow, links in uses.items():
        for link, share in links.items():
            weight[link] += share
            on_link[link].append(flow)
    return weight, on_link


def level(capacity: float, share: float, others: Sequence[tuple[float, float]]) -> float:
    """Return the rate of one flow on one link: the x where share x + sum of other share x min(other rate, x) is the capacity.

    `others` are the rates and shares of the other flows.
    """
    left, weight = capacity, share + sum(other for _, other in others)
    for rate, other in sorted(others):
        if left <= rate * weight:
            break
        left -= rate * other
        weight -= other
    return max(left, 0.0) / weight
