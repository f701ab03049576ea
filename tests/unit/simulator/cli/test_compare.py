"""`headway-sim compare`: several policies at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from simulator.cli import main as cli
from simulator.cli.compare import names_in
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
        ("fifo,fifo", "--policies: fifo is given twice"),
        (",", "--policies: give a,b,c"),
    ],
)
def test_wrong_usage_is_reported(compare, policies: str, said: str) -> None:
    code, _, err = compare("--policies", policies)

    assert code == 2
    assert err.count("\n") == 1
    assert said in err


def test_names_with_options() -> None:
    assert names_in("a,b:x=1,y=2,c") == ["a", "b:x=1,y=2", "c"]
    assert names_in(" a , b:x=1,c:y=2") == ["a", "b:x=1", "c:y=2"]
