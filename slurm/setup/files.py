"""Read the installed files, and write a plan: each file as a whole, with a copy of the old one beside it."""

from __future__ import annotations

import glob
import os
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.cli.doctor.host import RealHost, UserFacts
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf, read_exactly, read_slurm_conf
from controller.slurm.configuration.lua_check import lua_error
from slurm.setup import spank_build as setup_build
from slurm.setup.draft import FileChange, ScriptChecks
from slurm.setup.folders import make_folder
from slurm.setup.plan import SetupPlan, Sources
from slurm.setup.spank_plan import PLUGIN_FOLDERS, Machine, SpankPlan, plugin_folder

BEFORE, WITH = "before-headway", "with-headway"
"""Parts of the names of copies: of files before an installation, and of files before it is taken back."""
SENT = Path("/run/slurm/conf/slurm.conf")
"""The copy that slurmd, or sackd, gets from slurmctld on a machine without files of its own (configless Slurm)."""
USUAL_PLACES = (
    Path("/etc/slurm/slurm.conf"),
    Path("/etc/slurm-llnl/slurm.conf"),
    Path("/usr/local/etc/slurm.conf"),
    SENT,
)
_MOST_BYTES = 8 << 20
"""Size up to which a file may be a slurm.conf."""

_ANY_USER = UserFacts("any user", -1, frozenset())
"""A user that owns no file and belongs to no group."""


def default_slurm_conf() -> Path:
    """Return the slurm.conf that Slurm's own commands would use: $SLURM_CONF, else the first of the usual places that exists."""
    if named := os.environ.get("SLURM_CONF"):
        return Path(named)
    return next((path for path in USUAL_PLACES if path.is_file()), USUAL_PLACES[0])


def is_sent(slurm_conf: Path) -> bool:
    """Return whether slurm.conf is a copy that slurmctld has sent: /run/slurm/conf leads to conf-cache in SlurmdSpoolDir.

    Text that is written there is lost with the next copy.
    """
    folders = {slurm_conf.parent, slurm_conf.parent.resolve()}
    return SENT.parent in folders or any(folder.name == "conf-cache" for folder in folders)


def require_own(slurm_conf: Path) -> None:
    """Raise ConfigurationError when slurm.conf is a copy that slurmctld has sent."""
    if is_sent(slurm_conf):
        raise ConfigurationError(
            f"{slurm_conf}: this is a copy that slurmctld has sent (configless Slurm), and the next one replaces it; run this "
            "command on slurmctld's machine, which has the file itself"
        )


def shipped_job_side() -> Path:
    """Return the folder from which PyTorch jobs import headway_job, as installed with this package."""
    return Path(str(resources.files("nodeagent"))).parent / "headway_job" / "src"


def shipped_sources(job_side: Path | None = None, job_socket: Path | None = None) -> Sources:
    """Return the scripts of this package, for nodes that see that folder and that socket (None: the usual ones)."""
    folder = resources.files("slurm.plugin")
    task_prolog = (folder / "hooks" / installed_files.TASK_PROLOG).read_text()
    return Sources(
        lua=(folder / installed_files.LUA_NAME).read_text(),
        event_hook=(folder / "hooks" / installed_files.EVENT_HOOK).read_text(),
        task_prolog=installed_files.with_job_side(
            task_prolog, job_side or shipped_job_side(), job_socket or installed_files.JOB_SOCKET
        ),
        job_side=job_side,
        job_socket=job_socket,
    )


def read_installed(path: Path) -> str | None:
    """Return the text of a file, None when it does not exist. Raises ConfigurationError when it cannot be read.

    Bytes that are no UTF-8 are kept for `write`.
    """
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}; run this command as root") from error


def other_clusters(conf: SlurmConf) -> list[SlurmConf]:
    """Return each file in the folder of slurm.conf that is the slurm.conf of another cluster, as its ClusterName says.

    Copies that this program has made, and files that cannot be read, are left out.
    """
    own, found = conf.value("ClusterName").lower(), []
    for path in sorted(conf.path.parent.iterdir()):
        if path in conf.texts or any(f".{label}-" in path.name for label in (BEFORE, WITH)) or not path.is_file():
            continue
        try:
            if path.stat().st_size > _MOST_BYTES or "clustername" not in read_exactly(path).lower():
                continue
            other = read_slurm_conf(path)
        except (OSError, ConfigurationError):
            continue
        if other.value("ClusterName").lower() not in {"", own}:
            found.append(other)
    return found


