"""`headway-agent check`: what the agent can measure on this node, what it cannot, and what to do about it.

The check neither listens on the job socket nor sends a hello, so it does not disturb an agent that runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from sys import prefix

import grpc
import grpc.aio

from nodeagent.config import AgentSettings
from nodeagent.identity import node_name as names
from nodeagent.identity import peer as identity
from nodeagent.telemetry import network as nic
from nodeagent.telemetry import sysfs
from nodeagent.telemetry.nvml import GpuReader, NoGpus, NvmlReader
from nodeagent.uplink.ca_file import read_ca_file
from nodeagent.uplink.endpoint import Endpoint, EndpointError, codec_for_all, parse_endpoint
from nodeagent.uplink.munge import CredentialCodec, MungeError
from nodeagent.wire.report import GpuReading
from policies.serving.runtime.finding import Finding, Level

JOB_SIDE = Path(__file__).parents[1] / "headway_job" / "src"
SHIPPED_PROLOG = Path(__file__).parents[1] / "slurm" / "plugin" / "hooks" / "task_prolog.sh"
_PROLOG_LINE = re.compile(r"^# Headway TaskProlog, version ([0-9]{1,6})$", re.MULTILINE)
_SIDE_LINE = re.compile(r"^JOB_SIDE=(/[^\n]*)$", re.MULTILINE)
_DIAL_S = 5.0
_GPU_TIMEOUT_S = 30.0
"""A driver that must wake its GPUs first may take so long."""


async def run_checks(settings: AgentSettings, sys: Path = Path("/sys"), gpus: GpuReader | None = None) -> list[Finding]:
    """Run all checks and return their findings, in the order in which they are printed."""
    if gpus is None:
        gpus = NoGpus() if settings.gpus == "off" else NvmlReader(settings.gpu_deadline_s)
    return [
        *_user(),
        *unit(),
        node_name(settings),
        *await _controller(settings),
        job_socket(settings.job_socket),
        job_side(JOB_SIDE),
        *task_prolog(),
        identities(settings, sys / "fs/cgroup"),
        usage(sys / "fs/cgroup"),
        await gpu_findings(settings, gpus),
        *nic_findings(nic.interfaces(sys, settings.nics), settings.nics),
    ]


def _user() -> Iterable[Finding]:
    if os.geteuid() != 0:
        what = f"this check runs as uid {os.geteuid()}: what only root can read appears to be missing"
        yield Finding("user", Level.WARNING, what, "run this as root, as the agent does")


def unit(
    copied: Path = Path("/etc/systemd/system"),
    packaged: Path = Path("/usr/lib/systemd/system"),
    shipped: Path = Path(prefix) / "share" / "headway" / "systemd",
) -> Iterable[Finding]:
    """Check a unit that was copied by hand: it hides that of a package, and stays as it is at an upgrade."""
    copy, hidden, ours = (folder / "headway-agent.service" for folder in (copied, packaged, shipped))
    if not copy.is_file() or copy.is_symlink():
        return
    own = "restart headway-agent. Own settings belong into a drop-in (systemctl edit)"
    if hidden.is_file():
        what = f"{copy} hides the unit of the installed package, and stays as it is at its upgrades"
        yield Finding("unit", Level.WARNING, what, f"rm {copy}; systemctl daemon-reload; {own}")
    elif ours.is_file():
        text = ours.read_text(errors="replace")
        # A copy may name another virtual environment.
        if copy.read_text(errors="replace") not in {text, text.replace("/opt/headway", prefix)}:
            what = f"{copy} is not the unit of the installed version"
            yield Finding("unit", Level.WARNING, what, f"cp {ours} {copied}/; systemctl daemon-reload; {own}")


def node_name(settings: AgentSettings, proc: Path = Path("/proc"), places: Iterable[Path] = names.PLACES) -> Finding:
    """Check that Slurm knows this node by the name with which the agent calls the controller, which refuses others."""
    host = socket.gethostname()
    name = settings.node_name or host.partition(".")[0]
    level, what = names.judge(name, host, names.running_slurmds(proc), names.read_nodes(places))
    mend = "correct node_name in agent.toml: it is Slurm's name of this node (`scontrol show nodes`)"
    return Finding("node-name", level, what, mend if level is Level.ERROR else "")


# --- the controller


async def _controller(settings: AgentSettings) -> Iterable[Finding]:
    try:
        endpoints = [parse_endpoint(address) for address in settings.controller_address]
        codec = codec_for_all(endpoints, settings.munge, settings.munge_socket)
    except EndpointError as error:
        return [Finding("controller", Level.ERROR, f"controller_address: {error}", "correct it in agent.toml")]
    except MungeError as error:
        return [
            Finding(
                "munge", Level.ERROR, str(error), "repair MUNGE; agents need it except on Unix sockets and loopback"
            )
        ]
    return [await _munge(codec), *_of_several([await _dial(settings, endpoint) for endpoint in endpoints])]


def _of_several(found: list[Finding]) -> list[Finding]:
    """Return the findings about the controllers: only one of several serves agents, and the others stand by."""
    served = [finding for finding in found if finding.level is Level.OK]
    return served or found


async def _munge(codec: CredentialCodec | None) -> Finding:
    """Make a credential for this process, and read it."""
    if codec is None:
        return Finding("munge", Level.OK, "not needed at this address: only this machine can be at the other end")
    word = os.urandom(16)
    try:
        found = await codec.decode(await codec.encode(word, os.geteuid()))
    except MungeError as error:
        return Finding("munge", Level.ERROR, str(error), "systemctl status munge; see munge_socket in agent.toml")
    if found.payload != word or found.uid != os.geteuid():
        return Finding(
            "munge", Level.ERROR, "munged returns a payload that it was not given", "systemctl restart munge"
        )
    return Finding("munge", Level.OK, f"munged makes credentials for uid {found.uid}")


async def _dial(settings: AgentSettings, endpoint: Endpoint) -> Finding:
    """Connect until a gRPC server is ready. Whether it admits the agent is shown by its log, and by the agent's."""
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    try:
        if settings.ca_file is None:
            channel = grpc.aio.insecure_channel(endpoint.target, options=options)
        else:
            roots = await asyncio.to_thread(read_ca_file, settings.ca_file)
            channel = grpc.aio.secure_channel(endpoint.target, grpc.ssl_channel_credentials(roots), options=options)
    except OSError as error:
        return Finding("controller", Level.ERROR, f"ca_file: {error}", "correct ca_file in agent.toml")
    async with channel:
        try:
            async with asyncio.timeout(_DIAL_S):
                await channel.channel_ready()
        except TimeoutError:
            mend = "set agents_address in controller.toml, open that port in the firewall; see controller_address here"
            return Finding("controller", Level.ERROR, f"{endpoint}: no gRPC server answers within {_DIAL_S:g} s", mend)
    return Finding("controller", Level.OK, f"{endpoint} answers{' over TLS' if settings.ca_file else ''}")


