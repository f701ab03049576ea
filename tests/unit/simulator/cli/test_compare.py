"""`headway-sim compare`: several policies at once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from simulator.cli import main as cli
from simulator.cli.compare import names_in
from simulator.errors import SettingError
from simulator.runs.process_pool import in_parallel
from simulator.runs.progress import Tell
from tests.unit.simulator.commands import write

ROWS = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    trace = write(tmp_path / "small.csv", ROWS)

    def call(*words: object) -> tuple[int, str, str]:
        given = ["headway-sim", "compare", "--trace", trace, "--cluster", "1x4", *words]
        monkeypatch.setattr(sys, "argv", list(map(str, given)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_a_table_of_all_policies(compare) -> None:
    code, out, _ = compare("--policies", "fifo,srtf,las")

    assert code == 0
    lines = {line.rsplit("  ", 3)[0].strip(): line for line in out.splitlines() if line.strip()}
    header = next(line for line in out.splitlines() if "fifo" in line)
    assert header.split() == ["fifo", "srtf", "las"]
    assert any("average JCT" in line for line in lines.values())


def test_json_by_policy(compare) -> None:
    code, out, _ = compare("--policies", "fifo,srtf:layout=anywhere", "--json")

    assert code == 0
    found = json.loads(out)
    assert list(found) == ["fifo", "srtf:layout=anywhere"]
    assert found["fifo"]["makespan_s"] == 30
    assert found["fifo"]["fragmentation"] is not None


def test_files_of_each_and_a_page(compare, tmp_path: Path) -> None:
    code, out, _ = compare("--policies", "fifo,sjf", "--out", tmp_path / "out")

    assert code == 0
    assert str(tmp_path / "out" / "report.html") in out
    for policy in ("fifo", "sjf"):
        assert (tmp_path / "out" / policy / "jobs.csv").read_text().count("\n") == 4


def test_options_go_to_those_that_take_them(compare) -> None:
    assert compare("--policies", "fifo,las", "--round", "50", "--json")[0] == 0
    assert compare("--policies", "sched2-sif,fifo", "--placement", "any", "--json")[0] == 0
    code, _, err = compare("--policies", "sched2-sif,sched2-lrf", "--placement", "any")
    assert (code, err) == (2, "headway-sim compare: none of the policies takes --placement; leave it out\n")


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ("fifo,none-such", "no policy is named 'none-such'"),
        ("fifo,fifo", "--policies: fifo is there twice"),
        (",", "--policies: give a,b,c"),
    ],
)
def test_mistakes(compare, policies: str, said: str) -> None:
    code, _, err = compare("--policies", policies)

    assert code == 2
    assert err.count("\n") == 1
    assert said in err


def test_names_with_options() -> None:
    assert names_in("a,b:x=1,y=2,c") == ["a", "b:x=1,y=2", "c"]
    assert names_in(" a , b:x=1,c:y=2") == ["a", "b:x=1", "c:y=2"]


def test_results_come_in_the_order_of_names() -> None:
    told: dict[str, float] = {}

    def work(name: str, tell: Tell) -> tuple[str, int]:
        tell(0.5)
        return name, os.getpid()

    found = in_parallel(list("abcde"), work, told.__setitem__, processes=2)

    assert [name for name, _ in found] == list("abcde")
    assert len({process for _, process in found} | {os.getpid()}) == 6
    assert told == dict.fromkeys("abcde", 1.0)


@pytest.mark.parametrize("is_there", [True, False])
def test_each_process_takes_one_core(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    if not is_there:
        monkeypatch.delitem(sys.modules, "torch")

    def work(name: str, tell: Tell) -> tuple[int, str | None]:
        return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")

    try:
        found = in_parallel(["a", "b"], work, lambda name, share: None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    # Who imports it later goes by the environment.
    assert found == [(1 if is_there else 2, "1")] * 2


def test_an_error_of_one_ends_all() -> None:
    def work(name: str, tell: Tell) -> str:
        if name == "b":
            raise SettingError("it cannot be")
        signal.pause()
        return name

    with pytest.raises(SettingError, match="b: it cannot be"):
        in_parallel(list("abc"), work, lambda name, share: None, processes=3)


def test_a_process_that_is_killed_is_named() -> None:
    def work(name: str, tell: Tell) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return name

    with pytest.raises(SettingError, match=r"the process of a ended \(-9\) before its run did"):
        in_parallel(["a"], work, lambda name, share: None)
