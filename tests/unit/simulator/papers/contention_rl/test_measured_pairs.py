"""The authors' table of pairs as a file of profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.papers.contention_rl.measured_pairs import main
from simulator.slowdown.profiles.files import load_profiles
from simulator.slowdown.profiles.papers import paper_profiles


def test_the_pairs_of_the_table_replace_the_papers(tmp_path: Path) -> None:
    (tmp_path / "ratios.csv").write_text(',"DLRM,2,2","MoE,8,2"\n"DLRM,2,2",0.9,0.5\n"MoE,8,2",1.0,0.7\n')
    assert main([str(tmp_path / "ratios.csv"), str(tmp_path / "out.json")]) == 0
    found, papers = load_profiles(tmp_path / "out.json"), paper_profiles("contention-rl")
    assert found.pairs == {
        ("dlrm,2,2", "dlrm,2,2"): 0.9,
        ("dlrm,2,2", "moe,8,2"): 0.5,
        ("moe,8,2", "dlrm,2,2"): 1.0,
        ("moe,8,2", "moe,8,2"): 0.7,
    }
    assert found.models == papers.models


@pytest.mark.parametrize("text", ["", ",a\n", ',"a"\n"a",much\n', ',"a"\n"a",1.0,0.5\n'])
def test_another_file_is_refused_in_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ratios.csv").write_text(text)
    assert main([str(tmp_path / "ratios.csv"), str(tmp_path / "out.json")]) == 2
    assert "ratios.csv" in (err := capsys.readouterr().err) and err.count("\n") == 1
    assert main([str(tmp_path / "none.csv"), str(tmp_path / "out.json")]) == 2
    assert not (tmp_path / "out.json").exists()
