"""Output during a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slurm.demo.display.view import ClusterView, JobView, LinkView, NodeView, Stage, where

_COLOURS = (
    "cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_green", "bright_magenta",
    "bright_yellow", "bright_blue", "bright_red", "orange3", "spring_green3",
)  # fmt: skip
_LINK_CELLS = 16
_LINK_LINE_EVERY_S = 10.0
_PLACE_CELLS = 10
_LEAST_REASON_CELLS = 20
"""Smallest width of the column of reasons; with less room it is left out."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that one picture of a run shows."""

    title: str
    scheduler: str
    """Name of the scheduler, in a few words."""
    elapsed_s: float
    requests: Mapping[str, str]
    jobs: Mapping[str, JobView]
    """Every job of the mix by label, in the mix's order."""
    view: ClusterView
    rate_mbps: float | None
    """Bandwidth of a NIC; None when there are no NICs."""


class Screen(Protocol):
    """Output of the demonstration."""

    def say(self, text: str) -> None:
        """Print one line that stays."""

    def show(self, frame: Frame) -> None:
        """Show a picture; the next one replaces it."""

    def close(self) -> None:
        """Remove the picture."""


def open_screen(console: Console) -> Screen:
    """Return a live picture for a terminal, plain lines for anything else."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class LiveScreen:
    """A picture that is redrawn in place, and removed at the end of the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """Print one line above the picture."""
        self._console.print(Text("• ", style="dim") + Text(text))

    def show(self, frame: Frame) -> None:
        """Redraw the picture."""
        picture = draw(frame, width=self._console.width, ascii_only=self._console.options.ascii_only)
        if self._live is None:
            self._live = Live(picture, console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        else:
            self._live.update(picture, refresh=True)

    def close(self) -> None:
        """Remove the picture."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PlainScreen:
    """One line for each start and end of a job, and from time to time one about the links."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stages: dict[str, Stage] = {}
        self._links_at_s = 0.0

    def say(self, text: str) -> None:
        """Print one line."""
        self._print(text)

    def show(self, frame: Frame) -> None:
        """Print the changes since the last picture."""
        if frame.elapsed_s < self._links_at_s:  # another run has begun
            self._stages, self._links_at_s = {}, 0.0
        for label, job in frame.jobs.items():
            if job.stage is not self._stages.get(label, Stage.EXPECTED):
                self._stages[label] = job.stage
                self._print(f"{frame.elapsed_s:4.0f} s  {label:<10} {_stage_text(job, frame.requests[label])}")
        if frame.view.links and frame.elapsed_s - self._links_at_s >= _LINK_LINE_EVERY_S:
            self._links_at_s = frame.elapsed_s
            rates = "  ".join(f"{node} {link.sent:.0f}" for node, link in sorted(frame.view.links.items()))
            self._print(f"{frame.elapsed_s:4.0f} s  links      Mbit/s sent: {rates}")

    def close(self) -> None:
        """Reset, for the next run."""
        self._stages, self._links_at_s = {}, 0.0

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _stage_text(job: JobView, request: str) -> str:
    match job.stage:
        case Stage.WAITING:
            return f"submitted as job {job.job_id}: {request}"
        case Stage.RUNNING:
            reason = f" ({job.why})" if job.why else ""
            return f"runs on {where(job.gpus)}{reason}"
        case _ if job.end_s is not None:
            return f"{job.stage.value} after {job.end_s - job.submit_s:.0f} s"
        case _:
            return str(job.stage.value)


def draw(frame: Frame, *, width: int, ascii_only: bool = False) -> RenderableType:
    """Return the picture: a headline, the queue, the nodes with their GPUs and links."""
    colours = {label: _COLOURS[number % len(_COLOURS)] for number, label in enumerate(frame.jobs)}
    headline = Text.assemble(
        (f" {frame.title} ", "bold reverse"),
        (f"  {frame.scheduler}", "bold"),
        (f"   {_clock(frame.elapsed_s)}   {_counts(frame.jobs)}", "dim"),
    )
    return Group(
        headline,
        Text(),
        _queue(frame, colours, width),
        Text(),
        _nodes(frame.view.nodes, frame.view.links, frame.rate_mbps, colours, ascii_only=ascii_only),
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _counts(jobs: Mapping[str, JobView]) -> str:
    parts = []
    for stage in (Stage.WAITING, Stage.RUNNING, Stage.DONE, Stage.FAILED):
        number = sum(job.stage is stage for job in jobs.values())
        if number or stage is not Stage.FAILED:
            parts.append(f"{number} {stage.value}")
    return ", ".join(parts)


_STAGE_STYLES = {
    Stage.EXPECTED: "dim",
    Stage.WAITING: "yellow",
    Stage.RUNNING: "bold green",
    Stage.DONE: "dim",
    Stage.FAILED: "bold red",
}


def _queue(frame: Frame, colours: Mapping[str, str], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim", pad_edge=False)
    widths = {
        "job": max(map(len, frame.jobs)),
        "asks for": max(map(len, frame.requests.values())),
        "state": max(len(stage.value) for stage in _STAGE_STYLES if stage is not Stage.EXPECTED),
        "wait": 5,
        "run": 5,
        "nodes:GPUs": _PLACE_CELLS,
    }
    for name, cells in widths.items():
        table.add_column(name, width=cells, no_wrap=True, justify="right" if name in {"wait", "run"} else "left")
    left = width - sum(cells + 2 for cells in widths.values())
    if left >= _LEAST_REASON_CELLS:
        table.add_column("why", width=left - 1, no_wrap=True, overflow="ellipsis")
    for label, job in frame.jobs.items():
        quiet = job.stage.ended or job.stage is Stage.EXPECTED
        style = "dim" if quiet else ""
        row = [
            Text(label, style=f"dim {colours[label]}" if quiet else f"bold {colours[label]}"),
            Text(frame.requests[label], style=style),
            Text("" if job.stage is Stage.EXPECTED else job.stage.value, style=_STAGE_STYLES[job.stage]),
            Text(_wait(job, frame.view.time_s), style=style),
            Text(_run(job, frame.view.time_s), style=style),
            Text(where(job.gpus), style=style),
        ]
        table.add_row(*row, *([Text(job.why, style=style)] if left >= _LEAST_REASON_CELLS else []))
    return table


def _wait(job: JobView, now_s: float) -> str:
    if job.stage is Stage.EXPECTED:
        return ""
    return f"{max((job.start_s or now_s) - job.submit_s, 0):.0f} s"


def _run(job: JobView, now_s: float) -> str:
    if job.start_s is None or job.stage is Stage.EXPECTED:
        return ""
    return f"{max((job.end_s or now_s) - job.start_s, 0):.0f} s"


def _nodes(
    nodes: Sequence[NodeView],
    links: Mapping[str, LinkView],
    rate_mbps: float | None,
    colours: Mapping[str, str],
    *,
    ascii_only: bool,
) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim", pad_edge=False)
    table.add_column("node", no_wrap=True)
    table.add_column("GPUs", no_wrap=True)
    if rate_mbps is not None:
        table.add_column(f"link, of {rate_mbps:g} Mbit/s", no_wrap=True)
        table.add_column("sent", justify="right", no_wrap=True, min_width=5)
        table.add_column("received", justify="right", no_wrap=True)
    for node in nodes:
        cells: list[RenderableType] = [Text(node.name), _gpu_bar(node.owners, colours, ascii_only=ascii_only)]
        if rate_mbps is not None:
            link = links.get(node.name, LinkView(0.0, 0.0))
            cells += [
                _link_bar(max(link.sent, link.received) / rate_mbps, ascii_only=ascii_only),
                Text(f"{link.sent:.0f}"),
                Text(f"{link.received:.0f}"),
            ]
        table.add_row(*cells)
    return table


def _gpu_bar(owners: Sequence[str], colours: Mapping[str, str], *, ascii_only: bool) -> Text:
    taken, free = ("##", "..") if ascii_only else ("■ ", "□ ")
    return Text.assemble(*((taken, colours.get(owner, "white")) if owner else (free, "dim") for owner in owners))


def _link_bar(share: float, *, ascii_only: bool) -> Text:
    full, empty = ("=", "-") if ascii_only else ("━", "╌")
    cells = min(round(share * _LINK_CELLS), _LINK_CELLS)
    style = "red" if share > 0.7 else "yellow" if share > 0.3 else "green"
    return Text.assemble((full * cells, style), (empty * (_LINK_CELLS - cells), "dim"))
