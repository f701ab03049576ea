"""headway-minicluster up, down, status, restart and exec."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slurm.cli.signals import stop_if_signalled

if TYPE_CHECKING:
    from slurm.minicluster.cluster import MiniCluster
    from slurm.minicluster.spec import ClusterSpec
    from slurm.minicluster.status import ClusterStatus

Name = Annotated[str, typer.Option(help="Name of the cluster; several clusters can be up at once.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Rate = Annotated[
    str | None, typer.Option(help="Bandwidth of each NIC in both directions, such as 200mbit; default: unlimited.")
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Folder for the files of the cluster, new or empty. Default: /var/lib/headway-minicluster/NAME."
    ),
]
WithAccounting = Annotated[
    bool, typer.Option("--accounting", help="Also start slurmdbd with its own MariaDB, for limits, sacct and sacctmgr.")
]


def up(
    name: Name = "headway",
    nodes: Annotated[int, typer.Option(help="Number of nodes: n1, n2, ...")] = 4,
    gpus: Annotated[int, typer.Option(help="Fake GPUs per node.")] = 8,
    cpus: Annotated[int, typer.Option(help="CPUs that each node reports to Slurm.")] = 64,
    memory_mib: Annotated[int, typer.Option(help="Memory in MiB that each node reports to Slurm.")] = 256_000,
    rate: Rate = None,
    cgroup: Annotated[str, typer.Option(help="How jobs are contained: auto, v1, v2 or none.")] = "auto",
    directory: Directory = None,
    job_submit_lua: Annotated[Path | None, typer.Option(help="A job_submit.lua for slurmctld.")] = None,
    accounting: WithAccounting = False,
    conf: Annotated[
        list[str] | None, typer.Option(help="A line for slurm.conf, such as KillWait=30; the option can be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Boot a cluster and leave it running."""
    from slurm.minicluster.cluster import ClusterSpec, MiniCluster

    spec = ClusterSpec(
        name=name,
        nodes=nodes,
        gpus=gpus,
        cpus=cpus,
        memory_mib=memory_mib,
        rate=rate,
        cgroup=cgroup,  # type: ignore[arg-type]  # checked there
        directory=directory,
        job_submit_lua=job_submit_lua,
        accounting=accounting,
        extra_conf=tuple(conf or ()),
    )
    began = time.monotonic()
    with MiniCluster(spec) as cluster:  # until `detach`, a signal takes the cluster down again
        stop_if_signalled()
        cluster.detach()
    _print_boot(cluster, time.monotonic() - began, as_json=as_json)


def _print_boot(cluster: MiniCluster, seconds: float, *, as_json: bool) -> None:
    spec = cluster.spec
    if as_json:
        facts = {
            "name": spec.name,
            "directory": str(cluster.directory),
            "slurm_conf": str(cluster.slurm_conf),
            "env": cluster.env,
            "nodes": list(cluster.node_names),
            "gpus": spec.gpus,
            "rate": spec.rate,
            "cgroup": cluster.cgroup,
            "host_address": cluster.host_address,
            "slurmctld_pid": cluster.slurmctld_pid,
            "accounting": spec.accounting,
            "boot_s": round(seconds, 3),
        }
        typer.echo(json.dumps(facts))
        return
    nodes = f"{spec.nodes} node{'s' if spec.nodes > 1 else ''} with {spec.gpus} GPUs each"
    typer.echo(
        f"Mini-cluster {spec.name} is up after {seconds:.1f} s: {nodes}, NICs {spec.rate or 'unshaped'}, cgroup {cluster.cgroup}.\n"
        "\n"
        f"  export SLURM_CONF={cluster.slurm_conf}\n"
        "  sinfo\n"
        f"  cd {cluster.files.work} && sbatch --gres=gpu:2 --wrap 'hostname; echo GPUs $CUDA_VISIBLE_DEVICES'\n"
        "\n"
        f"{_submission_text(spec)} Logs are in {cluster.files.log}.\n"
        f"`headway-minicluster down{_name_option(spec.name)}` removes everything."
    )


def _submission_text(spec: ClusterSpec) -> str:
    if not spec.accounting:
        return "Any user can submit."
    from slurm.minicluster.spec import ACCOUNT

    return f"root can submit; others after `sacctmgr -i add user NAME account={ACCOUNT}`."


def _name_option(name: str) -> str:
    return "" if name == "headway" else f" --name {name}"


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
    if as_json:
        typer.echo(json.dumps({"clusters": [asdict(cluster) for cluster in clusters], "missing": reasons}))
        return
    for cluster in clusters:
        _print_status(cluster)
    if not clusters:
        typer.echo("No mini-cluster is up.")
    for reason in reasons:
        typer.echo(f"No mini-cluster can be booted: {reason}")


def restart(
    daemon: Annotated[
        str, typer.Argument(metavar="DAEMON", help="slurmctld, slurmdbd, or a node (n1) for its slurmd.")
    ],
    name: Name = "headway",
    as_json: Json = False,
) -> None:
    """Restart a daemon as systemctl would, and wait until it answers; jobs continue. A daemon that was killed is started."""
    from slurm.minicluster.cluster import MiniCluster

    cluster = MiniCluster.attach(name)
    began = time.monotonic()
    cluster.restart(daemon)
    seconds = round(time.monotonic() - began, 3)
    typer.echo(
        json.dumps({"name": name, "daemon": daemon, "restart_s": seconds})
        if as_json
        else f"{daemon} of mini-cluster {name} answers after {seconds:.1f} s."
    )


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
    try:
        os.execvpe(words[0], words, {**os.environ, **cluster.env})  # noqa: S606 - the terminal and signals are the command's
    except OSError as error:
        raise CommandError(f"{words[0]}: cannot be run: {error.strerror}") from error


def _print_status(cluster: ClusterStatus) -> None:
    states: dict[str, list[str]] = {}
    for node, state in cluster.nodes.items():
        states.setdefault(state, []).append(node)
    nodes = "; ".join(f"{state}: {' '.join(names)}" for state, names in states.items())
    slurmctld = f"process {cluster.slurmctld_pid}" if cluster.slurmctld_pid else "down"
    mend = f"; `headway-minicluster down{_name_option(cluster.name)}` removes it" if cluster.phase == "ended" else ""
    typer.echo(
        f"{cluster.name}: {cluster.phase} for {cluster.age_s:.0f} s{mend}\n"
        f"  nodes      {nodes}\n"
        f"  slurmctld  {slurmctld}\n"
        f"  NICs       {cluster.rate or 'unshaped'}, {cluster.subnet}\n"
        f"  cgroup     {cluster.cgroup}\n"
        f"  owner      {cluster.owner or 'none: it stays up until `headway-minicluster down`'}\n"
        f"  SLURM_CONF {cluster.slurm_conf}"
    )
