"""State of the slurmctld of a slurm.conf: what it uses of Headway, that none runs, or why that is not known."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from controller.slurm.configuration.conf import SlurmConf, list_items
from slurm.errors import MiniClusterError
from slurm.processes import run
from slurm.setup.record import real_path

_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 3.0
_LONGEST = 300
_DEFAULT_PORT = "6817"
_LINE = re.compile(r"^(\w+)(?:\[\d+\])?\s+= (.*)$", re.MULTILINE)
_HOST = re.compile(r"([^\s()]+)(?:\(([^\s()]+)\))?")
"""A value of SlurmctldHost: the name of a machine, and its address in parentheses where they differ."""
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_MOST_PORTS = 100
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class RunningSlurmctld:
    """Settings of a slurmctld that answered. Several values of one key, as Slurm 24.11 allows, are kept one by one."""

    settings: tuple[tuple[str, str], ...]

    def uses(self, key: str, path: Path) -> bool:
        """Return whether a setting names that program, by any of its paths."""
        named = [Path(value) for name, value in self.settings if name == key]
        return any(each.is_absolute() and real_path(each) == real_path(path) for each in named)

    def loads_lua(self) -> bool:
        """Return whether slurmctld runs a job_submit.lua."""
        return any(key == "JobSubmitPlugins" and "lua" in _plugins(value) for key, value in self.settings)


@dataclass(frozen=True, slots=True)
class UnknownSlurmctld:
    """No slurmctld answered, but one may run: `why` has the reason, without a full stop."""

    why: str


SlurmctldState = RunningSlurmctld | UnknownSlurmctld | None
"""None: certainly no slurmctld runs with this slurm.conf."""


def _plugins(value: str) -> list[str]:
    return [item.removeprefix("job_submit/") for item in list_items(value)]


def slurmctld_state(conf: SlurmConf, *, gone: bool = False, proc: Path = Path("/proc")) -> SlurmctldState:
    """Return the settings of the slurmctld that this slurm.conf leads to, None when certainly none runs, or what is not known.

    scontrol fails for many reasons (it is not on PATH, MUNGE is stopped, slurmctld is slow), so its failure proves nothing. It is
    certain only where every machine of slurmctld refuses connections and no such process runs on this one. `gone`: an operator
    has stated that none runs, which counts when none answers.
    """
    environment = {**os.environ, "SLURM_CONF": str(conf.path)}
    environment.pop("SLURM_CLUSTERS", None)  # scontrol would query another cluster
    try:
        done = run("scontrol", "show", "config", env=environment, timeout_s=_TIMEOUT_S)
    except (MiniClusterError, OSError) as error:
        why = str(error)
    else:
        running = parse_settings(done.stdout)
        if any(key == "ClusterName" for key, _ in running.settings):
            return running
        why = "scontrol show config printed no settings"
    doubt = None if gone else (_doubt_of_process(conf.path, proc) or _doubt_of_ports(conf))
    # scontrol repeats its attempts, and ends with the reason.
    return None if doubt is None else UnknownSlurmctld(f"{why.strip().splitlines()[-1][-_LONGEST:]}; {doubt}")


def parse_settings(text: str) -> RunningSlurmctld:
    """Return the settings in the output of `scontrol show config`."""
    return RunningSlurmctld(tuple((found[1], found[2].strip()) for found in _LINE.finditer(text)))


def _doubt_of_process(slurm_conf: Path, proc: Path) -> str | None:
    """Return the slurmctld below /proc that may use this slurm.conf; None when there is none."""
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            name = (entry / "comm").read_text().strip()
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:  # it has ended
            continue
        if name != "slurmctld" and Path(words[0] if words else "").name != "slurmctld":
            continue
        named = _conf_of(words)
        if named is None or not named.is_absolute() or named.resolve() == slurm_conf.resolve():
            return f"a slurmctld runs on this machine (process {entry.name})"
    return None


def _conf_of(words: list[str]) -> Path | None:
    """Return the slurm.conf in the command line of a slurmctld (-f); None when it names none."""
    for at, word in enumerate(words[1:], 1):
        if word == "-f" and at + 1 < len(words):
            return Path(words[at + 1])
        if word.startswith("-f") and len(word) > 2:
            return Path(word[2:])
    return None


def _doubt_of_ports(conf: SlurmConf) -> str | None:
    """Return why a slurmctld may run on one of its machines; None when each of them refuses connections."""
    try:
        addresses = _addresses(conf)
    except ValueError:
        return f"{conf.path} has no SlurmctldHost and SlurmctldPort that could be tried"
    for host, port in addresses:
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
        except ConnectionRefusedError:
            continue
        except OSError as error:
            return f"{host}, port {port}, was not reached: {error}"
        return f"a program listens at {host}, port {port}"
    return None


def _addresses(conf: SlurmConf) -> list[tuple[str, int]]:
    """Return host and port of each slurmctld that slurm.conf names. Raises ValueError when a value is not understood."""
    ports = _PORTS.fullmatch(conf.value("SlurmctldPort") or _DEFAULT_PORT)
    first, last = (int(ports[1]), int(ports[2] or ports[1])) if ports else (0, 0)
    hosts = [_HOST.fullmatch(setting.value) for setting in conf.settings if setting.key.lower() == "slurmctldhost"]
    if not (hosts and all(hosts) and 0 < first <= last <= min(first + _MOST_PORTS, _LAST_PORT)):
        raise ValueError
    return [(found[2] or found[1], port) for found in hosts if found for port in range(first, last + 1)]