# --- jobs


def job_socket(path: Path) -> Finding:
    """Check that users can reach the socket, and that only root can create one there."""
    folder = path.parent
    try:
        found = folder.stat()
    except OSError:
        return Finding("job-socket", Level.OK, f"{folder} will be created when the agent starts")
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & 0o022 or not found.st_mode & 0o001:
        what = f"{folder}: owned by uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}"
        mend = f"chown root {folder} && chmod 755 {folder}: all users must be able to enter it, and only root to write there"
        return Finding("job-socket", Level.ERROR, what, mend)
    with suppress(OSError):
        if stat.S_ISSOCK(path.stat().st_mode):
            return Finding("job-socket", Level.OK, f"{path} exists")
    return Finding("job-socket", Level.OK, f"{path} will be created when the agent starts")


def job_side(folder: Path) -> Finding:
    """Check that users' programs can load the package that reports how they train."""
    needed = [folder / "headway_job" / "__init__.py", *folder.glob("headway_job-*.dist-info/entry_points.txt")]
    if len(needed) != 2 or not needed[0].is_file():
        return Finding("job-side", Level.ERROR, f"{folder} is not complete", "install headway-scheduler again")
    closed = [path for path in (*folder.rglob("*"), folder, *folder.parents) if not _open_to_all(path)]
    if closed:
        mend = f"chmod o+rX {closed[-1]}, or install below a folder that all users may enter, such as /opt"
        return Finding("job-side", Level.ERROR, f"users may not read {closed[-1]}: their jobs report nothing", mend)
    return Finding("job-side", Level.OK, f"{folder} is what TaskProlog has to name as JOB_SIDE")


def task_prolog(places: Iterable[Path] = names.PLACES, shipped: Path = SHIPPED_PROLOG) -> Iterable[Finding]:
    """Check the TaskProlog of slurm.conf, if it is Headway's: its version, and the folder that it has jobs load."""
    path = Path(names.read_value("taskprolog", places) or "/")
    if path == Path("/"):
        return
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        what = f"slurm.conf has TaskProlog={path}, which is not on this node: jobs fail here"
        yield Finding("task-prolog", Level.ERROR, what, "copy it here, or correct TaskProlog in slurm.conf")
        return
    except OSError as error:
        yield Finding("task-prolog", Level.SKIPPED, f"{path} was not checked: {error}")
        return
    version, side = _PROLOG_LINE.search(text), _SIDE_LINE.search(text)
    if version is None:
        return  # the site's own
    needed = _PROLOG_LINE.search(shipped.read_text()) if shipped.is_file() else None
    if needed is not None and version[1] != needed[1]:
        what = f"{path} has version {version[1]}, this Headway needs {needed[1]}"
        mend = "headway-setup slurm --apply on the machine of slurmctld; copy the file here, unless both see the same"
        yield Finding("task-prolog", Level.ERROR, what, mend)
    elif side is None or not (Path(side[1]) / "headway_job" / "__init__.py").is_file():
        what = (
            f"{path} has jobs load {side[1] if side else 'no folder'}, which is not on this node: they report nothing"
        )
        mend = f"headway-setup slurm --job-side {JOB_SIDE} --apply on the machine of slurmctld"
        yield Finding("task-prolog", Level.ERROR, what, mend)
    else:
        yield Finding("task-prolog", Level.OK, f"{path} is Headway's, version {version[1]}")


