"""A root of Debian that is up as a machine of its own: systemd as process 1, and no network but its own.

What runs inside changes nothing of the root: its changes are in memory, and are gone when the machine is stopped.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from slurm.minicluster.host import cgroups
from slurm.processes import children

BOOT_S = 180.0
"""Longest time until systemd has started what belongs to the boot."""
_COMMAND_WAITS_S = 30.0
"""Time after the limit of a command in which systemd must have ended it."""
CHECKOUT = Path("/srv/headway")
"""The checkout, inside; what runs there may change it."""
_SOURCE = Path("/run/headway-checkout")
_NSPAWN = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit")
_INTO_CGROUPS = (
    *("setpriv", "--pdeathsig", "KILL", "sh", "-c"),
    'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"',
    "into-cgroups",
)
"""Words before cgroups, "--" and a program."""
_ENDING_TOGETHER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
"""systemd inside outlives a systemd-nspawn that is killed, but not the PID namespace around both."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ContainerError(Exception):
    """A root cannot be built or booted: the text has the end of the output."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine that is seen inside, at the same path or another."""

    source: Path
    target: Path
    writable: bool = False

    def option(self) -> str:
        """Return the option of systemd-nspawn."""
        return f"--bind{'' if self.writable else '-ro'}={self.source}:{self.target}"


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    status: int
    output: str
    """Standard output and standard error together."""


class Container:
    """One root that is booted from `__enter__` to `__exit__`.

    Invariant: its processes and its changes end with it, also when this process is killed: they live in a PID namespace that
    ends with its parent, and in a file system in memory.
    """

    def __init__(self, root: Path, hostname: str, mounts: Sequence[Mount], checkout: Path, log: Path) -> None:
        """`checkout` is copied to CHECKOUT, where it may be changed."""
        self._root = root
        self._checkout = checkout
        self._hostname = hostname
        self._mounts = mounts
        self._log = log
        self._cgroups: list[Path] = []
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._init = 0

    def __enter__(self) -> Self:
        words = (
            *_NSPAWN,
            "--boot",
            "--private-network",
            "--volatile=overlay",
            "--console=pipe",
            "--capability=all",
            "--system-call-filter=@keyring bpf perf_event_open",
            f"--machine={self._hostname}",
            f"--directory={self._root}",
            *(mount.option() for mount in (*self._mounts, Mount(self._checkout, _SOURCE))),
        )
        # systemd of sid knows only v2. The hierarchies of v1 would be those of this machine, with the cgroups of others in them.
        environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        self._cgroups = _new_cgroups(self._hostname)
        with self._log.open("wb") as log:
            self._nspawn = subprocess.Popen(
                (*_enclosed(self._cgroups), *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        try:
            self._await_boot(time.monotonic() + BOOT_S)
            copied = self.bash(f"cp -a {_SOURCE} {CHECKOUT}", timeout_s=BOOT_S)
            if copied.status != 0:
                raise ContainerError(f"{self._root}: the checkout cannot be copied: {copied.output[-300:]}")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run(self, *words: str, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str = "/root") -> Done:
        """Run a program as root, as a service of the container's systemd, with a limit of its time."""
        unit = (
            "systemd-run",
            "--quiet",
            "--pipe",
            "--wait",
            "--collect",
            f"--working-directory={cwd}",
            f"--property=RuntimeMaxSec={timeout_s:.0f}",
            "--property=Delegate=yes",
            "--property=TasksMax=infinity",
            *(f"--setenv={key}={value}" for key, value in {"HOME": "/root", "PATH": _PATH, **(env or {})}.items()),
        )
        return self._enter(*unit, *words, timeout_s=timeout_s + _COMMAND_WAITS_S)

    def bash(self, text: str, *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str = "/root") -> Done:
        """Run a program for bash."""
        return self.run("bash", "-c", text, timeout_s=timeout_s, env=env, cwd=cwd)

    def _enter(self, *words: str, timeout_s: float) -> Done:
        enter = (
            "nsenter",
            f"--target={self._init}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
            "--root",
        )
        clean = ("env", "--ignore-environment", f"PATH={_PATH}", "LANG=C.UTF-8")
        try:
            done = subprocess.run(
                (*enter, "--", *clean, *words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return Done(124, (error.stdout or b"").decode(errors="replace"))
        return Done(done.returncode, done.stdout.decode(errors="replace"))

    def _await_boot(self, deadline: float) -> None:
        state = "no process 1"
        while time.monotonic() < deadline:
            assert self._nspawn is not None, "started by __enter__"
            if self._nspawn.poll() is not None:
                raise ContainerError(f"{self._root} does not boot: {tail(self._log)}")
            # systemd-nspawn has other children before this one
            self._init = _only_child(_only_child(self._nspawn.pid))
            if self._init:
                state = self._enter("systemctl", "is-system-running", timeout_s=10).output.strip()
                if state in {"running", "degraded"}:
                    return
            time.sleep(0.3)
        raise ContainerError(f"{self._root}: systemd is {state!r} after {BOOT_S:.0f} s: {tail(self._log)}")

    def _stop(self) -> None:
        if self._nspawn is not None:
            self._nspawn.kill()
            self._nspawn.wait()
            self._nspawn = None
            cgroups.remove(self._cgroups)


def _only_child(pid: int) -> int:
    """Return the pid of a process's child; 0 when there is none yet."""
    return next(iter(children(pid)), 0) if pid else 0


def _new_cgroups(name: str, root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Make a cgroup in each hierarchy that systemd uses: v2, perhaps beside v1 in a folder of its own, and its own of v1."""
    hierarchies = [
        folder for folder in (root, root / "unified", root / "systemd") if (folder / "cgroup.procs").exists()
    ]
    made = [folder / f"headway-{name}-{os.getpid()}" for folder in hierarchies]
    for folder in made:
        folder.mkdir()
    return made


def _enclosed(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the words before a program that runs in these cgroups, and that ends with this process, with all that it started."""
    return (*_INTO_CGROUPS, *map(str, folders), "--", *_ENDING_TOGETHER)


def build(root: Path, text: str, mounts: Sequence[Mount], env: Mapping[str, str], log: Path, timeout_s: float) -> None:
    """Run a program for bash that changes a root, with the network of this machine. Raises ContainerError."""
    words = (
        *_NSPAWN,
        "--pipe",
        "--resolv-conf=replace-host",
        f"--directory={root}",
        *(mount.option() for mount in mounts),
        *(f"--setenv={key}={value}" for key, value in env.items()),
    )
    folders = _new_cgroups(f"build-{root.name}")
    try:
        with log.open("ab") as output:
            done = subprocess.run(
                (*_enclosed(folders), *words, "bash", "-euc", text),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
    finally:
        cgroups.remove(folders)
    if done.returncode != 0:
        raise ContainerError(f"status {done.returncode}: {tail(log)}")


def tail(path: Path, lines: int = 6) -> str:
    """Return the end of a log on one line."""
    return (
        " | ".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else f"{path} is not there"
    )
