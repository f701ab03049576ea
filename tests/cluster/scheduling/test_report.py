"""On a real Slurm with accounting: what becomes of a job is reported, recorded and remembered, also by the next controller."""

from __future__ import annotations

import json

from slurm.minicluster.spec import ACCOUNT
from tests.cluster.live import USER, live


def test_a_requeued_job_has_a_report_and_events_and_its_preemption_is_audited() -> None:
    with live(spec={"nodes": 1, "gpus": 2, "accounting": True}, keep_days=1.0) as world:
        world.cluster.sacctmgr("add", "user", USER, f"Account={ACCOUNT}")
        ask = world.headway.ask
        # Given a job that waits for another, runs, and is stopped by force
        first = world.open_job("--gres=gpu:2")
        world.until_begun(first)
        job = world.open_job("--gres=gpu:2", "--job-name=bert")
        world.until_known(job)
        world.end(first)
        world.until_begun(job)
        world.until_seen_running(job)
        # accounting counts whole seconds: a shorter run would use no GPU hours
        world.until(lambda: world.show(job)["RunTime"] not in ("00:00:00", "00:00:01"), "it has run for over a second")
        world.headway.headway("preempt", job, "--force")
        world.until(lambda: world.show(job).get("Restarts") == "1", "it is requeued")
        world.until_state(job, "RUNNING")
        world.until_seen_running(job)
        world.end(job)
        world.until_state(job, "COMPLETED")

        # Then the report has both runs, as Slurm's accounting has them, the wait and the stop
        def complete() -> bool:
            found = ask("report", job)
            states = [run["slurm_state"] for run in found["runs"]]
            return found["state"] == "ended" and len(states) == 2 and states[-1] == "COMPLETED"

        world.until(complete, "controller and accounting know its end")
        found = ask("report", job)
        assert (found["user"], found["name"], found["state"]) == (USER, "bert", "ended")
        assert [run["placement"] for run in found["runs"]] == ["n1:2", "n1:2"]
        assert all(run["policy"] == "fifo-skip" and run["start_s"] <= run["end_s"] for run in found["runs"])
        assert found["gpu_hours"] > 0
        assert any("for GPUs" in wait["why"] for wait in found["waits"])
        (stop,) = found["stops"]
        assert (stop["cause"], stop["cost_s"] > 0) == ("operator", True)
        assert "ended (COMPLETED)" in world.headway.headway("report", job).stdout
        # and the audit log the preemption, by its user
        lines = [json.loads(line) for line in (world.headway.folder / "state" / "audit.jsonl").read_text().splitlines()]
        (preempted,) = [line for line in lines if line["action"] == "preempt"]
        assert (preempted["user"], preempted["job_id"], preempted["job_user"]) == ("root", job, USER)
        assert preempted["outcome"] == "begun as preemption 1"
        assert "audit" in world.headway.log("controller")

        # And a restarted controller knows the events, the wait and the report
        def kinds() -> list[str]:
            said = world.headway.headway("events", "--no-follow", "--job", job, "--json").stdout
            return [json.loads(line)["kind"] for line in said.splitlines()]

        before = kinds()
        assert before.count("started") == 2
        world.headway.stop("controller")
        world.headway.start_controller()
        assert kinds()[: len(before)] == before
        assert ask("report", job)["waits"] == found["waits"]
