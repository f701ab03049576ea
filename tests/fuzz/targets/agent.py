"""Input of agents: frames of jobs, and files of /proc, /sys and cgroups in which users choose names and titles."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgpack
from headway_job.hook import msgpack as job_msgpack

from nodeagent.errors import FrameError, IdentityError
from nodeagent.identity import procfs
from nodeagent.identity.cgroup import JobCgroups
from nodeagent.identity.peer import JobProcess, slurm_cgroup
from nodeagent.identity.stepd import stepd_job
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.telemetry import sysfs
from nodeagent.wire import frames
from nodeagent.wire.frames import Hello
from tests.fuzz.target import Target
from tests.unit.nodeagent.identity.trees import process, stat
from tests.unit.nodeagent.wire.packets import fields, packet

_NOW_NS = 10**12
_KINDS = ("hello", "model", "steps", "profile", "checkpoint", "saved", "bye")
_TEXTS = (
    "12:cpuset:/slurm/uid_1000/job_7/step_batch\n1:name=systemd:/slurm/uid_1000/job_7/step_0/task_0\n",
    "0::/system.slice/n1_slurmstepd.scope/job_7/step_0/user/task_0\n",
    "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",
    "slurmstepd: [7.batch]",
    "/var/spool/slurmd/n1_7.4294967291",
    stat(100, start=5),
    "0-3,8,10-11",
    "100 Gb/sec (4X EDR)",
    "usage_usec 5000\nuser_usec 4000\n",
)


def read_frame(data: bytes, _folder: Path) -> object:
    """Parse a frame, take it into the registry of a node's jobs, and report."""
    frame = frames.parse(data)
    registry = JobRegistry()
    registry.opened(1, JobProcess(100, 1000, 1, 7, "0", "cgroup"), 1)
    hello = frame if isinstance(frame, Hello) else frames.parse(packet("hello"))
    registry.received(1, hello, 1)
    registry.received(1, frame, _NOW_NS)
    return registry.rows(_NOW_NS)


def from_agent() -> list[bytes]:
    """Return frames from an agent to a job."""
    return [
        frames.welcome(0, 1.0, 20),
        frames.profile_request(1, 20),
        frames.save_request(2, "p1.1", 60.0),
        frames.go_on_request(3, "p1.1"),
        job_msgpack.pack(fields("profile")),
    ]


def read_kernel_text(data: bytes, folder: Path) -> object:
    """Parse a text as each file of /proc, /sys and cgroups in turn."""
    text = data.decode("utf-8", "replace")
    for parse in (
        procfs.start_ticks,
        procfs.parent,
        procfs.masks,
        procfs.used,
        procfs.name,
        sysfs.cpu_list,
        slurm_cgroup,
    ):
        with suppress(ValueError, IdentityError):
            parse(text)
    stepd_job(text, text.splitlines())
    found = (sysfs.number(folder / "file"), sysfs.infiniband_bits_per_s(folder), sysfs.ethernet_bits_per_s(folder))
    cgroups = JobCgroups(procfs.ProcFiles(folder), folder)
    return found, cgroups.usage((("", "/job"), ("cpuacct", "/job")), (100,))


def kernel_file(data: bytes, folder: Path) -> object:
    """Write the text in place of the kernel's files, and read it."""
    (folder / "job").mkdir(exist_ok=True)
    (folder / "100").mkdir(exist_ok=True)
    for name in ("file", "rate", "speed", "job/cpu.stat", "100/stat"):
        (folder / name).write_bytes(data)
    return read_kernel_text(data, folder)


def processes() -> list[bytes]:
    """Return kernel texts."""
    return [text.encode() for text in (*_TEXTS, *(str(text) for text in process(100).values()))]


AGENT = (
    Target(
        "job-frames",
        "frames from a job to its agent: any user may send anything",
        "msgpack",
        lambda: [packet(kind) for kind in _KINDS] + [msgpack.packb(fields("profile", busy_s=0.1))],
        read_frame,
        (FrameError,),
        cost=1,
    ),
    Target(
        "agent-frames",
        "frames from an agent to a job, in the user's process",
        "msgpack",
        from_agent,
        lambda data, _folder: job_msgpack.unpack(data),
        (ValueError,),
        cost=1,
    ),
    Target("kernel-texts", "/proc, /sys and cgroups", "text", processes, kernel_file, (OSError,), cost=8),
)
