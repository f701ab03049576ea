"""Build the SPANK plugin with the headers of the installed Slurm.

A release of Slurm (22.05, 24.11, ...) loads only plugins that were built for it. So each plugin has a build id: the digest of
its source, and its release of Slurm. A plugin is current when its build id is.
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
from slurm.setup.folders import make_folder

PLUGIN_NAME = "headway.so"
BUILD_PACKAGES = ("gcc", "libc6-dev", "libslurm-dev")
"""Packages of Debian and Ubuntu that a build needs."""
INCLUDE_FOLDERS = (Path("/usr/include"), Path("/usr/local/include"))
"""Folders into which packages put slurm/spank.h."""

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
_HEADER_VERSION = re.compile(
    r"^#define\s+SLURM_VERSION_NUMBER\s+0x([0-9a-fA-F]{1,2})([0-9a-fA-F]{2})[0-9a-fA-F]{2}\s*$", re.M
)
_SLURM_VERSION = re.compile(r"^slurm\S* (\d+\.\d+)\.")
_BUILD_ID = re.compile(rb"headway-spank-source:(\w+)(?: for ([\d.]+))?\0")
_COMPILE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class BuildId:
    """The source from which a plugin was built, and the release of Slurm for which it was built."""

    digest: str
    """First 16 hexadecimal digits of the SHA-256 of the source."""
    release: str
    """Release of Slurm without the patch level: "22.05"."""

    def __str__(self) -> str:
        """Return the text of the build id in the file."""
        return f"{self.digest} for {self.release}"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler and headers of Slurm on this machine."""

    compiler: tuple[str, ...]
    """Command line of the compiler; like $CC, it may hold options."""
    include: Path
    """Folder that holds slurm/spank.h."""
    release: str
    """Release of Slurm to which the headers belong."""


def source_path() -> Path:
    """Return the source of the plugin, as installed with this package."""
    return Path(str(resources.files("slurm.plugin") / "spank" / "headway.c"))


def source_digest() -> str:
    """Return a digest of the source of the plugin."""
    try:
        return hashlib.sha256(source_path().read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigurationError(f"{source_path()}: cannot be read: {error}; reinstall headway-scheduler") from error


def build_id_of(plugin: Path) -> BuildId | None:
    """Return the build id of an installed plugin, None when there is no plugin. The id of one that was built by hand is empty.

    Raises ConfigurationError when the file is not the plugin of Headway.
    """
    try:
        found = _BUILD_ID.search(plugin.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{plugin}: cannot be read: {error}; run this command as root") from error
    if found is None:
        raise ConfigurationError(
            f"{plugin}: this file is not the plugin of Headway, so it is not replaced; name another folder by --plugin-dir FOLDER"
        )
    return BuildId(found[1].decode(), (found[2] or b"").decode())


def installed_release(slurm_conf: Path) -> str | None:
    """Return the release of the Slurm whose programs are in PATH; None when there are none, or they report none."""
    for command in (("scontrol", "--version"), ("slurmd", "-V")):  # compute nodes may have the second only
        with contextlib.suppress(MiniClusterError):
            # Without a slurm.conf, scontrol does not report its version
            done = run(*command, env={**os.environ, "SLURM_CONF": str(slurm_conf)})
            if found := _SLURM_VERSION.match(done.stdout):
                return found[1]
    return None


def header_release(include: Path) -> str | None:
    """Return the release to which the headers in a folder belong; None when there are no headers."""
    if not (include / "slurm" / "spank.h").is_file():
        return None
    try:
        found = _HEADER_VERSION.search((include / "slurm" / "slurm_version.h").read_text(errors="replace"))
    except FileNotFoundError:
        return None
    return f"{int(found[1], 16)}.{int(found[2], 16):02d}" if found else None


def find_toolchain(include: Path | None = None) -> Toolchain | list[str]:
    """Return tools for a build, with headers from `include` or the usual folders; or what is missing, with what to do."""
    folders = (include,) if include is not None else INCLUDE_FOLDERS
    folder, release = next(
        ((folder, release) for folder in folders if (release := header_release(folder))), (folders[0], None)
    )
    compiler = _compiler()
    missing = []
    if compiler is None:
        missing.append(f"no C compiler: install the packages {' '.join(BUILD_PACKAGES[:2])}, or set $CC")
    if release is None:
        where = " or ".join(str(folder / "slurm" / "spank.h") for folder in folders)
        missing.append(
            f"no headers of Slurm ({where}): install the package {BUILD_PACKAGES[2]} (slurm-devel where Slurm was installed from "
            "RPMs), or name the folder that holds slurm/spank.h by --include FOLDER"
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
    """Build the plugin, and put it in place in one step: programs that have the old one open keep it. Raises ConfigurationError."""
    build_id = BuildId(source_digest(), toolchain.release)
    temporary = target.with_name(f".{target.name}.headway-{os.getpid()}")
    define = f'-DHEADWAY_SOURCE="{build_id}"'
    command = (*toolchain.compiler, *_FLAGS, *more_flags, define, f"-I{toolchain.include}")
    try:
        make_folder(target.parent)
        run(*command, str(source_path()), "-o", str(temporary), timeout_s=_COMPILE_TIMEOUT_S)
        temporary.chmod(0o644)
        temporary.replace(target)
    except MiniClusterError as error:
        raise ConfigurationError(f"{target}: the plugin cannot be built: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{target}: cannot be written: {error}; run this command as root") from error
    finally:
        temporary.unlink(missing_ok=True)
