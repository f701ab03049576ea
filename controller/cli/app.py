"""headway: what the controller does, and why. For operators and users, on the controller's machine.

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
    help="What Headway does with the jobs of this cluster, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done; 1 refused, not found, or doctor found errors; 2 wrong usage; "
    "3 the controller (of `cluster`: Slurm) does not answer.",
)
policy_app = typer.Typer(help="Show or change the policy that decides.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(policy_app, name="policy")

profile_app = typer.Typer(
    help="What the nodes' agents have measured of jobs (for root and the controller's user).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(profile_app, name="profile")

_LOOK_EVERY_S = 0.2
_RESTART_S = 60.0
"""For so long a controller that is away in the middle of a preemption is waited for."""

Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")]
JobId = Annotated[str, typer.Argument(metavar="JOBID", help="123, or 123_4 for one task of an array.")]
Limit = Annotated[int, typer.Option(min=0, help="Most lines to show; 0 = all. JSON always has all.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Stop it even where it does not save in time, or cannot: what it has not saved is lost."
    ),
]
Within = Annotated[
    float | None, typer.Option(metavar="S", help="Seconds that it has to save.", show_default="preemption_within_s")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Until it trains again. The exit status is 1 if it was left where it is, or ended before its first step.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The controller's settings file.", show_default="/etc/headway/controller.toml"),
]
SocketPath = Annotated[
    Path | None, typer.Option("--socket", help="Ask at this socket, and read no settings.", show_default=False)
]


@app.command()
def status(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """How controller, policy, queue and nodes are."""
    with _asking(config, socket, as_json) as client:
        _show(client.status(), as_json, lambda found: _render().show_status(found, limit))


@app.command()
def queue(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """Every managed job that has not ended, waiting ones in the policy's order."""
    with _asking(config, socket, as_json) as client:
        _show(client.queue(), as_json, lambda found: _render().show_queue(found, limit))


@app.command()
def why(
    job_id: JobId,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Why a job waits, or runs where it runs, and the numbers behind it."""
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
    """Have a running job save, stop it, and let the policy place it again."""
    _preempt(_Asked(job_id, force, within, wait), as_json, config, socket)


@app.command()
def move(
    job_id: JobId,
    to: Annotated[str, typer.Option("--to", metavar="N1,N2", help="The only nodes that it may run on then.")] = "",
    off: Annotated[str, typer.Option("--off", metavar="N3", help="Nodes that it is kept off.")] = "",
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """The same, to other nodes: those of --to, any but those of --off, or any but those that it is on."""
    only, avoid = _names(to), _names(off)
    more = {"only": only, "avoid": avoid, "away": not only and not avoid}
    _preempt(_Asked(job_id, force, within, wait, more), as_json, config, socket)


@app.command()
def resize(
    job_id: JobId,
    gpus: Annotated[int, typer.Option("--gpus", min=1, metavar="N", help="GPUs in all from now on.")],
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """The same, with another number of GPUs; what else the job asks for goes along."""
    _preempt(_Asked(job_id, force, within, wait, {"gpus": gpus}), as_json, config, socket)


@app.command()
def preemptions(as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None) -> None:
    """Jobs that were taken off their nodes to come back, or are about to be; the newest first."""
    with _asking(config, socket, as_json) as client:
        found = client.preemptions(0 if as_json else limit)
        _show(found, as_json, lambda found: _render_preemptions().show_preemptions(found))


@policy_app.command("show")
def policy_show(as_json: Json = False, config: Config = None, socket: SocketPath = None) -> None:
    """Which policy decides, and whether it answers."""
    with _asking(config, socket, as_json) as client:
        _show(client.policy(), as_json, lambda found: _render().show_policy(found))


@policy_app.command("use")
def policy_use(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="unix:///path/to.sock, or 127.0.0.1:PORT.")],
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Let the policy server at ADDRESS decide from now on, if it passes the checks (until the controller restarts)."""
    with _asking(config, socket, as_json, change=True) as client:
        _show(client.use_policy(address), as_json, lambda found: _render().show_policy(found))


@profile_app.command("list")
def profile_list(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """Kinds of jobs (user, script, model, shape), the newest first: how fast alone, and how those that run do now."""
    with _asking(config, socket, as_json, change=True) as client:
        found = client.profiles(0 if as_json else limit)
        _show(found, as_json, lambda found: _render_profiles().show_profiles(found))


@profile_app.command("show")
def profile_show(
    job_id: JobId, as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None
) -> None:
    """Where a job's step time goes, and how fast it was in every window, beside whom."""
    with _asking(config, socket, as_json, change=True) as client:
        found = client.profile(job_id, 0 if as_json else limit)
        _show(found, as_json, lambda found: _render_profiles().show_profile(found))


@profile_app.command("export")
def profile_export(
    to: Annotated[Path, typer.Option("--to", help="A file for headway-sim --profiles.", metavar="FILE.json")],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the rows that it is fitted from, as CSV.", metavar="FOLDER", show_default="none written"
        ),
    ] = None,
    cluster_toml: Annotated[
        Path | None,
        typer.Option("--cluster", help="Racks, as `headway cluster --toml` writes them.", show_default="one rack"),
    ] = None,
    days: Annotated[float, typer.Option(min=0.0, help="Take what was measured in so many days.")] = 30.0,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Write models, pairs and localities as measured here, for the simulator."""
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
    """What happens, from now on, until Ctrl-C. With --json one object a line."""
    render = _render()
    with suppress(KeyboardInterrupt), _asking(config, socket, as_json) as client:
        for event in client.events():
            if as_json:
                render.write_json(render.plain(event))
            else:
                render.show_event(event)


@app.command()
def doctor(as_json: Json = False, config: Config = None) -> None:
    """Look for everything that can be wrong with an installation, and say how to mend it."""
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
        bool, typer.Option("--toml", help="A file for headway-sim --cluster; what is done anyway.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one JSON object.")] = False,
    topology_conf: Annotated[
        Path | None, typer.Option(help="The switches stand here.", show_default="topology.conf beside slurm.conf")
    ] = None,
    config: Config = None,
) -> None:
    """The managed nodes with GPUs and their network, read from Slurm itself, for headway-sim run --cluster FILE.toml."""
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
    """The module that knows rich and protobuf; not needed for --help."""
    from controller.cli.render import status

    return status


def _render_profiles() -> Any:
    """The same for what was measured."""
    from controller.cli.render import profiles

    return profiles


def _render_preemptions() -> Any:
    """The same for preemptions."""
    from controller.cli.render import preemptions

    return preemptions


@dataclass(frozen=True)
class _Asked:
    """A preemption as it was asked for."""

    job_id: str
    force: bool
    within_s: float | None
    wait: bool
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields of PreemptRequest besides."""


def _preempt(asked: _Asked, as_json: bool, config: Path | None, socket: Path | None) -> None:
    """Ask for it; and where that is wanted, wait and say how it goes."""
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
    """How it stands now. A controller that is started anew goes on with it: it is waited for."""
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
    """A connection to the controller; its failures end the program with a sentence and the exit code."""
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
    """Nobody reads any more: do not let the interpreter find out again while it ends."""
    import os
    import sys

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
