"""Building the SPANK plugin against the headers of the Slurm that is installed.

Slurm loads a plugin only into the release (22.05, 24.11, ...) that it was built for. So a mark in the file says which source
and which Slurm it was made of, and a plugin is right when its mark is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from controller.base.errors import ConfigurationError
from slurm.errors import MiniClusterError
from slurm.processes import run, search_path

PLUGIN_NAME = "headway.so"
BUILD_PACKAGES = ("gcc", "libc6-dev", "libslurm-dev")
"""Debian's and Ubuntu's names of what a build needs."""
INCLUDE_FOLDERS = (Path("/usr/include"), Path("/usr/local/include"))
"""Where packages put slurm/spank.h."""

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
_HEADER_VERSION = re.compile(
    r"^#define\s+SLURM_VERSION_NUMBER\s+0x([0-9a-fA-F]{1,2})([0-9a-fA-F]{2})[0-9a-fA-F]{2}\s*$", re.M
)
_SLURM_VERSION = re.compile(r"^slurm\S* (\d+\.\d+)\.")
_MARK = re.compile(rb"headway-spank-source:(\w+)(?: for ([\d.]+))?\0")
_COMPILE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Mark:
    """What a plugin was made of."""

    digest: str
    """Of the source; the first 16 hexadecimal digits of its SHA-256."""
    release: str
    """Slurm's, without the patch level: "22.05"."""

    def __str__(self) -> str:
        """As it stands in the file."""
        return f"{self.digest} for {self.release}"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What a plugin can be built with, on this machine."""

    compiler: tuple[str, ...]
    """Command line; it may hold options, as $CC may."""
    include: Path
    """The folder that has slurm/spank.h."""
    release: str
    """Slurm's, that the headers belong to."""


def source_path() -> Path:
    """The plugin's source, as it was installed with this package."""
    return Path(str(resources.files("slurm.plugin") / "spank" / "headway.c"))


def source_digest() -> str:
    """What tells this source from others."""
    try:
        return hashlib.sha256(source_path().read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigurationError(
            f"{source_path()}: cannot be read: {error}; install headway-scheduler again"
        ) from error


def mark_of(plugin: Path) -> Mark | None:
    """What an installed plugin was made of (built by hand: it does not tell); None: there is none.

    Raises ConfigurationError when a file of that name is there that is not ours.
    """
    try:
        found = _MARK.search(plugin.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{plugin}: cannot be read: {error}; run as root") from error
    if found is None:
        raise ConfigurationError(f"{plugin}: is not Headway's, and stays: name another folder: --plugin-dir FOLDER")
    return Mark(found[1].decode(), (found[2] or b"").decode())


def installed_release(slurm_conf: Path) -> str | None:
    """Release of the Slurm whose programs are in PATH; None when there are none, or they do not tell."""
    for command in (("scontrol", "--version"), ("slurmd", "-V")):  # compute nodes may have the second only
        with contextlib.suppress(MiniClusterError):
            done = run(
                *command, env={**os.environ, "SLURM_CONF": str(slurm_conf)}
            )  # without one, scontrol tells nothing
            if found := _SLURM_VERSION.match(done.stdout):
                return found[1]
    return None


def header_release(include: Path) -> str | None:
    """Release that the headers in a folder belong to; None: no headers."""
    if not (include / "slurm" / "spank.h").is_file():
        return None
    try:
        found = _HEADER_VERSION.search((include / "slurm" / "slurm_version.h").read_text(errors="replace"))
    except FileNotFoundError:
        return None
    return f"{int(found[1], 16)}.{int(found[2], 16):02d}" if found else None


def find_toolchain(include: Path | None = None) -> Toolchain | list[str]:
    """What to build with, headers from that folder or from where packages put them; or what is missing, each with its mend."""
    folders = (include,) if include is not None else INCLUDE_FOLDERS
    folder, release = next(
        ((folder, release) for folder in folders if (release := header_release(folder))), (folders[0], None)
    )
    compiler = _compiler()
    missing = []
    if compiler is None:
        missing.append(f"no C compiler: install the packages {' '.join(BUILD_PACKAGES[:2])}, or name one in $CC")
    if release is None:
        where = " or ".join(str(folder / "slurm" / "spank.h") for folder in folders)
        missing.append(
            f"no headers of Slurm ({where}): install the package {BUILD_PACKAGES[2]} (slurm-devel where Slurm came as RPMs), "
            "or name the folder that has slurm/spank.h below it: --include FOLDER"
        )
    if compiler is None or release is None:
        return missing
    return Toolchain(compiler, folder, release)


def _compiler() -> tuple[str, ...] | None:
    path = search_path(os.environ.get("PATH", ""))
    if words := shlex.split(os.environ.get("CC", "")):
        return tuple(words) if shutil.which(words[0], path=path) else None
    return next(((found,) for name in _COMPILERS if (found := shutil.which(name, path=path))), None)


def build(toolchain: Toolchain, target: Path, more_flags: Sequence[str] = ()) -> None:
    """Put the plugin there in one step: programs that have an earlier one open keep it. Raises ConfigurationError."""
    mark = Mark(source_digest(), toolchain.release)
    temporary = target.with_name(f".{target.name}.headway-{os.getpid()}")
    define = f'-DHEADWAY_SOURCE="{mark}"'
    command = (*toolchain.compiler, *_FLAGS, *more_flags, define, f"-I{toolchain.include}")
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        run(*command, str(source_path()), "-o", str(temporary), timeout_s=_COMPILE_TIMEOUT_S)
        temporary.chmod(0o644)
        temporary.replace(target)
    except MiniClusterError as error:
        raise ConfigurationError(f"{target}: the plugin cannot be built: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{target}: cannot be written: {error}; run as root") from error
    finally:
        temporary.unlink(missing_ok=True)
