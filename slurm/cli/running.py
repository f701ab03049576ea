"""headway-minicluster down, status, restart and exec."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm.cli.options import Json, Name, name_option

if TYPE_CHECKING:
    from slurm.minicluster.handle import RunningCluster
    from slurm.minicluster.status import ClusterStatus
    from slurm.testbed.services import Services


def down(name: Name = "headway", as_json: Json = False) -> None:
    """Take a cluster down, also one whose owner crashed: processes, namespaces, links, cgroups and files."""
    from slurm.minicluster import teardown

    teardown.down(name)
    typer.echo(
        json.dumps({"name": name, "down": True})
        if as_json
        else f"Mini-cluster {name} is down. Everything of it is removed."
    )


def status(
    name: Annotated[str | None, typer.Option(help="Show only this cluster; it is an error if there is none.")] = None,
    as_json: Json = False,
) -> None:
    """Show the clusters of this machine, and what is missing for a boot."""
    from slurm.errors import NotRunningError
    from slurm.minicluster.status import all_statuses
    from slurm.prerequisites import missing

    clusters = [cluster for cluster in all_statuses() if name in {None, cluster.name}]
    if name is not None and not clusters:
        raise NotRunningError(f"mini-cluster {name}: no such cluster")
    reasons = missing()
    headway = {cluster.name: _headway_on(cluster) for cluster in clusters}
    if as_json:
        shown = [asdict(cluster) | {"headway": headway[cluster.name]} for cluster in clusters]
        typer.echo(json.dumps({"clusters": shown, "missing": reasons}))
        return
    for cluster in clusters:
        _print_status(cluster, headway[cluster.name])
    if not clusters:
        typer.echo("No mini-cluster is up.")
    for reason in reasons:
        typer.echo(f"No mini-cluster can be booted: {reason}")


def restart(
    daemon: Annotated[
        str,
        typer.Argument(
            metavar="DAEMON",
            help="slurmctld, slurmdbd, or a node (n1) for its slurmd. With Headway also controller, policy, watchdog, or "
            "agent@n1 for the agent of a node.",
        ),
    ],
    name: Name = "headway",
    as_json: Json = False,
) -> None:
    """Restart a daemon as systemctl would, and wait until it answers; jobs continue. A daemon that was killed is started."""
    from slurm.minicluster.cluster import MiniCluster

    cluster = MiniCluster.attach(name)
    began = time.monotonic()
    if daemon in {"slurmctld", "slurmdbd", *cluster.node_names}:
        cluster.restart(daemon)
    else:
        _services_of(cluster, daemon).restart(daemon)
    seconds = round(time.monotonic() - began, 3)
    typer.echo(
        json.dumps({"name": name, "daemon": daemon, "restart_s": seconds})
        if as_json
        else f"{daemon} of mini-cluster {name} answers after {seconds:.1f} s."
    )


def _services_of(cluster: RunningCluster, daemon: str) -> Services:
    """Return Headway on the cluster, which has this service. Raises NotRunningError that names what can be restarted."""
    from slurm.errors import NotRunningError
    from slurm.testbed.services import Services

    services = Services.find(cluster)
    if services is None:
        raise NotRunningError(
            f"{daemon}: give slurmctld, slurmdbd or one of {', '.join(cluster.node_names)}; Headway's services can be restarted "
            "on a cluster that was booted with `headway-minicluster up --headway POLICY`"
        )
    if daemon not in services.names:
        names = ", ".join((*cluster.node_names, *services.names))
        raise NotRunningError(f"{daemon}: give slurmctld, slurmdbd or one of {names}")
    return services


def exec_on(
    host: Annotated[str, typer.Argument(metavar="HOST", help="A node (n1), or ctl for the host of slurmctld.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The command, with its own options.")],
    name: Name = "headway",
    user: Annotated[str | None, typer.Option(help="Run it as this user.", show_default="root")] = None,
) -> None:
    """Run a command on a host as after a login, outside any job; its exit status is that of the command."""
    from slurm.errors import CommandError
    from slurm.minicluster.cluster import MiniCluster

    # The parser stops at the host, so that a "--" behind it is still there.
    argv = command[1:] if command[0] == "--" else command
    if not argv:
        raise typer.BadParameter("give a command behind --")
    cluster = MiniCluster.attach(name)
    words = cluster.words_on(host, *argv, user=user)
    environment = {**cluster.environment_on(user), **_headway_environment(cluster)}
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 - the terminal and signals are the command's
    except OSError as error:
        raise CommandError(f"{words[0]}: cannot be run: {error.strerror}") from error


def _headway_environment(cluster: RunningCluster) -> dict[str, str]:
    """Return the variables by which `headway` finds the controller of the cluster; empty without Headway."""
    if not cluster.files.headway.exists():
        return {}
    from slurm.testbed.services import Services

    services = Services.find(cluster)
    return {} if services is None else services.environment


def _headway_on(status: ClusterStatus) -> dict[str, Any] | None:
    """Return the facts about Headway on a cluster; None without it, and when the cluster is not up."""
    from slurm.errors import NotRunningError
    from slurm.minicluster.cluster import MiniCluster

    try:
        cluster = MiniCluster.attach(status.name)
    except NotRunningError:
        return None
    if not cluster.files.headway.exists():  # without Headway its packages may be missing
        return None
    from slurm.testbed.services import Services

    services = Services.find(cluster)
    return None if services is None else services.facts()


def _print_status(cluster: ClusterStatus, headway: dict[str, Any] | None) -> None:
    states: dict[str, list[str]] = {}
    for node, state in cluster.nodes.items():
        states.setdefault(state, []).append(node)
    nodes = "; ".join(f"{state}: {' '.join(names)}" for state, names in states.items())
    slurmctld = f"process {cluster.slurmctld_pid}" if cluster.slurmctld_pid else "down"
    mend = f"; `headway-minicluster down{name_option(cluster.name)}` removes it" if cluster.phase == "ended" else ""
    typer.echo(
        f"{cluster.name}: {cluster.phase} for {cluster.age_s:.0f} s{mend}\n"
        f"  nodes      {nodes}\n"
        f"  slurmctld  {slurmctld}\n"
        f"  NICs       {cluster.rate or 'unshaped'}, {cluster.subnet}\n"
        f"  cgroup     {cluster.cgroup}\n"
        f"  owner      {cluster.owner or 'none: it stays up until `headway-minicluster down`'}\n"
        f"  SLURM_CONF {cluster.slurm_conf}"
    )
    if headway is not None:
        down = [name for name, pid in headway["services"].items() if pid is None]
        typer.echo(
            f"  Headway    policy {headway['policy']}; {'down: ' + ' '.join(down) if down else 'all services run'}\n"
            f"  HEADWAY_CONFIG {headway['config']}"
        )
