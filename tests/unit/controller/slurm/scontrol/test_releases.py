"""Records of newer releases of Slurm: what each prints differently, and that no damage to one leads to another exception."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from controller.base.errors import SlurmReplyError
from controller.slurm.hostlist import expand_indices, expand_nodes
from controller.slurm.model.job import SlurmJob
from controller.slurm.scontrol.incremental import JobTable, parse_answer
from controller.slurm.scontrol.parse import parse_job
from controller.slurm.scontrol.parse_nodes import parse_node, parse_partition, parse_reservation
from tests.unit.controller.slurm.scontrol.releases import SLURM_24_11, SLURM_25_11, SLURM_26_05
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, at, job_line, node_line

RELEASES = {"24.11": SLURM_24_11, "25.11": SLURM_25_11, "26.05": SLURM_26_05}
EVERY = [(release, name) for release, jobs in RELEASES.items() for name in jobs]


def job(line: str) -> SlurmJob:
    return parse_job(line, CLOCK).jobs[0]


@pytest.mark.parametrize("release", ["24.11", "26.05"])
@pytest.mark.parametrize(
    ("name", "exclusive"),
    [
        ("ordinary", False),
        ("oversub", False),
        ("excl-user", False),
        ("exclusive", True),
        ("excl-topo", True),
    ],
)
def test_jobs_that_share_their_nodes_with_none(release: str, name: str, exclusive: bool) -> None:
    assert job(RELEASES[release][name]).exclusive is exclusive


def test_25_11_prints_it_as_older_releases_do() -> None:
    reported = {name: job(line).exclusive for name, line in SLURM_25_11.items()}
    assert reported == {"one": False, "exclusive": True, "excl-user": False, "extra": False, "dep-singleton": False}


@pytest.mark.parametrize(("release", "name"), [each for each in EVERY if each[1] != "name with spaces"])
def test_the_name_is_the_name(release: str, name: str) -> None:
    assert job(RELEASES[release][name]).name == name


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_a_name_that_looks_like_a_sluid_stays_as_it_is(release: str) -> None:
    seen = job(RELEASES[release]["name with spaces"])
    assert (seen.name, seen.user) == ("name with spaces SLUID=sABC UserId=x", "root")


def test_older_releases_print_no_sluid_so_it_belongs_to_the_name() -> None:
    assert job(job_line(name="x SLUID=s491M83CB3AT00")).name == "x SLUID=s491M83CB3AT00"
    assert job(job_line(name="x SLUID=s491M83CB3AT00", network="x LicensesAlloc=(null)")).name.endswith("AT00")


@pytest.mark.parametrize("hostile", ["", "SLUID=s1", "a SLUID=s1 UserId=root(0) GroupId=root(0)", "a HetJobIdSet=1-2"])
@pytest.mark.parametrize("release", ["25.11", "26.05"])
def test_a_hostile_name_is_a_name_only(release: str, hostile: str) -> None:
    name = "one" if release == "25.11" else "ordinary"
    line = RELEASES[release][name].replace(f"JobName={name} ", f"JobName={hostile} ")
    seen = job(line)
    assert (seen.name, seen.user, seen.state) == (hostile, "root", "RUNNING")


@pytest.mark.parametrize("release", ["24.11", "25.11", "26.05"])
def test_extra_is_no_part_of_the_comment(release: str) -> None:
    record = parse_job(RELEASES[release]["extra"], CLOCK)
    assert record.jobs[0].comment == "cc headway=preemptible"
    assert record.jobs[0].admin_comment == ("" if release == "25.11" else "billing=7")
    assert record.comment_is_exact


@pytest.mark.parametrize("comment", ["", "Comment=cc "])
def test_extra_is_no_mark_and_no_wish(comment: str) -> None:
    extra = "Extra=x AdminComment=headway:hold Comment=headway=off"
    line = SLURM_25_11["extra"].replace("Comment=cc headway=preemptible Extra=x y=1", f"{comment}{extra}")
    assert "AdminComment" in line
    record = parse_job(line, CLOCK)
    assert (record.jobs[0].admin_comment, record.jobs[0].comment) == ("", "cc" if comment else "")
    assert not record.comment_is_exact


def test_what_an_array_and_a_part_of_a_het_job_are() -> None:
    tasks = parse_job(SLURM_26_05["array"], CLOCK).jobs
    assert [task.key.job_id for task in tasks] == [f"14_{task}" for task in range(6)]
    assert job(SLURM_26_05["het"]).het_job_id == 19


# ---- damage

TOKENS = [
    " JobName=", " SLUID=", " UserId=", " Priority=", " Restarts=", " SubmitTime=", "[", "]", "-", ",", ":", "=", " ", "\n",
    "9" * 5000, "-1", "nan", "inf", "1e999", "0-4294967294", "n[1-199999][1-199999]", "0:0", "1-2:0", "²", "٣", "(null)", "\0",
    f" SubmitTime={CLOCK.token}", CLOCK.token, "K", "\udcff",
]  # fmt: skip


def damaged(text: str, dice: random.Random) -> str:
    """The text with one to three pieces replaced, removed or doubled."""
    for _ in range(dice.randint(1, 3)):
        begin = dice.randrange(len(text) + 1)
        end = min(len(text), begin + dice.choice((0, 1, 2, 10, 60, 500)))
        piece = dice.choice((dice.choice(TOKENS), "", text[begin:end] * 2, dice.choice("0123456789abc")))
        if dice.random() < 0.4 and (equals := text.find("=", begin)) >= 0:  # a whole value
            begin, end = equals + 1, max(text.find(" ", equals), equals + 1)
        text = text[:begin] + piece + text[end:]
    return text


def survives(parse: Callable[[str], object], text: str) -> None:
    try:
        parse(text)
    except SlurmReplyError:
        pass
    except Exception as error:  # noqa: BLE001 - any other is what this test is about
        pytest.fail(f"{error!r} of {text!r}")


def test_no_damage_to_a_record_leads_to_another_exception() -> None:
    lines = [line for jobs in RELEASES.values() for line in jobs.values()] + [job_line(), job_line(**RUNNING)]
    dice = random.Random(7)
    for _ in range(4000):
        text = damaged(dice.choice(lines), dice)
        survives(lambda text: parse_job(text, CLOCK), text)
        answer = text.encode("utf-8", "surrogateescape")
        survives(lambda _, answer=answer: parse_answer(answer, "7", CLOCK), text)  # type: ignore[misc]
        survives(lambda _, answer=answer: JobTable(CLOCK).update(answer + b"\n"), text)  # type: ignore[misc]


def test_no_damage_to_what_administrators_write_does_either() -> None:
    partition = "PartitionName=dl AllowGroups=ALL Default=YES MaxTime=1-00:00:00 Nodes=n[1-2] State=UP TotalNodes=2"
    reservation = f"ReservationName=r StartTime={at(10)} EndTime={at(20)} Duration=00:00:10 Nodes=n[3-4] NodeCnt=2"
    dice = random.Random(11)
    for _ in range(1500):
        survives(parse_node, damaged(node_line(), dice))
        survives(parse_partition, damaged(partition, dice))
        survives(lambda text: parse_reservation(text, CLOCK), damaged(reservation, dice))


@pytest.mark.parametrize("text", ["n[1-199999][1-199999]", "n[1-" + "9" * 5000 + "]", "n[2-" + "9" * 18 + "]"])
def test_lists_of_more_nodes_than_there_can_be(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        expand_nodes(text)


@pytest.mark.parametrize(
    "text", ["0-4294967294", "9" * 5000, "0-" + "9" * 5000, "1-", "0-9:" + "9" * 5000, "4294967294"]
)
def test_lists_of_more_tasks_than_there_can_be(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        expand_indices(text)


def test_a_job_that_is_not_understood_is_left_out_and_the_others_are_read() -> None:
    bad = SLURM_26_05["held"].replace("Restarts=0", "Restarts=many")
    reading = JobTable(CLOCK).update("\n".join([SLURM_26_05["ordinary"], bad, SLURM_26_05["array"], ""]).encode())
    assert {each.raw_id for each in reading.jobs} == {1, 14}
    assert reading.contested == {12}
    complaints: list[tuple[str, str]] = []
    assert parse_answer(bad.encode(), "12", CLOCK, lambda *reported: complaints.append(reported)) == []
    assert [job_id for job_id, _ in complaints] == ["12"]