def script_checks() -> ScriptChecks:
    """Return the checks of scripts that this machine can make."""
    return ScriptChecks(lua_error, _readable_by, _runnable_by)


def _readable_by(path: Path, name: str) -> bool:
    """Return whether the user can read the file; True where this machine does not know the user or the file."""
    return _lets(path, name, 4)


def _runnable_by(path: Path, name: str | None) -> bool:
    """Return whether the user can run the script; None is any user. True where this machine does not know the user or the file."""
    return _lets(path, name, 4 | 1)


def _lets(path: Path, name: str | None, bits: int) -> bool:
    host = RealHost()
    user = _ANY_USER if name is None else host.user(int(name) if name.isdecimal() else name)
    if user is None or host.file(path) is None:
        return True
    needed = [(path, bits), *((folder, 1) for folder in path.resolve().parents)]
    return all((facts := host.file(each)) is None or facts.lets(user, rights) for each, rights in needed)


def included_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files that an include line in a file of that folder names, sorted."""
    return [Path(found) for found in sorted(glob.glob(str(folder / pattern)))]  # noqa: PTH207 (the pattern may be absolute)


def inspect_machine(conf: SlurmConf, plugin_dir: Path | None, include: Path | None) -> Machine:
    """Return the plugin that this machine has, and the tools to build it. Raises ConfigurationError."""
    usual = plugin_folder(conf)
    folder = plugin_dir or usual
    if folder is None:
        raise ConfigurationError(
            f"the folder of Slurm's plugins is not clear: none or several of /{', /'.join(PLUGIN_FOLDERS)} hold some. Name it by "
            "--plugin-dir FOLDER (it is PluginDir in `scontrol show config`)"
        )
    plugin = folder / setup_build.PLUGIN_NAME
    return Machine(
        conf=conf,
        digest=setup_build.source_digest(),
        slurm=setup_build.installed_release(conf.path),
        tools=setup_build.find_toolchain(include),
        plugin=plugin,
        found_by_name=usual is not None and folder.resolve() == usual.resolve(),
        installed=setup_build.build_id_of(plugin),
        sent=is_sent(conf.path),
    )


@dataclass(frozen=True, slots=True)
class Written:
    """One file that was written, and the copy of the old one, if there was one."""

    path: Path
    backup: Path | None


def apply_plan(plan: SetupPlan) -> list[Written]:
    """Write every change. Scripts are written before slurm.conf, so that slurm.conf never names a missing file.

    Raises ConfigurationError that names the file. Files written before it stay; the next run writes the others.
    """
    written = [write(change) for change in plan.changes]
    for path in plan.touched:
        try:
            os.utime(path)
        except OSError as error:
            raise ConfigurationError(f"{path}: its time cannot be renewed: {error}; run: touch {path}") from error
    return written


def apply_spank_plan(plan: SpankPlan) -> list[Written]:
    """Build the plugin, then write its line, so that plugstack.conf never names a missing plugin. Raises ConfigurationError."""
    written = []
    if plan.build is not None:
        setup_build.build(plan.build, plan.plugin)
        written.append(Written(plan.plugin, None))
    if plan.plugstack is not None:
        written.append(write(plan.plugstack))
    return written


def write(change: FileChange, label: str = BEFORE) -> Written:
    """Write one file, with a copy of the old one beside it that has `label` in its name. Raises ConfigurationError."""
    path = change.path.resolve()  # a symbolic link stays one
    try:
        make_folder(path.parent)
        backup = back_up(path, label) if change.before is not None and change.copied else None
        _replace(path, change)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error}; run this command as root") from error
    return Written(change.path, backup)


def _replace(path: Path, change: FileChange) -> None:
    """Replace the file in one step; owner and mode stay, and so do bytes that are no UTF-8."""
    temporary = path.with_name(f".{path.name}.headway-{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
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


def back_up(path: Path, label: str) -> Path:
    """Copy the file beside it, with the same owner and mode; an earlier copy is never overwritten. Raises OSError."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for attempt in range(100):
        backup = path.with_name(f"{path.name}.{label}-{stamp}" + (f"-{attempt}" if attempt else ""))
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(path.read_bytes())
            _keep_owner(file.fileno(), path, 0o600)
        return backup
    raise FileExistsError(
        f"{path.name}.{label}-{stamp}: a hundred copies with this name exist already; remove some of them"
    )
