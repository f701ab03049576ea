"""Run job_submit.lua in a real Lua, with a stand-in for slurmctld."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.base.lease import Lease, write_lease
from controller.slurm.configuration import installed_files
from tests.birthmarks import without_birthmark

SCRIPT = Path(__file__).parents[3] / "slurm" / "plugin" / "job_submit.lua"
NO_VAL = 4294967294
RELEASE = 4294967295

_PRELUDE = """
local function logger(level)
    return function(format, ...) print("log\\t" .. level .. "\\t" .. string.format(format, ...)) end
end
slurm = {SUCCESS = 0, ERROR = -1, log_info = logger("info"), log_error = logger("error"), log_user = logger("user")}
local function show(code, job)
    print("code\\t" .. string.format("%.0f", code))
    for key, value in pairs(job) do print("field\\t" .. key .. "\\t" .. tostring(value)) end
end
"""

_LIBRARY_RUNNER = """
import ctypes, sys
lua = ctypes.CDLL("liblua5.1.so.0")
lua.luaL_newstate.restype = ctypes.c_void_p
lua.luaL_openlibs.argtypes = [ctypes.c_void_p]
lua.luaL_loadfile.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
lua.lua_pcall.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
lua.lua_tolstring.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
lua.lua_tolstring.restype = ctypes.c_char_p
state = lua.luaL_newstate()
lua.luaL_openlibs(state)
failed = lua.luaL_loadfile(state, sys.argv[1].encode()) or lua.lua_pcall(state, 0, 0, 0)
if failed:
    sys.exit(lua.lua_tolstring(state, -1, None).decode())
ctypes.CDLL(None).fflush(None)
"""


def interpreters() -> dict[str, tuple[str, ...]]:
    """Every Lua of this machine: name to the command that runs a file. The first is the library that slurmctld itself loads."""
    found: dict[str, tuple[str, ...]] = {}
    try:
        ctypes.CDLL("liblua5.1.so.0")
        found["liblua5.1"] = (sys.executable, "-c", _LIBRARY_RUNNER)
    except OSError:
        pass
    for name in ("lua5.1", "luajit", "lua5.3", "lua5.4"):
        if path := shutil.which(name):
            found[name] = (path,)
    return found


class Bare(str):
    """Lua source that is not quoted as a string."""

    __slots__ = ()


@dataclass
class Answer:
    """Result of a call: its status, the job after it, and the log."""

    code: int
    job: dict[str, str] = field(default_factory=dict)
    logs: list[tuple[str, str]] = field(default_factory=list)
    asked_s: float = 0.0
    """Time before the call."""

    @property
    def admin_comment(self) -> str:
        """The admin comment that the script has set, without the birthmark that it must have; empty if it has set none."""
        comment = self.job.get("admin_comment", "")
        assert not comment or "headway:id=" in comment
        return without_birthmark(comment)

    def logged(self, level: str) -> str:
        return "\n".join(text for at, text in self.logs if at == level)


class LuaPlugin:
    """The script, and the runtime folder that it looks into."""

    def __init__(self, command: tuple[str, ...], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self.runtime_dir = folder / "run"
        self.runtime_dir.mkdir()
        self.holds = self.runtime_dir / "holds"
        self.holds.mkdir()
        self.script = folder / "job_submit.lua"
        self.script.write_text(installed_files.with_runtime_dir(SCRIPT.read_text(), self.runtime_dir))

    def beat(self, age_s: float = 0, room: int = 65536, **changes: object) -> None:
        """The controller renews its lease."""
        values = {"stale_after_s": 30, "partitions": ("dl", "gpu"), "controller_uid": 64030, "wake_room_bytes": room}
        write_lease(self.runtime_dir / "lease", Lease(time_s=int(time.time() - age_s), **{**values, **changes}))  # type: ignore[arg-type]

    def lua(self, body: str) -> list[str]:
        """Run Lua after the script was loaded; the printed lines."""
        program = self._folder / "program.lua"
        program.write_text(f'{_PRELUDE}\ndofile("{self.script}")\n{body}\n')
        done = subprocess.run((*self._command, str(program)), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def submit(self, _before: str = "", limits: str = "", **job: object) -> Answer:
        """sbatch: `job` are the fields of job_desc that differ from a plain GPU job; `limits` is Lua that changes `parts`."""
        fields = {"script": "#!/bin/sh", "tres_per_node": "gres:gpu:2", "priority": NO_VAL, "het_job_offset": NO_VAL}
        asked_s = time.time()
        answer = _parse(
            self.lua(
                f"{_before}\nlocal job = {_table({**fields, **job})}\n"
                "local parts = {dl = {flag_default = 1}, gpu = {flag_default = 0}, other = {flag_default = 0}}\n"
                f"{limits}\n"
                "show(slurm_job_submit(job, parts, 1001), job)"
            )
        )
        answer.asked_s = asked_s
        return answer

    def modify(self, record: dict[str, object], uid: int = 1001, before: str = "", **change: object) -> Answer:
        """scontrol update: `change` are the fields of job_desc that the user set."""
        fields = {"priority": NO_VAL, "begin_time": 0, "nice": NO_VAL}
        job_id = {"job_id": 7, "user_id": 1001, "partition": "dl", "tres_per_job": "gres:gpu:2"}
        base = {**job_id, "priority": 0, "admin_comment": "headway:hold", "begin_time": 0, "array_job_id": 0}
        return _parse(
            self.lua(
                f"{before}\nlocal job = {_table({**fields, **change})}\n"
                f"show(slurm_job_modify(job, {_table({'array_task_id': NO_VAL, **base, **record})}, {{}}, {uid}), job)"
            )
        )


def _parse(lines: list[str]) -> Answer:
    answer = Answer(code=-999)
    for line in lines:
        match line.split("\t"):
            case ["code", code]:
                answer.code = int(code)
            case ["field", key, value]:
                answer.job[key] = value
            case ["log", level, *text]:
                answer.logs.append((level, "\t".join(text)))
    return answer


def _table(values: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key} = {_literal(value)}" for key, value in values.items() if value is not None) + "}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and not isinstance(value, Bare) else str(value)


class Pipe:
    """The wake pipe, and the controller's end of it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def lines(self) -> list[str]:
        try:
            return os.read(self.fd, 65536).decode().splitlines()
        except BlockingIOError:
            return []

    def fill(self) -> None:
        try:
            while True:
                os.write(self.fd, b"x")
        except BlockingIOError:
            return


def untouched(answer: object) -> bool:
    return answer.code == 0 and "admin_comment" not in answer.job and answer.job["priority"] == "4294967294"  # type: ignore[attr-defined]


def checked_by_slurm(answer: Answer) -> bool:
    """Return whether the job is not held, but may not start for some seconds."""
    begin_s = int(answer.job["begin_time"])
    soon = begin_s - answer.asked_s > 0 and begin_s - time.time() <= 30
    return soon and answer.job["priority"] == str(NO_VAL) and answer.admin_comment == f"headway:check={begin_s}"


LUAS = interpreters()
NO_LUA = pytest.mark.skipif(not LUAS, reason="no Lua here; Slurm's packages bring liblua5.1")
HELD = 2042
"""Status of a refused change: ESLURM_JOB_HELD."""
