"""Files of a Slurm installation, which administrators write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from controller.base.errors import ConfigurationError, HeadwayError
from controller.slurm.configuration.conf import read_slurm_conf
from controller.slurm.configuration.editing import with_value
from controller.slurm.configuration.installed_files import runtime_dir_of, script_version
from controller.slurm.configuration.site_lua import loads_ours, misplaced
from controller.slurm.configuration.topology import switches_of, topology_text
from controller.slurm.slurmctld_hosts import hosts_in
from simulator.cluster.topology.slurm import parse_nodes, parse_switches, slurm_topology
from simulator.errors import ClusterError
from tests.fuzz.target import BrokenPromiseError, Target

ROOT = Path(__file__).resolve().parents[3]
_CONF = (
    b"ClusterName=test\nSlurmctldHost=head\nJobSubmitPlugins=lua # ours\nSelectType=select/cons_tres\nGresTypes=gpu\n"
    b"SchedulerParameters=batch_sched_delay=0,\\\n  sched_interval=30\nPrologSlurmctld=/etc/slurm/headway/slurmctld_event.sh\n"
    b'NodeName=n[1-4] CPUs=64 RealMemory=256000 Gres=gpu:a100:8 Sockets=2 State=UNKNOWN Comment="a # b"\n'
    b"PartitionName=dl Nodes=ALL Default=YES MaxTime=7-00:00:00 State=UP\ninclude more.conf\n"
)
_TOPOLOGY = (
    b"SwitchName=s1 Nodes=n[1-2] LinkSpeed=100\nSwitchName=s2 Nodes=n[3-4]\n# top\n"
    b"SwitchName=core Switches=s[1-2] \\\n LinkSpeed=400\n"
)
_GRES = b"NodeName=n[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-7] Cores=0-15\nAutoDetect=nvml\n"


def read_conf(data: bytes, folder: Path) -> object:
    """Read slurm.conf, which includes more.conf beside it; set a value in memory, and read that back."""
    (folder / "more.conf").write_text("LaunchParameters=use_interactive_step\n")
    conf = read_slurm_conf(folder / "slurm.conf")
    with suppress(ConfigurationError):
        hosts_in(conf, "head")
    changed = with_value(conf, "JobSubmitPlugins", "lua,require")
    if changed.value("JobSubmitPlugins") != "lua,require":
        raise BrokenPromiseError("a value that was set is read differently")
    return changed


def read_topology(data: bytes, folder: Path) -> object:
    """Read the tree of switches as `scontrol show topology` prints it, and as a file."""
    topology_text(folder / "topology.conf", Path.read_text)
    return switches_of(data.decode("utf-8", "replace"))


def read_node_lines(data: bytes, _folder: Path) -> object:
    """Make the simulator's network of node lines and switches in one text."""
    text = data.decode("utf-8", "replace")
    return slurm_topology(parse_switches(text), parse_nodes(text))


def read_script(data: bytes, _folder: Path) -> object:
    """Recognize an installed script."""
    text = data.decode("utf-8", "replace")
    return script_version(text), runtime_dir_of(text), loads_ours(text), misplaced(text)


def _scripts() -> list[bytes]:
    plugin = ROOT / "slurm" / "plugin"
    return [
        (plugin / "job_submit.lua").read_bytes()[:4000],
        (plugin / "hooks" / "slurmctld_event.sh").read_bytes()[:2000],
    ]


SLURM_FILES = (
    Target(
        "slurm-conf",
        "slurm.conf, which `headway-setup` reads and changes",
        "text",
        lambda: [_CONF, _GRES],
        read_conf,
        (HeadwayError,),
        file="slurm.conf",
        cost=8,
    ),
    Target(
        "topology-conf",
        "topology.conf",
        "text",
        lambda: [_TOPOLOGY],
        read_topology,
        (HeadwayError,),
        file="topology.conf",
        cost=4,
    ),
    Target(
        "node-lines",
        "slurm.conf, gres.conf or `scontrol show node`, for the simulator",
        "text",
        lambda: [_CONF + _TOPOLOGY, _GRES + _CONF],
        read_node_lines,
        (ClusterError,),
        cost=4,
    ),
    Target("installed-scripts", "job_submit.lua and hooks beside slurm.conf", "text", _scripts, read_script, cost=2),
)
