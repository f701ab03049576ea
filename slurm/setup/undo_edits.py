"""slurm.conf as it would be without Headway. Pure functions, except that links are resolved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import Setting, SlurmConf, list_items
from controller.slurm.configuration.editing import (
    below_heading,
    block_of,
    with_block,
    with_changed,
    without,
    without_heading,
    without_item,
)
from slurm.setup.draft import ReadFile
from slurm.setup.lua_plan import LUA_PLUGIN
from slurm.setup.plan import NO_DELAY
from slurm.setup.record import Edit, Record, real_path

HOOK_KEYS = (*installed_files.EVENT_KEYS, "TaskProlog")
"""Keys whose whole value is a program of Headway."""
ITEMS = {"JobSubmitPlugins": LUA_PLUGIN, "SchedulerParameters": NO_DELAY}
"""Keys to whose value an item was added."""


@dataclass(frozen=True, slots=True)
class UndoneEdits:
    """The configuration without Headway, and what stays in it."""

    conf: SlurmConf
    notes: tuple[str, ...]


def undo_edits(conf: SlurmConf, record: Record | None, read: ReadFile) -> UndoneEdits:
    """Take back what was added to slurm.conf and the files that it includes. Raises ConfigurationError."""
    notes: list[str] = []
    own_lua = conf.path.parent / installed_files.LUA_NAME
    lua_text = read(own_lua)
    lua_is_ours = _is_script(read, own_lua)
    is_known = record is not None and record.complete
    for edit in reversed(record.edits if record else ()):
        if edit.key == "JobSubmitPlugins" and record and record.wrote(own_lua) and not lua_is_ours and lua_text:
            notes.append(f"JobSubmitPlugins keeps {LUA_PLUGIN}, because {own_lua} is your own script now")
            continue
        conf = _undo(conf, edit)
    for key in HOOK_KEYS:
        conf = _without_hooks(conf, key, record, read, notes)
    if lua_is_ours and (found := _with_item(conf, "JobSubmitPlugins")):
        if is_known:
            notes.append(
                f"{LUA_PLUGIN} is removed from JobSubmitPlugins, although it was there before the installation: the only script is "
                "Headway's, and slurmctld does not start without one"
            )
        conf = _without_item(conf, found)
    if not is_known:
        conf = _without_unrecorded(conf, notes)
        if lua_text and not lua_is_ours and _is_script(read, own_lua.with_name(installed_files.CHAINED_LUA_NAME)):
            notes.append(f"JobSubmitPlugins keeps {LUA_PLUGIN}. There is no record whether it was there for {own_lua}")
    newline_added = record is not None and record.newline_added
    return UndoneEdits(without_heading(conf, newline_was_added=newline_added), tuple(notes))


def _without_unrecorded(conf: SlurmConf, notes: list[str]) -> SlurmConf:
    """Remove batch_sched_delay=0 where it is alone in a line below the heading; elsewhere an operator may have set it."""
    found = _with_item(conf, "SchedulerParameters")
    if found is not None and found.value == NO_DELAY and below_heading(conf, found):
        return without(conf, found)
    if found is not None:
        notes.append(
            f"left behind: {NO_DELAY} in SchedulerParameters ({found.path}, line {found.first_line + 1}). There is no record "
            "whether Headway added it; remove it if you did not set it yourself"
        )
    return conf


def _is_script(read: ReadFile, path: Path) -> bool:
    """Return whether a file is a script of Headway."""
    return installed_files.script_version(read(path) or "") is not None


def _undo(conf: SlurmConf, edit: Edit) -> SlurmConf:
    """Restore the lines of an edit; where an operator has changed them since, remove only what was added."""
    for setting in reversed(conf.settings):
        block = block_of(conf, setting)
        # The last line of a file may have got its newline later.
        if setting.key.lower() == edit.key.lower() and block.rstrip("\n") == edit.after.rstrip("\n"):
            end = "\n" if block.endswith("\n") else ""
            return with_block(conf, setting, "" if edit.before is None else edit.before.rstrip("\n") + end)
    found = _with_item(conf, edit.key)
    return _without_item(conf, found) if found else conf


def _with_item(conf: SlurmConf, key: str) -> Setting | None:
    """Return the last setting of a key that contains what Headway adds to it; None when there is none."""
    if key not in ITEMS:
        return None
    return next(
        (
            setting
            for setting in reversed(conf.settings)
            if setting.key.lower() == key.lower() and _item_of(setting) is not None
        ),
        None,
    )


def _item_of(setting: Setting) -> str | None:
    """Return the item of Headway as the setting writes it; None when it is not there."""
    wanted = next(item for key, item in ITEMS.items() if key.lower() == setting.key.lower())
    return next((item for item in list_items(setting.value) if item.removeprefix("job_submit/") == wanted), None)


def _without_item(conf: SlurmConf, setting: Setting) -> SlurmConf:
    rest = without_item(setting.value, _item_of(setting) or "")
    return with_changed(conf, setting, rest) if list_items(rest) else without(conf, setting)


def _without_hooks(conf: SlurmConf, key: str, record: Record | None, read: ReadFile, notes: list[str]) -> SlurmConf:
    """Remove every setting of the key whose program is Headway's."""
    hook = conf.path.parent / installed_files.HOOKS_FOLDER / installed_files.EVENT_HOOK
    ours = {real_path(path) for path in (hook, *(record.files if record else ()))}
    while found := next(
        (
            setting
            for setting in conf.settings
            if setting.key.lower() == key.lower()
            and (real_path(Path(setting.value)) in ours or _is_script(read, Path(setting.value)))
        ),
        None,
    ):
        conf = without(conf, found)
        note = f"left behind: {found.value}, a script of Headway that this program did not install"
        if real_path(Path(found.value)) not in ours and key != "TaskProlog" and note not in notes:
            notes.append(note)
    return conf
