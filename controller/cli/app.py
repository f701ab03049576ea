"""headway: shows what the controller does and why. For operators and users, on the controller's machine.

Exit codes: 0 done; 1 refused, not found, or doctor found errors; 2 wrong usage;
3 the controller (of `cluster`: Slurm) cannot be reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from controller.cli.client import AdminClient
    from protos.headway.v1 import admin_pb2

T = TypeVar("T")

app = typer.Typer(
    help="Show what the Headway scheduler does with the jobs of this cluster, and why; preempt, move and resize jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done; 1 refused, not found, or doctor found errors; 2 wrong usage; "
    "3 the controller (of `cluster`: Slurm) does not answer.",
)
policy_app = typer.Typer(
    help="Show or change the policy that places jobs.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(policy_app, name="policy")

profile_app = typer.Typer(
    help="Show or export what the node agents have measured of jobs (for root and the controller's user).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(profile_app, name="profile")

_LOOK_EVERY_S = 0.2
_RESTART_S = 60.0
"""How long to wait for a controller that restarts in the middle of a preemption, in seconds."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
JobId = Annotated[str, typer.Argument(metavar="JOBID", help="Slurm's job id: 123, or 123_4 for one task of an array.")]
Limit = Annotated[int, typer.Option(min=0, help="Maximum number of lines; 0 shows all. JSON always has all.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Stop the job even if it does not save in time, or cannot. Its work since the last checkpoint is lost.",
    ),
]
Within = Annotated[
    float | None,
    typer.Option(metavar="S", help="Time to save a checkpoint, in seconds.", show_default="preemption_within_s"),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until the job trains again. Exit code 1: it was not stopped, or ended before its first new step.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The controller's settings file.", show_default="/etc/headway/controller.toml"),
]
SocketPath = Annotated[
    Path | None,
    typer.Option("--socket", help="Use this socket of the controller, and read no settings file.", show_default=False),
]


