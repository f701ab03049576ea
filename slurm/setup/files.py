"""Reading what is installed, and writing a plan: whole files or nothing, with a copy of what was there before."""

from __future__ import annotations

import glob
import os
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf
from slurm.setup import spank_build as setup_build
from slurm.setup.plan import FileChange, SetupPlan, Sources
from slurm.setup.spank_plan import PLUGIN_FOLDERS, Machine, SpankPlan, plugin_folder

USUAL_PLACES = (Path("/etc/slurm/slurm.conf"), Path("/etc/slurm-llnl/slurm.conf"), Path("/usr/local/etc/slurm.conf"))


def default_slurm_conf() -> Path:
    """The slurm.conf that Slurm's own commands would use: $SLURM_CONF, else the first of the usual places."""
    if named := os.environ.get("SLURM_CONF"):
        return Path(named)
    return next((path for path in USUAL_PLACES if path.is_file()), USUAL_PLACES[0])


def shipped_job_side() -> Path:
    """The folder that PyTorch jobs load, as it was installed with this package."""
    return Path(str(resources.files("nodeagent") / "jobside"))


def shipped_sources(job_side: Path | None = None, job_socket: Path = installed_files.JOB_SOCKET) -> Sources:
    """Our scripts, as they were installed with this package, for nodes that see that folder (none: ours) and that socket."""
    folder = resources.files("slurm.plugin")
    task_prolog = (folder / "hooks" / installed_files.TASK_PROLOG).read_text()
    return Sources(
        lua=(folder / installed_files.LUA_NAME).read_text(),
        event_hook=(folder / "hooks" / installed_files.EVENT_HOOK).read_text(),
        task_prolog=installed_files.with_job_side(task_prolog, job_side or shipped_job_side(), job_socket),
    )


def read_installed(path: Path) -> str | None:
    """Text of a file, None when there is none. Raises ConfigurationError when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}; run as root") from error


def included_files(folder: Path, pattern: str) -> list[Path]:
    """The files that an include line of a file in that folder names."""
    return [Path(found) for found in sorted(glob.glob(str(folder / pattern)))]  # noqa: PTH207 (the pattern may be absolute)


def look_at_machine(conf: SlurmConf, plugin_dir: Path | None, include: Path | None) -> Machine:
    """What the SPANK plugin of this machine could be built with, and whether it is there. Raises ConfigurationError."""
    usual = plugin_folder(conf)
    folder = plugin_dir or usual
    if folder is None:
        raise ConfigurationError(
            f"Slurm's plugins are in none or several of /{', /'.join(PLUGIN_FOLDERS)}: name their folder (PluginDir in "
            "`scontrol show config`): --plugin-dir FOLDER"
        )
    plugin = folder / setup_build.PLUGIN_NAME
    return Machine(
        conf=conf,
        digest=setup_build.source_digest(),
        slurm=setup_build.installed_release(conf.path),
        tools=setup_build.find_toolchain(include),
        plugin=plugin,
        found_by_name=usual is not None and folder.resolve() == usual.resolve(),
        there=setup_build.mark_of(plugin),
    )


@dataclass(frozen=True, slots=True)
class Written:
    """One file that was written, and the copy of what was there before."""

    path: Path
    backup: Path | None


def apply_plan(plan: SetupPlan) -> list[Written]:
    """Write every change. Scripts come before slurm.conf, so that slurm.conf never names a file that is not there.

    Raises ConfigurationError that names the file; files written before it stay written, and running again goes on.
    """
    return [_write(change) for change in plan.changes]


def apply_spank_plan(plan: SpankPlan) -> list[Written]:
    """Build the plugin, then write its line: plugstack.conf never names a plugin that is not there. Raises ConfigurationError."""
    written = []
    if plan.build is not None:
        setup_build.build(plan.build, plan.plugin)
        written.append(Written(plan.plugin, None))
    if plan.plugstack is not None:
        written.append(_write(plan.plugstack))
    return written


def _write(change: FileChange) -> Written:
    path = change.path.resolve()  # a link stays a link
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        backup = _back_up(path) if change.before is not None else None
        _replace(path, change)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error}; run as root") from error
    return Written(change.path, backup)


def _replace(path: Path, change: FileChange) -> None:
    """Put the new text in place in one step; owner and mode stay."""
    temporary = path.with_name(f".{path.name}.headway-{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(change.after)
            _keep_owner(file.fileno(), path, change.mode)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _keep_owner(descriptor: int, path: Path, mode: int) -> None:
    try:
        was = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, mode)
        return
    if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, was.st_uid, was.st_gid)
    os.fchmod(descriptor, was.st_mode & 0o7777)


def _back_up(path: Path) -> Path:
    """A copy beside it, with the same owner and mode; never over an earlier copy."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for attempt in range(100):
        backup = path.with_name(f"{path.name}.before-headway-{stamp}" + (f"-{attempt}" if attempt else ""))
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(path.read_bytes())
            _keep_owner(file.fileno(), path, 0o600)
        return backup
    raise FileExistsError(f"{path.name}.before-headway-{stamp}: taken a hundred times over")
