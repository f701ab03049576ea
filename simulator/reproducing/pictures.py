"""Pictures in the forms of the papers' figures: distributions, shares, densities. Only this module needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from policies.model import FloatColumn
from simulator.errors import SettingError
from simulator.reproducing.experiment import ExperimentResults, Kind

COLOURS = ("#2f6690", "#d1603d", "#5b8e7d", "#7d5ba6", "#c0902f", "#7a869a", "#a8325a", "#3a7ca5")
GREY = "#5f6b76"
_SIZE = (5.6, 3.6)


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure, drawn from samples of the first seed or from means."""

    title: str
    draw: Callable[[Any, ExperimentResults], None]
    """Draws the results on matplotlib's axes."""


def svg(picture: Picture, results: ExperimentResults) -> str:
    """Return the picture as an SVG element for a page. Raises SettingError without matplotlib."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingError("pictures need the package matplotlib; pip install 'headway-scheduler[sim]'") from None
    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    picture.draw(axes, results)
    axes.set_title(picture.title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=GREY, labelsize=8)
    axes.grid(color="#e6e9ec", linewidth=0.7)
    axes.set_axisbelow(True)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def cdf(title: str, setting: str, sample: str, label: str, scale: float = 1.0) -> Picture:
    """Return a picture of the cumulative distribution of a sample over jobs."""

    def draw(axes: Any, results: ExperimentResults) -> None:
        for name, values, colour in _each(results, setting, sample):
            ordered = np.sort(values) / scale
            axes.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", color=colour, label=name)
        _named(axes, label, "share of jobs")

    return Picture(title, draw)


def shares(title: str, setting: str, sample: str, label: str, edges: Sequence[float]) -> Picture:
    """Return a histogram: the share of jobs between every two edges, contenders side by side."""

    def draw(axes: Any, results: ExperimentResults) -> None:
        found = list(_each(results, setting, sample))
        width = 0.8 / max(len(found), 1)
        for place, (name, values, colour) in enumerate(found):
            counts, _ = np.histogram(values, bins=[*edges, np.inf])
            at = np.arange(len(counts)) + (place - len(found) / 2 + 0.5) * width
            axes.bar(at, counts / len(values), width, color=colour, label=name)
        words = [f"{low:g} to {high:g}" for low, high in pairwise(edges)] + [f"{edges[-1]:g} or more"]
        axes.set_xticks(range(len(words)), words)
        _named(axes, label, "share of jobs")

    return Picture(title, draw)


def density(title: str, setting: str, sample: str, label: str) -> Picture:
    """Return a picture of a kernel density estimate with Scott's bandwidth (Scott, "Multivariate Density Estimation", 1992)."""

    def draw(axes: Any, results: ExperimentResults) -> None:
        at = np.linspace(0, 1, 200)
        for name, values, colour in _each(results, setting, sample):
            bandwidth = max(float(values.std()) * len(values) ** -0.2, 0.01)
            kernels = np.exp(-0.5 * ((at[:, None] - values[None, :]) / bandwidth) ** 2)
            axes.plot(at, kernels.sum(1) / (len(values) * bandwidth * np.sqrt(2 * np.pi)), color=colour, label=name)
        _named(axes, label, "density")

    return Picture(title, draw)


def over_time(title: str, setting: str, sample: str, hours: str, label: str) -> Picture:
    """Return a picture of a sample over time, which another sample gives in hours."""

    def draw(axes: Any, results: ExperimentResults) -> None:
        times = {name: values for name, values, _ in _each(results, setting, hours)}
        for name, values, colour in _each(results, setting, sample):
            axes.plot(times[name], values, color=colour, linewidth=1.2, label=name)
        _named(axes, "hours", label)

    return Picture(title, draw)


def scatter(title: str, setting: str, across: str, up: str, labels: tuple[str, str], scale: float = 1.0) -> Picture:
    """Return a picture with a dot for each contender: the mean of one metric against that of another."""

    def draw(axes: Any, results: ExperimentResults) -> None:
        for name, colour in _colours(results, setting).items():
            x, y = (results.mean(setting, name, metric) for metric in (across, up))
            if x is not None and y is not None:
                axes.plot(x.mean, y.mean / scale, "o", color=colour)
                axes.annotate(name, (x.mean, y.mean / scale), textcoords="offset points", xytext=(4, 4), fontsize=7)
        _named(axes, *labels, legend=False)

    return Picture(title, draw)


def lines(
    title: str, settings: Mapping[float, str], metric: str, labels: tuple[str, str], scale: float = 1.0
) -> Picture:
    """Return a picture of a metric over settings that differ by a number."""

    def draw(axes: Any, results: ExperimentResults) -> None:
        first = next(iter(settings.values()))
        for name, colour in _colours(results, first).items():
            means = {
                at: results.mean(setting, name, metric)
                for at, setting in settings.items()
                if (setting, name) in results.runs
            }
            points = {at: mean.mean / scale for at, mean in means.items() if mean is not None}
            axes.plot(list(points), list(points.values()), "o-", markersize=3, color=colour, label=name)
        _named(axes, *labels)

    return Picture(title, draw)


def _each(results: ExperimentResults, setting: str, sample: str) -> list[tuple[str, FloatColumn, str]]:
    """Return name, samples of the first seed, and colour of every contender that has samples."""
    colours = _colours(results, setting)
    found = {name: results.runs[setting, name][0].samples for name in colours}
    return [(name, samples[sample], colours[name]) for name, samples in found.items() if sample in samples]


def _colours(results: ExperimentResults, setting: str) -> dict[str, str]:
    names = [each.name for each in results.experiment.contenders[setting] if each.kind is not Kind.BOUND]
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def _named(axes: Any, below: str, beside: str, *, legend: bool = True) -> None:
    axes.set_xlabel(below, color=GREY, fontsize=9)
    axes.set_ylabel(beside, color=GREY, fontsize=9)
    if legend:
        axes.legend(frameon=False, fontsize=7)
