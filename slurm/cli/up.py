"""headway-minicluster up."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm.cli.options import Json, Name, name_option
from slurm.signals import stop_if_signalled

if TYPE_CHECKING:
    from slurm.minicluster.cluster import MiniCluster
    from slurm.minicluster.spec import ClusterSpec
    from slurm.testbed.choice import Choice
    from slurm.testbed.services import Services

_PROFILE = Path(__file__).parents[1] / "plugin/profile.d/headway.sh"
"""Shell file of a checkout that sets the column of squeue."""
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
Policy = Annotated[
    str | None,
    typer.Option(
        "--headway",
        metavar="POLICY",
        help="Also start Headway with this policy; `headway-policy list` shows all. Default: Slurm alone.",
    ),
]
Agents = Annotated[bool, typer.Option("--agents", help="With --headway: also start Headway's agent on every node.")]


def up(
    name: Name = "headway",
    nodes: Annotated[int, typer.Option(help="Number of nodes: n1, n2, ...")] = 4,
    gpus: Annotated[int, typer.Option(help="Fake GPUs per node.")] = 8,
    cpus: Annotated[int, typer.Option(help="CPUs that each node reports to Slurm.")] = 64,
    memory_mib: Annotated[int, typer.Option(help="Memory in MiB that each node reports to Slurm.")] = 256_000,
    rate: Rate = None,
    headway: Policy = None,
    agents: Agents = False,
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

    choice = _choice(headway, agents=agents)
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
    with MiniCluster(_with_headway(spec, choice)) as cluster:  # until `detach`, a signal takes the cluster down again
        services = _started(cluster, choice)
        stop_if_signalled()
        cluster.detach()
    show = _show_json if as_json else _show
    show(cluster, services, time.monotonic() - began)


def _choice(policy: str | None, *, agents: bool) -> Choice | None:
    """Return what was chosen of Headway; None for nothing. Raises PrerequisiteError when a package for it is missing."""
    from slurm.cli.packages import require_packages

    if policy is None:
        if agents:
            raise typer.BadParameter("agents report to a controller: give --headway POLICY too", param_hint="--agents")
        return None
    require_packages(agents=agents)
    from slurm.testbed.choice import Choice

    return Choice(policy, agents)


def _with_headway(spec: ClusterSpec, choice: Choice | None) -> ClusterSpec:
    if choice is None:
        return spec
    from slurm.testbed.choice import with_headway

    return with_headway(spec, choice)


def _started(cluster: MiniCluster, choice: Choice | None) -> Services | None:
    if choice is None:
        return None
    from slurm.testbed.services import Services

    services = Services(cluster, choice)
    services.start_all()
    return services


def _show_json(cluster: MiniCluster, services: Services | None, seconds: float) -> None:
    spec = cluster.spec
    facts: dict[str, Any] = {
        "name": spec.name,
        "directory": str(cluster.directory),
        "slurm_conf": str(cluster.slurm_conf),
        "env": {**cluster.env, **({} if services is None else services.environment)},
        "nodes": list(cluster.node_names),
        "gpus": spec.gpus,
        "rate": spec.rate,
        "cgroup": cluster.cgroup,
        "host_address": cluster.host_address,
        "slurmctld_pid": cluster.slurmctld_pid,
        "accounting": spec.accounting,
        "headway": None if services is None else services.facts(),
        "boot_s": round(seconds, 3),
    }
    typer.echo(json.dumps(facts))


def _show(cluster: MiniCluster, services: Services | None, seconds: float) -> None:
    spec = cluster.spec
    nodes = f"{spec.nodes} node{'s' if spec.nodes > 1 else ''} with {spec.gpus} GPUs each"
    lines = [
        f"Mini-cluster {spec.name} is up after {seconds:.1f} s: {nodes}, NICs {spec.rate or 'unshaped'}, cgroup {cluster.cgroup}.",
        *([] if services is None else [_headway_text(services)]),
        "",
        f"  export SLURM_CONF={cluster.slurm_conf}",
        *([] if services is None else _exports(services)),
        "  sinfo",
        f"  cd {cluster.files.work} && sbatch --gres=gpu:2 --wrap 'hostname; echo GPUs $CUDA_VISIBLE_DEVICES'",
        *([] if services is None else ["  headway queue"]),
        "",
        f"{_submission_text(spec)} Logs are in {_logs(cluster, services)}.",
        f"`headway-minicluster down{name_option(spec.name)}` removes everything.",
    ]
    typer.echo("\n".join(lines))


def _headway_text(services: Services) -> str:
    agents = "an agent on every node" if services.choice.agents else "no agents"
    return (
        f"Headway runs on it: policy {services.choice.policy}, controller, watchdog, {agents}; "
        f"metrics are at http://{services.metrics_address}/metrics."
    )


def _exports(services: Services) -> list[str]:
    """Return the lines by which a shell finds Headway's programs and this controller."""
    from slurm.testbed.programs import program

    lines = [f"  export {key}={value}" for key, value in services.environment.items()]
    folder = Path(program("headway")[0]).parent
    found = shutil.which("headway")
    if found is None or Path(found).parent.resolve() != folder.resolve():
        lines.append(f"  export PATH={folder}{os.pathsep}$PATH")
    if _PROFILE.exists():
        lines.append(f"  . {_PROFILE}   # squeue shows who holds a job")
    return lines


def _logs(cluster: MiniCluster, services: Services | None) -> str:
    return f"{cluster.files.log}" + ("" if services is None else f" and {services.layout.folder}")


def _submission_text(spec: ClusterSpec) -> str:
    if not spec.accounting:
        return "Any user can submit."
    from slurm.minicluster.spec import ACCOUNT

    return f"root can submit; others after `sacctmgr -i add user NAME account={ACCOUNT}`."
