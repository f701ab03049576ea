"""The parts of the experiment on narrow uplinks that need no cluster: arrivals, shared links, predictions, and the summary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.wire import frames
from policies.model import Placement
from slurm.experiments.turns.racks import topology_conf
from slurm.experiments.uplinks import job as program
from slurm.experiments.uplinks import mix
from slurm.experiments.uplinks.job import Step, World
from slurm.experiments.uplinks.mix import Job, arrivals
from slurm.experiments.uplinks.predict import divided, predicted
from slurm.experiments.uplinks.summary import Turn, summary

LINKS = {"nic": mix.NIC_GBYTE_S, "uplink": mix.UPLINK_GBYTE_S, "nodes_of_rack": mix.NODES_OF_RACK, "gpus": mix.GPUS}


def test_arrivals_follow_from_the_seed() -> None:
    jobs = arrivals(1, 60)
    assert jobs == arrivals(1, 60) != arrivals(2, 60)
    assert all(60 <= job.alone_s <= 120 and job.gpus in (5, 7) and job.limit_min >= 10 for job in jobs)
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_links_are_shared_by_number() -> None:
    world = World(LINKS)
    assert world.used(["n3"]) == set()
    assert world.used(["n3", "n4"]) == {"n3", "n4"}
    assert world.used(["n4", "n5"]) == {"n4", "n5", "rack 1", "rack 2"}
    assert world.gbyte_s(["n4", "n5"], []) == 1.25
    assert world.gbyte_s(["n3", "n4"], [["n4", "n5"], ["n4"]]) == 0.625, "a job on one node sends nothing"
    crossing = [["n1", "n5"], ["n2", "n6"], ["n3", "n7"]]
    assert world.gbyte_s(["n4", "n8"], crossing) == 0.625, "no NIC is shared, but each uplink has two jobs"


def test_slurm_divides_what_has_no_equal_parts() -> None:
    assert divided(Placement((0, 1), (4, 1)), [4, 4]) == Placement((0, 1), (3, 2))
    assert divided(Placement((0, 1), (3, 4)), [4, 4]) == Placement((0, 1), (4, 3))
    assert divided(Placement((0, 1), (1, 4)), [1, 4]) == Placement((0, 1), (1, 4))
    assert divided(Placement((0, 1), (3, 4)), [2, 4]) is None


def test_jobs_run_as_the_simulator_predicts() -> None:
    """Rules fill one node after another, so that the second of two jobs of 5 GPUs shares a node with the first."""
    step = mix.steps()["vgg16"]
    jobs = (Job("a", "vgg16", 5, 60.0, 0.0), Job("b", "vgg16", 5, 60.0, 0.1))
    world, own = World(LINKS), Step(step.compute_s, step.bytes, 5)
    speed = world.speed(["n1", "n2"], [["n1", "n3"]], own)
    assert speed == pytest.approx(step.seconds(2) / step.seconds(2, 0.625))
    first, second = predicted(jobs, "fifo", 1).jct_s
    assert first == pytest.approx(0.1 + (60 - 0.1) / speed)
    assert 60 < second <= first
    assert predicted(jobs, "headway-rl", 1).jct_s == pytest.approx((60.0, 60.0)), "on links of their own"


def test_a_job_trains_to_its_end_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho n4\necho n5\n")
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / program.LINKS).write_text(json.dumps(LINKS))
    (tmp_path / program.WORLD).mkdir()
    (tmp_path / program.WORLD / "8@n1,n2").touch()
    environment = {
        **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n[4-5]", "SLURM_JOB_ID": "7",
    }  # fmt: skip
    words = (sys.executable, program.__file__, "x", "vgg16", "0.1", "5e8", "16", "0.3")
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert (tmp_path / "x.where").read_text() == "2 2\n"
    assert [path.name for path in (tmp_path / program.WORLD).iterdir()] == ["8@n1,n2"]


def test_agents_understand_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from headway_job.hook.msgpack import pack

    monkeypatch.setenv("SLURM_PROCID", "1")
    step = mix.steps()["fsdp"]
    sent = list(program._introduction("fsdp", Step(step.compute_s, step.bytes, 16), 2, 1.25))
    packets = [pack({"v": 1, "type": kind, "seq": at, **fields}) for at, (kind, fields) in enumerate(sent)]
    hello, model, profile = map(frames.parse, packets)
    assert isinstance(hello, frames.Hello) and (hello.rank, hello.world_size) == (1, 2)
    assert isinstance(model, frames.Model) and model.param_bytes == step.bytes
    assert isinstance(profile, frames.Profile) and profile.step_s == pytest.approx(step.seconds(2))


def test_the_topology_has_a_switch_for_each_rack() -> None:
    lines = topology_conf(mix.RACKS, mix.NODES_OF_RACK, mix.UPLINK_GBYTE_S).splitlines()
    assert lines[1] == "SwitchName=rack1 Nodes=n[3-4] LinkSpeed=10"
    assert lines[-1] == "SwitchName=top Switches=rack[0-3]"


def test_policies_are_compared_seed_by_seed() -> None:
    turns = [Turn("srtf", 1, (10.0,), 10.0), Turn("srtf", 2, (20.0,), 20.0), Turn("srtf", 3, (30.0,), 30.0)]
    turns += [Turn("x", 1, (9.0,), 9.0), Turn("x", 2, (16.0,), 16.0)]
    first, second = summary(turns)
    assert first["seeds"] == [1, 2], "seeds on which not all have run are left out"
    assert second["avg_jct_s_against_srtf"] == {"mean": pytest.approx(-0.15), "ci95": None}, (
        "two pairs give no interval"
    )
    assert "avg_jct_s_against_srtf" not in first
    third = summary([*turns, Turn("x", 3, (27.0,), 27.0)])[1]
    assert third["avg_jct_s_against_srtf"]["ci95"] > 0
    assert summary([]) == []
