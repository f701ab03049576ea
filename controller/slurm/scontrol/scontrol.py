"""One scontrol process for many commands: writes its input, and separates its answers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.base.text import clip
from controller.slurm.scontrol.run import CommandRunner, Completed

_PLAIN_WORD = re.compile(r"[\w.,:/=@+\-]*", re.ASCII)
_LONGEST_LINE = 3500
_PROMPT = b"scontrol: "
_ECHOED_QUERY = b"show hostnames "
_AWAY = re.compile(
    r"unable to contact slurm controller|connection (?:refused|timed out|failure)|socket timed out|zero bytes|"
    r"controller not responding|unable to establish|communication connection|unable to process configuration|"
    r"could not establish a configuration source|protocol authentication error|invalid (?:authentication|auth) credential|"
    r"munge encode failed|in standby|slurm backup controller",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of scontrol to several queries."""

    sections: tuple[bytes, ...]
    completed: Completed

    @property
    def complaints(self) -> str:
        """Slurm's own messages in one line, each once."""
        return sentence(self.completed.stderr)


class Scontrol:
    """Runs scontrol, one process for each batch of commands.

    Invariant: only words of `_PLAIN_WORD` are ever written to its standard input, where a space would begin a new word and
    a line break a new command. Everything else goes in argv, which scontrol takes as it is.
    """

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner
        self._separator = f"end{secrets.token_hex(8)}"

    async def query(self, queries: Sequence[str], *, first: Sequence[Sequence[str]] = ()) -> Answers:
        """Carry out the commands in `first`, then answer the queries, all within one process.

        The effect of the commands is not checked here: the queries show it. Commands with free text run before, each in a
        process of its own. Raises SlurmUnavailableError when slurmctld does not answer.
        """
        lines = []
        for words in first:
            if fits_on_a_line(words):
                lines.append(" ".join(words))
            else:
                require_contact(await self._runner.run("scontrol", words))
        # The answer to this query is the name itself, so an unguessable line ends each answer, and the echo of the commands.
        separator = f"show hostnames {self._separator}"
        lines.append(separator)
        for query in queries:
            lines += [query, separator]
        text = "".join(f"{line}\n" for line in lines)
        # --local: this cluster alone, which saves a query about federations before each of ours.
        completed = await self._runner.run("scontrol", ["-o", "-d", "-a", "--local"], text.encode())
        require_contact(completed)
        sections = _sections(completed.stdout, f"{self._separator}\n".encode(), frozenset(lines))
        if len(sections) != len(queries) + 1:
            raise SlurmReplyError(
                f"scontrol answered {max(len(sections) - 1, 0)} of {len(queries)} queries (status {completed.status}, "
                f"{clip(completed.stderr) or 'no error message'}): {clip(completed.stdout)}"
            )
        return Answers(sections[1:], completed)

    async def complaint(self, words: Sequence[str]) -> str:
        """Carry out one command alone, and return Slurm's message about it; empty when there is none."""
        completed = await self._runner.run("scontrol", words)
        require_contact(completed)
        return sentence(completed.stderr)


def fits_on_a_line(words: Sequence[str]) -> bool:
    """Return whether the command may be given on standard input."""
    return sum(map(len, words)) + len(words) <= _LONGEST_LINE and all(_PLAIN_WORD.fullmatch(word) for word in words)


def joined(ids: Sequence[str]) -> list[str]:
    """Return the ids, comma-separated, in pieces that fit on a line."""
    pieces: list[str] = []
    for job_id in ids:
        if pieces and len(pieces[-1]) + len(job_id) < _LONGEST_LINE - 20:
            pieces[-1] += f",{job_id}"
        else:
            pieces.append(job_id)
    return pieces


def require_contact(completed: Completed) -> None:
    """Raise SlurmUnavailableError when the program says that it did not reach slurmctld."""
    if means_away(completed.stderr):
        raise SlurmUnavailableError(
            f"{completed.argv[0]}: {clip(completed.stderr)}; is slurmctld running, and does slurm_conf name its "
            "configuration? `scontrol ping` shows it"
        )


def means_away(message: str) -> bool:
    """Return whether Slurm's message says that slurmctld was not reached."""
    return _AWAY.search(message) is not None


def sentence(text: str) -> str:
    """Return Slurm's messages in one line, each once."""
    return clip("; ".join(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())))


def _sections(output: bytes, end: bytes, lines: frozenset[str]) -> tuple[bytes, ...]:
    """Return the answers, without scontrol's prompts and without the echo of our queries that builds with readline print.

    (Long commands are echoed only in part, as on a screen of 80 columns, so the text before the first separator is dropped.)
    """
    sections = []
    begin = 0
    while (stop := output.find(end, begin)) >= 0:
        following = stop + len(end)
        # The echo of the query that prints the separator, and then the separator.
        if output.endswith(_ECHOED_QUERY, begin, stop) and output.startswith(end, following):
            following += len(end)
        first = _after_prompts(output, begin, lines)
        # What is left of the last line is a prompt, or the echo.
        sections.append(output[first : max(output.rfind(b"\n", first, stop) + 1, first)])
        begin = following
    return tuple(sections)


def _after_prompts(output: bytes, begin: int, lines: frozenset[str]) -> int:
    """Return the beginning of the answer, behind prompts and echoed commands."""
    while output.startswith(_PROMPT, begin):
        begin += len(_PROMPT)
        line_end = output.find(b"\n", begin)
        if output[begin:line_end].decode("ascii", "replace") in lines:
            begin = line_end + 1
    return begin