@app.command()
def status(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """Show the state of the controller, its policy, the queue and the nodes."""
    with _asking(config, socket, as_json) as client:
        _show(client.status(), as_json, lambda found: _render().show_status(found, limit))


@app.command()
def queue(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """List every managed job that has not ended; waiting jobs are in the policy's order."""
    with _asking(config, socket, as_json) as client:
        _show(client.queue(), as_json, lambda found: _render().show_queue(found, limit))


@app.command()
def why(
    job_id: JobId,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Explain why a job waits, or why it runs where it runs, with the numbers behind it."""
    with _asking(config, socket, as_json) as client:
        _show(client.why(job_id), as_json, lambda found: _render().show_explanation(found))


@app.command()
def preempt(
    job_id: JobId,
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Make a running job save a checkpoint, stop it, and let the policy place it again."""
    _preempt(_Asked(job_id, force, within, wait), as_json, config, socket)


@app.command()
def move(
    job_id: JobId,
    to: Annotated[
        str, typer.Option("--to", metavar="N1,N2", help="Nodes that the job may run on; no other nodes.")
    ] = "",
    off: Annotated[str, typer.Option("--off", metavar="N3", help="Nodes that the job may not run on.")] = "",
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Preempt a job and place it on other nodes: those of --to, any but those of --off, or any but its present ones."""
    only, avoid = _names(to), _names(off)
    more = {"only": only, "avoid": avoid, "away": not only and not avoid}
    _preempt(_Asked(job_id, force, within, wait, more), as_json, config, socket)


@app.command()
def resize(
    job_id: JobId,
    gpus: Annotated[int, typer.Option("--gpus", min=1, metavar="N", help="Total number of GPUs from now on.")],
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Preempt a job and start it with another number of GPUs; its tasks, CPUs and memory change with them."""
    _preempt(_Asked(job_id, force, within, wait, {"gpus": gpus}), as_json, config, socket)


@app.command()
def preemptions(as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None) -> None:
    """List jobs that were preempted or are about to be, the newest first."""
    with _asking(config, socket, as_json) as client:
        found = client.preemptions(0 if as_json else limit)
        _show(found, as_json, lambda found: _render_preemptions().show_preemptions(found))


@policy_app.command("show")
def policy_show(as_json: Json = False, config: Config = None, socket: SocketPath = None) -> None:
    """Show which policy decides, and whether its server answers."""
    with _asking(config, socket, as_json) as client:
        _show(client.policy(), as_json, lambda found: _render().show_policy(found))


@policy_app.command("use")
def policy_use(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="unix:///path/to.sock, or 127.0.0.1:PORT.")],
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Let the policy server at ADDRESS decide from now on, if it passes the checks. A restart of the controller undoes this."""
    with _asking(config, socket, as_json, change=True) as client:
        _show(client.use_policy(address), as_json, lambda found: _render().show_policy(found))


@profile_app.command("list")
def profile_list(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """List the kinds of jobs (user, script, model, shape) that were measured, the newest first, with their speed alone and now."""
    with _asking(config, socket, as_json, change=True) as client:
        found = client.profiles(0 if as_json else limit)
        _show(found, as_json, lambda found: _render_profiles().show_profiles(found))


@profile_app.command("show")
def profile_show(
    job_id: JobId, as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None
) -> None:
    """Show what a job's step time consists of, and its speed in every window with the jobs beside it."""
    with _asking(config, socket, as_json, change=True) as client:
        found = client.profile(job_id, 0 if as_json else limit)
        _show(found, as_json, lambda found: _render_profiles().show_profile(found))


@profile_app.command("export")
def profile_export(
    to: Annotated[Path, typer.Option("--to", help="File to write, for headway-sim --profiles.", metavar="FILE.json")],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the measurements behind the fit, as CSV files.",
            metavar="FOLDER",
            show_default="none written",
        ),
    ] = None,
    cluster_toml: Annotated[
        Path | None,
        typer.Option(
            "--cluster", help="File with the racks, as `headway cluster --toml` writes it.", show_default="one rack"
        ),
    ] = None,
    days: Annotated[float, typer.Option(min=0.0, help="Use the measurements of this many last days.")] = 30.0,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Write a file of job profiles for the simulator, fitted to the measurements of this cluster."""
    from controller.cli.profile_export import ExportError, export, racks_of

    with _asking(config, socket, as_json, change=True) as client:
        try:
            found = client.export_profiles(time.time() - days * 86400, racks_of(cluster_toml))
            done = export(found, to, rows)
        except ExportError as error:
            _fail(str(error), 1, as_json)
        if as_json:
            _render().write_json(done)
        else:
            _render_profiles().show_export(done)


@app.command()
def events(as_json: Json = False, config: Config = None, socket: SocketPath = None) -> None:
    """Print events as they happen, until Ctrl-C. With --json, one object per line."""
    render = _render()
    with suppress(KeyboardInterrupt), _asking(config, socket, as_json) as client:
        for event in client.events():
            if as_json:
                render.write_json(render.plain(event))
            else:
                render.show_event(event)


@app.command()
def doctor(as_json: Json = False, config: Config = None) -> None:
    """Check an installation for everything that can be wrong, and say how to repair it."""
    from controller.cli.doctor.cli import examine

    findings = examine(config)
    if as_json:
        _render().write_json({"findings": findings})
    else:
        _render().show_findings(findings)
    raise typer.Exit(1 if any(finding["level"] == "error" for finding in findings) else 0)


@app.command()
def cluster(
    as_toml: Annotated[
        bool, typer.Option("--toml", help="Print a file for headway-sim --cluster (this is the default).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    topology_conf: Annotated[
        Path | None, typer.Option(help="File with the switches.", show_default="topology.conf beside slurm.conf")
    ] = None,
    config: Config = None,
) -> None:
    """Print the managed nodes with GPUs and their network, read from Slurm, for headway-sim run --cluster FILE.toml."""
    from controller.cli.cluster import UnknownClusterError, as_object, as_text, read

    if as_toml and as_json:
        raise typer.BadParameter("give --toml or --json, not both")
    try:
        found = read(config, topology_conf)
    except UnknownClusterError as error:
        _fail(str(error), error.exit_code, as_json)
    if as_json:
        _render().write_json(as_object(found))
    else:
        typer.echo(as_text(found), nl=False)


def main() -> None:
    """Entry point."""
    app()


# --- the pieces


def _render() -> Any:
    """Return the module that needs rich and protobuf; --help does without it."""
    from controller.cli.render import status

    return status


def _render_profiles() -> Any:
    """Return the module that shows measurements."""
    from controller.cli.render import profiles

    return profiles


def _render_preemptions() -> Any:
    """Return the module that shows preemptions."""
    from controller.cli.render import preemptions

    return preemptions


@dataclass(frozen=True)
class _Asked:
    """A preemption as the command line gives it."""

    job_id: str
    force: bool
    within_s: float | None
    wait: bool
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of PreemptRequest."""


def _preempt(asked: _Asked, as_json: bool, config: Path | None, socket: Path | None) -> None:
    """Begin a preemption; with --wait, show its progress until it ends."""
    from protos.headway.v1 import admin_pb2

    request = admin_pb2.PreemptRequest(job_id=asked.job_id, force=asked.force, within_s=asked.within_s, **asked.more)
    shown = _render_preemptions()
    with _asking(config, socket, as_json, change=True) as client:
        found = client.preempt(request)
        if not as_json:
            shown.show_stage(found)
        while asked.wait and found.open:
            time.sleep(_LOOK_EVERY_S)
            before, found = found, _look_again(client, found)
            if not as_json and found.stage != before.stage:
                shown.show_stage(found)
        if as_json:
            _render().write_json(_render().plain(found))
    if asked.wait and found.stage not in {"started", "resumed"}:
        if found.HasField("started_s"):
            output = f"`scontrol show job {asked.job_id}` names the file of its output"
            typer.echo(f"headway: {found.problem}; {output}, and shows its exit code", err=True)
        raise typer.Exit(1)


def _look_again(client: AdminClient, found: admin_pb2.PreemptionRecord) -> admin_pb2.PreemptionRecord:
    """Return the present state of a preemption. A controller that restarts continues it, so this waits for the controller."""
    from controller.cli.client import UNREACHABLE, AskError

    until_s = time.monotonic() + _RESTART_S
    while True:
        try:
            return client.preemptions(number=found.number).preemptions[0]
        except AskError as error:
            if error.exit_code != UNREACHABLE or time.monotonic() > until_s:
                raise
            time.sleep(_LOOK_EVERY_S)


def _names(listed: str) -> list[str]:
    return [name for name in listed.split(",") if name]


def _show(found: T, as_json: bool, show: Callable[[T], None]) -> None:
    if as_json:
        render = _render()
        render.write_json(render.plain(found))
    else:
        show(found)


@contextmanager
def _asking(config: Path | None, socket: Path | None, as_json: bool, *, change: bool = False) -> Iterator[AdminClient]:
    """Yield a connection to the controller. A failure ends the program with a message and the exit code."""
    from controller.cli.client import AdminClient, AskError, find_socket

    try:
        with AdminClient(find_socket(config, socket, change=change)) as client:
            yield client
    except AskError as error:
        _fail(str(error), error.exit_code, as_json)
    except BrokenPipeError:
        # `headway queue | head`: the reader has seen enough.
        _close_output()


def _fail(problem: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        _render().write_json({"error": problem, "exit_code": code})
    typer.echo(f"headway: {problem}", err=True)
    raise typer.Exit(code)


def _close_output() -> None:
    """Discard the rest of the output: its reader is gone, and the interpreter would report that at its end."""
    import os
    import sys

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
