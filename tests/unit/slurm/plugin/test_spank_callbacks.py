"""The SPANK plugin's callbacks, called by a program in the place of Slurm: they never return an error.

What Slurm does with an error of an optional plugin's callback differs between its releases.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slurm.setup.spank_build import Toolchain, find_toolchain

SOURCE = Path(__file__).parents[4] / "slurm" / "plugin" / "spank" / "headway.c"
CALLER = r"""
#include "%s"

static enum spank_context where;
static spank_opt_cb_f callbacks[16];
static int registered = 0;

enum spank_context spank_context(void) { return where; }
void slurm_error(const char *format, ...) { (void)format; fputs("refused\n", stderr); }
spank_err_t spank_setenv(spank_t s, const char *n, const char *v, int o)
{
    (void)s; (void)n; (void)v; (void)o;
    return ESPANK_ERROR;
}
spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank;
    callbacks[registered++] = option->cb;
    return ESPANK_ERROR;
}

/* caller CONTEXT OPTION VALUE [OPTION VALUE]: print what each callback returns. */
int main(int argc, char *argv[])
{
    int i;

    where = argv[1][0] == 'r' ? S_CTX_REMOTE : S_CTX_ALLOCATOR;
    printf("%%d\n", slurm_spank_init(NULL, 0, NULL));
    for (i = 2; i + 1 < argc; i += 2)
        printf("%%d\n", callbacks[0](atoi(argv[i]), argv[i + 1], where == S_CTX_REMOTE));
    printf("%%d\n", slurm_spank_init_post_opt(NULL, 0, NULL));
    return 0;
}
"""
MIN_GPUS, MAX_GPUS, PROFILE = "1", "2", "3"


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tools = find_toolchain(None)
    if not isinstance(tools, Toolchain):
        pytest.skip("; ".join(tools))
    folder = tmp_path_factory.mktemp("spank")
    (folder / "caller.c").write_text(CALLER % SOURCE)
    command = [
        *tools.compiler,
        "-std=c11",
        f"-I{tools.include}",
        "-o",
        str(folder / "caller"),
        str(folder / "caller.c"),
    ]
    subprocess.run(command, check=True, timeout=120)
    return folder / "caller"


def called(caller: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([caller, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "options",
    [
        (MIN_GPUS, "many"),
        (MAX_GPUS, "0"),
        (PROFILE, "on"),
        (MIN_GPUS, "8", MAX_GPUS, "2"),
    ],
)
def test_an_invalid_submission_is_ended_without_an_error_of_a_callback(caller: Path, options: tuple[str, ...]) -> None:
    done = called(caller, "allocator", *options)
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert set(done.stdout.split()) <= {"0"}


@pytest.mark.parametrize("context", ["allocator", "remote"])
def test_callbacks_return_success(caller: Path, context: str) -> None:
    """Even where Slurm itself refuses the option or the variable."""
    done = called(caller, context, MIN_GPUS, "2", PROFILE, "off")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["0"] * 4, "")


def test_on_a_node_nothing_is_refused(caller: Path) -> None:
    done = called(caller, "remote", MIN_GPUS, "many", PROFILE, "on")
    assert (done.returncode, done.stdout.split()) == (0, ["0"] * 4)
