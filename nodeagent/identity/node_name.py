"""The name that Slurm has for this node, from slurmd's command line and slurm.conf. Pure functions over files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.identity.procfs import ProcFiles
from policies.serving.runtime.finding import Level
from policies.serving.runtime.hostlist import expand

PLACES = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
"""Usual places of slurm.conf on a node; the second is that of configless Slurm."""

_PAIR = re.compile(r"(?<!\S)(\w+)\s*=\s*(\S+)")
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_MAX_FILES = 100
_WITH_VALUE = "BdfLnN"
"""Short options of slurmd that have a value."""


@dataclass(frozen=True, slots=True)
class SlurmNodes:
    """Nodes of a slurm.conf."""

    path: Path
    hosts: dict[str, str] = field(default_factory=dict)
    """Host name of each node (NodeHostname, which is the name of the node unless it is set)."""
    dynamic: bool = False
    """True with MaxNodeCount: nodes may register that are not in the file."""


@dataclass(frozen=True, slots=True)
class Slurmd:
    """Facts about a node from the command line of its slurmd."""

    name: str | None
    """Node name (-N); None without one: it follows from the host name."""
    dynamic: bool
    """True when the node need not be in slurm.conf (-Z, -F)."""


def judge(name: str, host: str, slurmds: Iterable[Slurmd], nodes: SlurmNodes | None) -> tuple[Level, str]:
    """Return whether a node name is right on this host (OK), wrong (ERROR) or cannot be checked (SKIPPED), with a sentence.

    `slurmds`: those that run on this host. Host names are compared up to their first dot.
    """
    slurmds = list(slurmds)
    right = Level.OK, f"Slurm knows this node as {name}"
    if named := sorted({slurmd.name for slurmd in slurmds if slurmd.name is not None}):
        wrong = f"slurmd runs here as {', '.join(named)}, and not as {name}"
        return right if name in named else (Level.ERROR, wrong)
    if nodes is None:
        return (
            Level.SKIPPED,
            f"{name} was not checked: no slurmd here was started with -N, and there is no slurm.conf to read",
        )
    here = sorted(node for node, hostname in nodes.hosts.items() if _short(hostname) == _short(host))
    if here:
        wrong = f"{nodes.path} has this host, {host}, as node {', '.join(here)}, and not as {name}"
        return right if name in here else (Level.ERROR, wrong)
    if name in nodes.hosts:
        return right
    if nodes.dynamic or not nodes.hosts or any(slurmd.dynamic for slurmd in slurmds):
        what = f"{name} was not checked: {nodes.path} does not list it, and nodes may join this cluster that are not listed there"
        return Level.SKIPPED, what
    return Level.ERROR, f"{nodes.path} has no node {name}"


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


def running_slurmds(proc: Path) -> Iterator[Slurmd]:
    """Yield the slurmd processes below /proc that root has started, or the user of this check: any other user can run a program
    with this name."""
    processes = ProcFiles(proc)
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if not words or Path(words[0]).name != "slurmd" or processes.user(int(entry.name)) not in {0, os.geteuid()}:
                continue
        except OSError:
            continue
        options = list(_options(words[1:]))
        names = [value for letter, value in options if letter == "N" and value]
        yield Slurmd(names[-1] if names else None, any(letter in "ZF" for letter, _ in options))


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the short options of slurmd with their values; several letters may share a word, as in -DZ."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word.startswith("--"):
            continue
        for at, letter in enumerate(word[1:], 2):
            if letter in _WITH_VALUE or letter == "F":  # the value of -F is optional, and in the same word
                yield letter, word[at:] or ("" if letter == "F" else next(rest, ""))
                break
            yield letter, ""


def read_nodes(places: Iterable[Path] = PLACES) -> SlurmNodes | None:
    """Return the nodes of the first slurm.conf that can be read ($SLURM_CONF, else a usual place); None without one."""
    for path in _named(places):
        try:
            lines = list(_lines(path, path.parent, [path]))
            dynamic = any(key.lower() == "maxnodecount" for line in lines for key, _ in _PAIR.findall(line))
            return SlurmNodes(path, dict(_hosts(lines)), dynamic)
        except (OSError, UnicodeDecodeError, ValueError):
            continue
    return None


def read_value(wanted: str, places: Iterable[Path] = PLACES) -> str:
    """Return the last value of a key in the first slurm.conf that can be read; "" without one. The key is in small letters."""
    for path in _named(places):
        try:
            lines = list(_lines(path, path.parent, [path]))
        except (OSError, UnicodeDecodeError):
            continue
        values = [value for line in lines for key, value in _PAIR.findall(line) if key.lower() == wanted]
        return values[-1].strip('"') if values else ""
    return ""


def _named(places: Iterable[Path]) -> Iterable[Path]:
    """Return the places of slurm.conf, or the one that $SLURM_CONF names."""
    named = os.environ.get("SLURM_CONF")
    return [Path(named)] if named else places


def _lines(path: Path, folder: Path, seen: list[Path]) -> Iterator[str]:
    """Yield the logical lines of a file and of those that it includes."""
    text = re.sub(r"\\[ \t]*\r?\n", " ", path.read_text())
    for line in text.splitlines():
        content = re.split(r"(?<!\\)#", line, maxsplit=1)[0]
        include = _INCLUDE.match(content)
        if include is None:
            yield content
        elif len(seen) < _MAX_FILES:
            seen.append(folder / include[1])
            yield from _lines(seen[-1], folder, seen)


def _hosts(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        pairs = {key.lower(): value for key, value in _PAIR.findall(line)}
        names = pairs.get("nodename", "")
        if not line.lstrip().lower().startswith("nodename") or names in {"", "DEFAULT"}:
            continue
        nodes = expand(names)
        hosts = expand(pairs["nodehostname"]) if "nodehostname" in pairs else nodes
        yield from zip(nodes, hosts if len(hosts) == len(nodes) else nodes, strict=True)
