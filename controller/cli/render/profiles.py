"""Output of `headway profile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from controller.base.text import count, three_digits
from controller.cli.render.terminal import (
    is_narrow,
    open_console,
    pairs_of,
    put,
    safe_text,
    table_of,
    table_of_lines,
    time_text,
)  # fmt: skip

if TYPE_CHECKING:
    from rich.console import Console

    from protos.headway.v1 import admin_pb2

_SIGNATURE_CHARS = 8
_SOMETIMES = ("BATCH", "GPU")
"""Columns that are left out when they have no value in any line."""
_NOT_IF_NARROW = {"BATCH", "GPU", "WINDOWS", "JOBS"}
"""Columns for which a narrow terminal has no room."""
_WIDTHS = {"USER": 8, "SCRIPT": 14, "GPU": 14}
"""Maximum widths on a terminal."""
_UNITS = ("B", "KB", "MB", "GB", "TB")


def show_profiles(found: admin_pb2.ProfileList) -> None:
    """Print one line for each kind of job, and one below it for each of its running jobs."""
    console = open_console()
    if not found.kinds:
        put(console, safe_text("There are no measurements yet."))
        return
    shown: dict[str, Callable[[admin_pb2.ProfileKind], str]] = {
        "USER": lambda kind: kind.user or str(kind.uid),
        "SCRIPT": lambda kind: kind.script or "-",
        "MODEL": lambda kind: kind.signature[:_SIGNATURE_CHARS] or "-",
        "BATCH": lambda kind: str(kind.batch_size) if kind.HasField("batch_size") else "-",
        "GPU": lambda kind: kind.gpu_model or "-",
        "GPUS": lambda kind: str(kind.gpus),
        "NODES": lambda kind: str(kind.nodes),
        "STEPS/S": lambda kind: three_digits(kind.alone_steps_per_s) if kind.HasField("alone_steps_per_s") else "-",
        "WINDOWS": lambda kind: f"{kind.windows_alone}/{kind.windows}",
        "JOBS": lambda kind: str(kind.jobs),
        "LAST SEEN": lambda kind: time_text(console, kind.last_s),
    }
    unknown = {name for name in _SOMETIMES if all(shown[name](kind) == "-" for kind in found.kinds)}
    left_out = unknown | (_NOT_IF_NARROW if is_narrow(console) else set())
    columns = {name: cell for name, cell in shown.items() if name not in left_out}
    lines = (*columns, "NOW")
    table = table_of_lines(*lines, widths=_WIDTHS) if console.is_terminal else table_of(*lines)
    for kind in found.kinds:
        first, *others = [now_text(each) for each in kind.running] or [""]
        table.add_row(*(safe_text(cell(kind)) for cell in columns.values()), safe_text(first))
        for words in others:
            table.add_row(*("" for _ in columns), safe_text(words))
    put(console, table)
    windows = "WINDOWS: windows alone / all. " if "WINDOWS" in columns else ""
    put(
        console,
        safe_text(f"STEPS/S: speed alone. {windows}NOW: how many times slower each job runs than alone."),
    )
    if found.more:
        put(console, safe_text("There are more; --limit 0 shows all"))


def now_text(now: admin_pb2.ContentionNow) -> str:
    """Return "124: 2.01x (alone, 95%)"."""
    if not now.HasField("sensitivity"):
        return f"{now.job_id}: {three_digits(now.steps_per_s)} steps/s, its speed alone is not known"
    return f"{now.job_id}: {now.sensitivity:.2f}x ({now.source}, {now.confidence:.0%})"


def show_requested(found: admin_pb2.RequestedProfile) -> None:
    """Print which nodes profile the job, and which do not."""
    console = open_console()
    where = ", ".join(found.nodes)
    put(console, safe_text(f"The next {count(found.steps, 'step')} of job {found.job_id} are profiled on {where}."))
    for problem in found.problems:
        put(console, safe_text(f"Not on {problem}."))
    if found.HasField("user_changes_left"):
        left = count(found.user_changes_left, "more change")
        put(console, safe_text(f"You may request {left} of your own jobs within this hour."))
    put(
        console,
        safe_text(f"`headway profile show {found.job_id}` shows the result, when the ranks have made these steps."),
    )


def show_profile(found: admin_pb2.JobMeasurements) -> None:
    """Print the job's identity, its present speed, the parts of its step time, and its windows."""
    console = open_console()
    lines = [
        ("job", found.job_id),
        ("user", found.user or str(found.uid)),
        ("script", found.script or "not known"),
        ("model", found.signature[:_SIGNATURE_CHARS] or "not known"),
    ]
    if found.HasField("param_bytes"):
        lines.append(("parameters", size(found.param_bytes)))
    if found.HasField("now"):
        lines.append(("now", _now_line(found.now)))
    put(console, pairs_of(lines, {}))
    if found.steps:
        put(console, safe_text(""), _steps(console, found))
    if found.windows:
        put(console, safe_text(""), _windows(console, found))


