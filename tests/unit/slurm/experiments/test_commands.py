"""`headway-minicluster compare` and `fidelity`: wrong options, and predictions from stored measurements."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from slurm.cli import app
from slurm.cli.options import require_writable
from slurm.experiments.fidelity.fit import Fit
from slurm.experiments.fidelity.mix import Lengths, seeded_mix
from slurm.experiments.fidelity.predict import predict
from slurm.experiments.fidelity.records import Measured, Replay
from tests.unit.slurm.experiments.fidelity.test_predictions import FIXED_S, LATENCY_S, NIC, ideal, run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setattr("slurm.cli.app.end_on_signals", lambda: None)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headway-minicluster", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policies", "srtf,none-such"), "none-such"),
        (("--policies", "srtf,srtf"), "give different names"),
        (("--policies", ","), "give different names"),
        (("--shortest", 20, "--longest", 10), "give 0 < shortest <= longest"),
        (("--load", 0), "a load above 0"),
        (("--preemption", "always"), "give off or automatic"),
    ],
)
def test_wrong_options_are_refused_before_a_cluster_boots(
    command: Command, words: tuple[object, ...], message: str
) -> None:
    code, out, err = command("compare", *words)

    assert code == 1 and out == ""
    assert err.startswith("headway-minicluster: ") and message in err


@pytest.mark.parametrize(("name", "option"), [("compare", "--out"), ("fidelity", "--out"), ("fidelity", "--picture")])
def test_a_file_that_cannot_be_written_is_refused_before_a_cluster_boots(
    command: Command, tmp_path: Path, name: str, option: str
) -> None:
    code, out, err = command(name, "--policies", "srtf", option, tmp_path / "missing" / "found")

    assert code == 1 and out == ""
    assert "missing/found: cannot be written (No such file or directory); give another file" in err


def test_a_trial_of_files_leaves_them_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("earlier results")
    (tmp_path / "link").symlink_to("new")
    os.mkfifo(tmp_path / "pipe")
    require_writable(None, tmp_path / "kept", tmp_path / "link", tmp_path / "pipe")
    assert (tmp_path / "kept").read_text() == "earlier results"
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "link", "pipe"}


def test_options_of_policies_may_have_commas() -> None:
    from slurm.cli.options import policies_in

    assert policies_in("rl-base:preset=paper,branch=A,srtf, las") == ["rl-base:preset=paper,branch=A", "srtf", "las"]


def measured(off: float) -> Measured:
    """Return measurements of a replay in which each JCT is the predicted one divided by 1 + off."""
    mix = seeded_mix(4, 3, NIC, Lengths())
    guesses = predict(mix, [job.submit_s for job in mix], Fit(ideal(), NIC), "fifo", NIC)
    runs = tuple(
        run(guess.name, 20, (guess.jct_s / (1 + off) - FIXED_S - LATENCY_S) / 20, submit_s=job.submit_s)
        for guess, job in zip(guesses, mix, strict=True)
    )
    return Measured(3, 4, Lengths(), "100mbit", {}, tuple(ideal()), (Replay("fifo", 0.0, runs, 0.1),))


def test_stored_measurements_are_predicted_again(command: Command, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(json.dumps(asdict(measured(off=0.02))))
    code, out, _ = command(
        "fidelity", "--measured", tmp_path / "measured.json", "--picture", tmp_path / "p.svg", "--json"
    )

    assert code == 0
    assert json.loads(out)["mean_error"] == pytest.approx(0.02)
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_a_missed_goal_is_the_exit_status(command: Command, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(json.dumps(asdict(measured(off=-0.2))))
    code, out, _ = command("fidelity", "--measured", tmp_path / "measured.json")

    assert code == 1 and "missed" in out


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_a_file_without_measurements_is_refused(command: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "measured.json").write_text(text)
    code, _, err = command("fidelity", "--measured", tmp_path / "measured.json")

    assert code == 1 and "has no measurements" in err and "Traceback" not in err
