"""Scripts that several clusters share, since their slurm.conf are in one folder. Pure functions, except that links are resolved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf, list_items
from slurm.setup.draft import ReadFile
from slurm.setup.lua_plan import LUA_PLUGIN
from slurm.setup.record import real_path


def user_of(path: Path, key: str, others: Sequence[SlurmConf], read: ReadFile) -> SlurmConf | None:
    """Return the first of the other clusters that runs a script through that key of its slurm.conf; None when none does."""
    return next((other for other in others if _runs(other, path, key, read)), None)


def _runs(conf: SlurmConf, path: Path, key: str, read: ReadFile) -> bool:
    if key == "JobSubmitPlugins":
        plugins = [item.removeprefix("job_submit/") for item in list_items(conf.value(key))]
        return path.parent == conf.path.parent and LUA_PLUGIN in plugins
    keys = installed_files.EVENT_KEYS if key in installed_files.EVENT_KEYS else (key,)
    # The name of the event hook is enough, since a script may put its path together.
    name = path.name if key in installed_files.EVENT_KEYS else str(path)
    for program in filter(None, (conf.value(each) for each in keys)):
        if real_path(Path(program)) == real_path(path):
            return True
        text = read(Path(program)) or ""
        if installed_files.script_version(text) is None and installed_files.calls_ours(text, name):
            return True
    return False


def require_same_runtime_dir(folder: Path, runtime_dir: Path, others: Sequence[SlurmConf], read: ReadFile) -> None:
    """Raise ConfigurationError when a script of this folder that another cluster runs belongs to a controller elsewhere."""
    scripts = {
        folder / installed_files.LUA_NAME: "JobSubmitPlugins",
        folder / installed_files.CHAINED_LUA_NAME: "JobSubmitPlugins",
        folder / installed_files.HOOKS_FOLDER / installed_files.EVENT_HOOK: installed_files.EVENT_KEYS[0],
    }
    for path, key in scripts.items():
        text = read(path) or ""
        there = installed_files.runtime_dir_of(text) if installed_files.script_version(text) is not None else None
        if there in {None, runtime_dir} or (other := user_of(path, key, others, read)) is None:
            continue
        raise ConfigurationError(
            f"{path}: this script has the runtime_dir {there}, and {other.path} (ClusterName={other.value('ClusterName')}) uses it "
            f"too, so it is not changed to {runtime_dir}. Give both controllers the same runtime_dir (on different machines), or "
            "move the slurm.conf of one cluster to a folder of its own: Slurm looks for job_submit.lua beside slurm.conf"
        )