def _open_to_all(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & (0o001 if stat.S_ISDIR(mode) else 0o004))


def identities(settings: AgentSettings, cgroups: Path) -> Finding:
    """Check how the job of a process is identified."""
    if settings.identity == "ancestry":
        return Finding("identity", Level.OK, "by the slurmstepd above each process")
    if identity.has_job_cgroups(cgroups):
        return Finding("identity", Level.OK, f"by Slurm's cgroups below {cgroups}")
    if settings.identity == "cgroup":
        mend = 'ProctrackType=proctrack/cgroup in slurm.conf, or identity = "automatic"'
        return Finding("identity", Level.WARNING, f"no job has had a cgroup below {cgroups} since the boot", mend)
    what = "no job has had a cgroup since the boot: until one has, jobs are identified by the slurmstepd above each process"
    mend = "set ProctrackType=proctrack/cgroup in slurm.conf, unless it is set: without it, jobs that report nothing are not seen"
    return Finding("identity", Level.WARNING, what, mend)


def usage(cgroups: Path) -> Finding:
    """Check which use of jobs the kernel counts."""
    mend = "set JobAcctGatherType=jobacct_gather/cgroup in slurm.conf, so that Slurm creates them"
    if (cgroups / "cgroup.controllers").exists():
        there = set((sysfs.text(cgroups / "cgroup.controllers") or "").split())
        lacking = {"cpu", "memory"} - there
        version = "v2"
    else:
        lacking = {name for name in ("cpuacct", "memory") if not any((cgroups / name).glob("slurm*"))}
        version = "v1"
    if lacking:
        missing = " and ".join(sorted(lacking))
        what = f"cgroup {version} without {missing} of jobs: their use is added up over their processes instead"
        return Finding("usage", Level.WARNING, what, mend)
    return Finding("usage", Level.OK, f"CPU time and memory of jobs by cgroup {version}")


# --- devices


async def gpu_findings(settings: AgentSettings, reader: GpuReader) -> Finding:
    """Check that the GPUs can be read."""
    if settings.gpus == "off":
        return Finding("gpus", Level.OK, 'not read: gpus = "off"')
    found = await _first_reading(reader)
    if found:
        names = sorted({gpu.name or "of unknown kind" for gpu in found})
        return Finding("gpus", Level.OK, f"{len(found)}: {', '.join(names)}")
    level = Level.ERROR if settings.gpus == "required" else Level.WARNING
    if found is None and not reader.absent:
        what = f"the driver does not answer within {settings.gpu_deadline_s:g} s"
        return Finding("gpus", level, what, "run nvidia-smi; if it is slow but answers, raise gpu_deadline_s")
    what = f"no GPU can be read: {reader.absent or 'the driver lists none'}"
    return Finding("gpus", level, what, 'install the NVIDIA driver, or set gpus = "off" on nodes without GPUs')


async def _first_reading(reader: GpuReader) -> tuple[GpuReading, ...] | None:
    deadline_s = time.monotonic() + _GPU_TIMEOUT_S
    try:
        while True:
            found = await reader.read()
            if found is not None or reader.absent or time.monotonic() > deadline_s:
                return found
            await asyncio.sleep(0.2)
    finally:
        await reader.close()


def nic_findings(found: Iterable[nic.Interface], wanted: Iterable[str]) -> Iterable[Finding]:
    """List the interfaces whose traffic is counted."""
    found = list(found)
    if not found:
        what = f"no interface matches {', '.join(wanted)}" if wanted else "this node has no network interface"
        yield Finding("nics", Level.WARNING, what, "correct nics in agent.toml")
        return
    known = [each for each in found if each.speed_bits_per_s]
    for each in found:
        speed = f"{each.speed_bits_per_s / 1e9:g} Gbit/s" if each.speed_bits_per_s else "speed not known"
        yield Finding("nics", Level.OK, f"{each.name}: {each.kind}, {speed}")
    if not known:
        what = "the speed of no interface is known: the throughput of a job alone cannot be predicted, only measured"
        yield Finding("nics", Level.WARNING, what, "on virtual interfaces this is normal; otherwise check the cable")