def _now_line(now: admin_pb2.ContentionNow) -> str:
    beside = f" beside {', '.join(now.beside)}" if now.beside else ", alone"
    pace = f"{three_digits(now.steps_per_s)} steps/s{beside}"
    if not now.HasField("sensitivity"):
        return f"{pace}; its speed without neighbours is not known"
    of = f"{three_digits(now.alone_steps_per_s)} steps/s alone"
    return f"{pace}: {now.sensitivity:.2f} times slower than {of} ({now.source}, confidence {now.confidence:.0%})"


def _steps(console: Console, found: admin_pb2.JobMeasurements) -> Any:
    table = table_of(
        "PROFILED", "NODE", "STEP", "COMPUTE", "EXPOSED", "HIDDEN", "BYTES A STEP", whole={"PROFILED", "NODE"}
    )
    for step in found.steps:
        kinds = ", ".join(_kind(kind, step) for kind in sorted(step.bytes)) or "-"
        times = (_part(part, step.step_s) for part in (step.compute_s, step.exposed_s, step.hidden_s))
        cells = (time_text(console, step.time_s), step.node, f"{step.step_s * 1e3:.3g} ms", *times, kinds)
        table.add_row(*(safe_text(cell) for cell in cells))
    return table


def _kind(kind: str, step: admin_pb2.StepSplit) -> str:
    """Return the bytes of a kind, and those that load the links between nodes where they are known and not the same."""
    sent = step.link_bytes.get(kind, step.bytes[kind])
    between = f" ({size(sent)} between nodes)" if sent != step.bytes[kind] else ""
    return f"{kind} {size(step.bytes[kind])}{between}"


def _part(seconds: float, step_s: float) -> str:
    return f"{seconds * 1e3:.3g} ms ({seconds / step_s:.0%})" if step_s else f"{seconds * 1e3:.3g} ms"


def _windows(console: Console, found: admin_pb2.JobMeasurements) -> Any:
    table = table_of("WINDOW", "GPUS", "ON", "STEPS/S", "BESIDE", whole={"WINDOW", "STEPS/S"})
    for window in found.windows:
        names = (f"{other.job_id}{f' ({other.script})' if other.script else ''}" for other in window.beside)
        beside = ", ".join(names) or "no job"
        time_began = time_text(console, window.start_s)
        cells = (time_began, str(window.gpus), ",".join(window.nodes), three_digits(window.steps_per_s), beside)
        table.add_row(*(safe_text(cell) for cell in cells))
    return table


def show_export(done: Mapping[str, Any]) -> None:
    """Print which files were written."""
    console = open_console()
    put(console, safe_text(f"{done['to']}: {count(done['models'], 'model')}, {count(done['pairs'], 'pair')}"))
    for name, words in done["fits"].items():
        put(console, safe_text(f"{name}: {words}"))
    if done["rows"]:
        put(console, safe_text(f"{done['rows']}: the rows, as CSV"))


def size(number_of: float) -> str:
    """Return a size as text: "4 MB", "1.2 GB"."""
    at = 0
    while number_of >= 1000 and at < len(_UNITS) - 1:
        number_of, at = number_of / 1000, at + 1
    return f"{number_of:.3g} {_UNITS[at]}"
