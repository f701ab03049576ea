"""Commands on scontrol's standard input, and the separation of its answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.slurm.scontrol.run import Completed
from controller.slurm.scontrol.scontrol import Scontrol, fits_on_a_line, sentence

SHOW = ["show job 5", "show job 6"]


class Shell:
    """Answers like scontrol, in one of the ways in which builds of it differ."""

    def __init__(self, answers: dict[str, str], *, prompt: bool = True, echo: bool = True, stderr: str = "") -> None:
        self._answers = answers
        self._prompt = "scontrol: " if prompt else ""
        self._echo = echo
        self._stderr = stderr
        self.calls: list[tuple[str, tuple[str, ...], list[str]]] = []

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        lines = stdin.decode().splitlines()
        self.calls.append((program, tuple(arguments), lines))
        output = "".join(f"{self._prompt}{self._shown(line)}{self._answer(line)}" for line in lines) + (
            self._prompt + "\n" if self._prompt else ""
        )
        return Completed(("scontrol", *arguments), 1 if self._stderr else 0, output.encode(), self._stderr)

    def _shown(self, line: str) -> str:
        """readline shows the end of a long line only."""
        shown = line if len(line) < 70 else f"\r<{line[-60:]}"
        return f"{shown}\n" if self._echo else ""

    def _answer(self, line: str) -> str:
        if line.startswith("show hostnames "):
            return f"{line.removeprefix('show hostnames ')}\n"
        return self._answers.get(line, "")


@pytest.mark.parametrize(("prompt", "echo"), [(True, True), (True, False), (False, False)])
async def test_each_question_gets_its_answer(*, prompt: bool, echo: bool) -> None:
    shell = Shell({"show job 5": "JobId=5 x \nscontrol: JobName=y\n", "show job 6": ""}, prompt=prompt, echo=echo)
    assert (await Scontrol(shell).query(SHOW)).sections == (b"JobId=5 x \nscontrol: JobName=y\n", b"")


@pytest.mark.parametrize(("prompt", "echo"), [(True, True), (True, False), (False, False)])
async def test_commands_come_first_and_print_nothing(*, prompt: bool, echo: bool) -> None:
    shell = Shell({"show job 5": "JobId=5\n"}, prompt=prompt, echo=echo)
    long = ["update", "JobId=5", f"ReqNodeList={','.join(f'n{number}' for number in range(50))}"]
    answers = await Scontrol(shell).query(["show job 5"], first=[["release", "6"], long])
    assert answers.sections == (b"JobId=5\n",)
    ((_, _, lines),) = shell.calls
    assert lines[:2] == ["release 6", " ".join(long)]


async def test_the_mark_at_the_end_of_an_answer_is_new_each_time() -> None:
    first, second = Shell({}), Shell({})
    await Scontrol(first).query(SHOW)
    await Scontrol(second).query(SHOW)
    assert first.calls[0][2][-1] != second.calls[0][2][-1]


async def test_free_text_goes_in_argv_as_it_is() -> None:
    shell = Shell({})
    text = "AdminComment=a \"b\" 'c'\nupdate JobId=1 Priority=9"
    await Scontrol(shell).query([], first=[["update", "JobId=5", text], ["release", "6"]])
    alone, batch = shell.calls
    assert alone == ("scontrol", ("update", "JobId=5", text), [])
    assert batch[2][0] == "release 6"


@pytest.mark.parametrize(
    ("word", "fits"),
    [
        ("AdminComment=headway:hold", True),
        ("ReqNodeList=n1,n-2.x_y", True),
        ("TresPerNode=gres/gpu:a100:4", True),
        ("AdminComment=", True),
        ("AdminComment=a b", False),
        ("AdminComment=a\nb", False),
        ('AdminComment="a"', False),
        ("AdminComment='", False),
        ("AdminComment=\\", False),
        ("AdminComment=é", False),
        ("x" * 4000, False),
    ],
)
def test_text_that_may_be_on_a_line(word: str, *, fits: bool) -> None:
    assert fits_on_a_line(["update", "JobId=5", word]) is fits


@pytest.mark.parametrize(
    "stderr",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "scontrol: fatal: Unable to process configuration file",
        "slurm_load_jobs error: Protocol authentication error",
    ],
)
async def test_a_slurmctld_that_is_away_is_reported(stderr: str) -> None:
    with pytest.raises(SlurmUnavailableError, match="scontrol ping"):
        await Scontrol(Shell({}, stderr=stderr)).query(SHOW)


async def test_other_errors_are_returned_to_the_caller() -> None:
    shell = Shell(
        {}, stderr="slurm_load_jobs error: Invalid job id specified\nslurm_load_jobs error: Invalid job id specified"
    )
    assert (await Scontrol(shell).query(SHOW)).complaints == "slurm_load_jobs error: Invalid job id specified"


class Rubbish:
    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        return Completed(("scontrol",), 0, b"usage: scontrol [rubbish]\x00\xff", "")


async def test_rubbish_is_reported() -> None:
    with pytest.raises(SlurmReplyError, match=r"answered 0 of 2 queries.*rubbish"):
        await Scontrol(Rubbish()).query(SHOW)


def test_messages_become_one_line() -> None:
    assert sentence("a\n b \na\n\n") == "a; b"
