"""Slurm's accounting of a job, in sacct's words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.slurm.accounting import AccountedRun, Accounting, keeps_accounting
from controller.slurm.scontrol.run import Completed


class Sacct:
    """Prints what it was given, with the separator that it is asked for in place of each "¦"."""

    def __init__(self, output: str = "", status: int = 0, errors: str = "") -> None:
        self.asked: list[tuple[str, ...]] = []
        self.most = self._present = 0
        self._output, self._status, self._errors = output, status, errors

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        self.asked.append((program, *arguments))
        self._present += 1
        self.most = max(self.most, self._present)
        await asyncio.sleep(0.01)
        self._present -= 1
        (separator,) = [each.removeprefix("--delimiter=") for each in arguments if each.startswith("--delimiter=")]
        return Completed(("sacct",), self._status, self._output.replace("¦", separator).encode(), self._errors)


async def test_every_run_of_a_requeued_job_is_one_row_oldest_first() -> None:
    output = (
        "7¦300¦310¦Unknown¦40¦RUNNING¦billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,node=2¦n[1-2]¦ann¦a|b\n"
        "7¦100¦120¦200¦80¦CANCELLED by 1000¦cpu=8,gres/gpu:a100=2,gres/gpu:h100=1¦n3¦bob¦\n"
        "7¦90¦Unknown¦Unknown¦0¦PENDING¦¦None assigned¦bob¦\n"
        "7¦400¦450¦450¦0¦CANCELLED by 1000¦¦None assigned¦ann¦cancelled in the queue\n"
    )
    sacct = Sacct(output)
    assert await Accounting(sacct).runs("7") == [
        AccountedRun(7, 100.0, 120.0, 200.0, 80.0, "CANCELLED", 3, "n3", "bob", ""),
        AccountedRun(7, 300.0, 310.0, None, 40.0, "RUNNING", 4, "n[1-2]", "ann", "a|b"),
    ]
    assert "--jobs=7" in sacct.asked[0] and "--duplicates" in sacct.asked[0]


@pytest.mark.parametrize("name", ["two\nlines", "\n\n", "a\x0bb\x85c\u2028d\re", "x\n7|1|2|3|4|COMPLETED||n9|ann|more"])
async def test_line_breaks_and_separators_in_a_name_are_of_the_name(name: str) -> None:
    output = (
        f"7¦100¦120¦200¦80¦COMPLETED¦gres/gpu=2¦n3¦ann¦{name}\n7¦300¦310¦320¦10¦COMPLETED¦gres/gpu=2¦n3¦ann¦{name}\n"
    )
    runs = await Accounting(Sacct(output)).runs("7")
    assert [(run.submit_s, run.elapsed_s, run.name) for run in runs] == [(100.0, 80.0, name), (300.0, 10.0, name)]


async def test_the_separator_is_another_one_each_time() -> None:
    sacct = Sacct()
    for _ in range(2):
        await Accounting(sacct).runs("7")
    assert sacct.asked[0] != sacct.asked[1]


async def test_what_is_not_understood_is_an_error() -> None:
    for output in ("7¦1¦2\n", "x¦1¦2¦3¦4¦COMPLETED¦¦n1¦a¦b\n", "7¦1¦2¦3¦4¦COMPLETED¦gres/gpu=x¦n1¦a¦b\n"):
        with pytest.raises(SlurmReplyError, match="a row is not understood"):
            await Accounting(Sacct(output)).runs("7")
    with pytest.raises(SlurmReplyError, match="slurmdbd is away"):
        await Accounting(Sacct(status=1, errors="slurmdbd is away\n")).runs("7")
    assert await Accounting(Sacct()).runs("7") == []


async def test_one_sacct_runs_at_a_time_and_few_requests_wait() -> None:
    sacct = Sacct()
    accounting = Accounting(sacct)
    results = await asyncio.gather(*(accounting.runs("7") for _ in range(30)), return_exceptions=True)
    assert sacct.most == 1
    assert sum(isinstance(result, SlurmUnavailableError) for result in results) == 14
    assert await accounting.runs("7") == []


def test_whether_slurm_keeps_accounting_is_in_its_settings() -> None:
    assert keeps_accounting({"AccountingStorageType": "accounting_storage/slurmdbd"})
    assert not keeps_accounting({"AccountingStorageType": "(null)"})
    assert not keeps_accounting({})
