"""The name that Slurm has for this node, from slurmd's command line and slurm.conf. Pure functions over files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from policies.serving.runtime.hostlist import expand

PLACES = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"))
"""Usual places of slurm.conf on a node; the second is that of configless Slurm."""

_PAIR = re.compile(r"(?<!\S)(\w+)\s*=\s*(\S+)")
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class SlurmNodes:
    """Nodes of a slurm.conf."""

    path: Path
    hosts: dict[str, str] = field(default_factory=dict)
    """Host name of each node (NodeHostname, which is the name of the node unless it is set)."""


def problem_of(name: str, host: str, slurmd: Iterable[str], nodes: SlurmNodes | None) -> str:
    """Return why a node name is wrong on this host; empty when it is right, or nothing is known.

    `slurmd`: the names that slurmd processes of this host were started with (-N).
    """
    named = sorted(slurmd)
    if named:
        return "" if name in named else f"slurmd runs here as {', '.join(named)}, and not as {name}"
    if nodes is None or not nodes.hosts:
        return ""
    here = sorted(node for node, hostname in nodes.hosts.items() if hostname == host)
    if here and name not in here:
        return f"{nodes.path} has this host, {host}, as node {', '.join(here)}, and not as {name}"
    if name not in nodes.hosts:
        return f"{nodes.path} has no node {name}"
    return ""


def slurmd_names(proc: Path) -> Iterator[str]:
    """Yield the node names in the command lines of the slurmd processes below /proc; none for those that have no -N."""
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if not words or Path(words[0]).name != "slurmd":
            continue
        for at, word in enumerate(words[1:], 1):
            if word == "-N" and at + 1 < len(words):
                yield words[at + 1]
            elif word.startswith("-N") and len(word) > 2:
                yield word[2:]


def read_nodes(places: Iterable[Path] = PLACES) -> SlurmNodes | None:
    """Return the nodes of the first slurm.conf that can be read ($SLURM_CONF, else a usual place); None without one."""
    named = os.environ.get("SLURM_CONF")
    for path in [Path(named)] if named else places:
        try:
            return SlurmNodes(path, dict(_hosts(_lines(path, path.parent, [path]))))
        except (OSError, UnicodeDecodeError, ValueError):
            continue
    return None


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
