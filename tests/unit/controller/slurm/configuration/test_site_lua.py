"""The place from which a site's own job_submit.lua loads Headway's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from controller.slurm.configuration.site_lua import loads_ours, misplaced
from tests.unit.slurm.lua_plugin import LUAS, NO_LUA

SUBMIT = (
    "function slurm_job_submit(job)\nif job.account == 'no' then\nreturn slurm.ERROR\nend\nreturn slurm.SUCCESS\nend\n"
)
MODIFY = "slurm_job_modify = function(job)\n    for i = 1, 2 do repeat i = i + 1 until i > 1 end\n    return 0\nend\n"
SITE = SUBMIT + MODIFY
LINE = 'dofile("/etc/slurm/headway.lua")\n'
RETURN = 'slurm.log_info("initialized")\nreturn slurm.SUCCESS\n'

RIGHT = {
    "last line": SITE + LINE,
    "before the final return": SITE + LINE + RETURN,
    "by the final return": SITE + 'return dofile("/etc/slurm/headway.lua")\n',
    "by the final return, protected": SITE + 'return (pcall(\n    dofile, "/etc/slurm/headway.lua"))\n',
    "a path in a variable": 'local H = "/etc/slurm/headway.lua"\n' + SITE + "if H then dofile(H) end\nreturn 0\n",
    "a function that is called later": "local function load()\n" + LINE + "end\n" + SITE + "load()\nreturn 0\n",
    "a return in a comment": "--[[\nreturn 0\n]]\n-- return 0\n" + SITE + LINE,
    "a return in a string": "local help = [[\nreturn 0\n]]\nlocal other = 'return'\n" + SITE + LINE,
    "another file first": 'local json = require("json")\n' + SITE + LINE,
    "another file in a function": LINE.replace("\n", " -- loads\n")
    + "local f = function() return require('json') end\n",
    "a function around Headway's": LINE
    + "local inner = slurm_job_submit\nfunction slurm_job_submit(...)\n    return inner(...)\nend\nreturn 0\n",
    "a comparison": SITE + LINE + "if slurm_job_submit == nil then return 1 end\nreturn 0\n",
}
WRONG = {
    "after the final return": (SITE + RETURN + LINE, "line 13 loads Headway's script after the `return` of line 12"),
    "after a return of nothing": (
        SITE + "return;\n" + LINE,
        "line 12 loads Headway's script after the `return` of line 11",
    ),
    "before both functions": (LINE + SITE, "line 2 defines slurm_job_submit after it"),
    "between the functions": (SUBMIT + LINE + MODIFY + RETURN, "line 8 defines slurm_job_modify after it"),
    "after comments": (
        '--[[ a\nb ]]\ndofile("/etc/slurm/headway.lua") -- here\n' + SITE,
        "line 3 loads Headway's script",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_place_from_which_headways_functions_run(name: str) -> None:
    assert loads_ours(RIGHT[name])
    assert misplaced(RIGHT[name]) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_place_from_which_they_do_not_run_is_named_with_its_line(name: str) -> None:
    text, problem = WRONG[name]
    assert loads_ours(text)
    assert problem in (misplaced(text) or "")


def test_scripts_that_do_not_end_or_load_nothing() -> None:
    for text in ("", "--[[", "return", "end end return\n", 'require"headway"', "until dofile", '"' * 9, "[==[" * 9):
        misplaced(text)


@NO_LUA
@pytest.mark.parametrize("name", RIGHT)
def test_lua_understands_what_is_right(name: str, tmp_path: Path) -> None:
    assert compiles(RIGHT[name], tmp_path)


@NO_LUA
def test_lua_refuses_what_follows_a_return(tmp_path: Path) -> None:
    assert not compiles(WRONG["after the final return"][0], tmp_path)


def compiles(text: str, folder: Path) -> bool:
    """Return whether Lua can parse a script, as slurmctld does before it starts."""
    script, program = folder / "job_submit.lua", folder / "program.lua"
    script.write_text(text)
    program.write_text(f'assert(loadfile("{script}"))\n')
    command = next(iter(LUAS.values()))
    return subprocess.run([*command, program], capture_output=True, timeout=60, check=False).returncode == 0
