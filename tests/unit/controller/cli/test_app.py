"""`headway` as people and scripts run it: a program of its own, against the real sockets."""

import asyncio
import fcntl
import json
import os
import pty
import re
import socket
import struct
import sys
import tempfile
import termios
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.admin.serve import serve_admin
from controller.cli.render.jobs import show_queue
from controller.cli.render.json_output import plain
from controller.cli.render.preemptions import show_preemptions
from controller.cli.render.report import show_report
from policies.api import load_policy
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.controller_world import world_in
from tests.unit.controller.worlds.patience import PATIENT_PROGRAM

DEADLINE_S = 60.0
IMPATIENT_PROGRAM = "from controller.cli.app import main; main()"
PROGRAM = PATIENT_PROGRAM + IMPATIENT_PROGRAM
AS_NOBODY = f"""
import contextlib, io, os, sys, rich.console, rich.table, rich.text, controller.cli.render.jobs, controller.cli.render.status
from controller.cli.app import main
asked, sys.argv = sys.argv, ["headway", "status", "--socket", "/nowhere"]
with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
    main()  # loads every module that only root may read here
sys.argv = asked
os.setgroups([]); os.setgid(65534); os.setuid(65534)
{PROGRAM}
"""


@dataclass
class Ran:
    """How a run of the program ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Fit(FakeEndpoint):
    """A policy server that decides well."""

    async def decide(self, state, deadline_s):
        return load_policy("fifo").decide(state)


@pytest.fixture
def folder():
    """Short, because of the sockets in it, and open to other users, as /run/headway is."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


async def start(*arguments, program=PROGRAM, **environment):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )  # fmt: skip


async def headway(*arguments, program=PROGRAM, **environment):
    process = await start(*arguments, program=program, **environment)
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    return Ran(process.returncode, out.decode(), err.decode())


async def on_terminal(width, *arguments):
    """Return the lines that the program prints on a terminal of that width, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments,
        stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    written = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):  # EIO when the program has ended
        while more := await asyncio.to_thread(terminal.read, 65536):
            written += more
    assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).splitlines()


@asynccontextmanager
async def cluster(folder, **changes):
    """A busy cluster: a job that runs, one that waits and one on hold. Gives the world and `--config FILE`."""
    world = world_in(folder, **changes)
    world.endpoint.away = True
    world.sbatch(gpus_per_node=8, nodes=4, name="big\x1b[31m[red]", user="ann")
    await world.go_on(2)
    world.sbatch(gpus_per_node=8, user="bob")
    world.sbatch(gpus_per_node=8, user="bob", hold=True)
    await world.turn()
    config = folder / "controller.toml"
    config.write_text(f'partitions = ["dl"]\nruntime_dir = "{folder}"\n')
    async with serve_admin(world, folder, ""):
        yield world, ("--config", str(config))


# --- for people


async def test_status_shows_nodes_policy_and_jobs_without_colour_outside_a_terminal(folder):
    async with cluster(folder) as (_, where):
        ran = await headway("status", *where)
    assert ran.code == 0
    assert ran.err == ""
    assert "jobs        1 waiting, 0 starting, 1 running, 1 ineligible, 0 given to Slurm" in ran.out
    assert "n4     8/8  ██████████  " in ran.out
    assert "the fallback fifo; " in ran.out
    assert "lease       none: Slurm schedules without Headway" in ran.out
    assert "nobody listens" in ran.out
    assert "\x1b" not in ran.out


async def test_the_settings_may_be_named_by_the_environment(folder):
    async with cluster(folder) as (_, (_, config)):
        found, other = await asyncio.gather(
            headway("queue", "--json", HEADWAY_CONFIG=config),
            headway("queue", "--config", config, HEADWAY_CONFIG="/no/such/file"),
        )
        missing = await headway("queue", HEADWAY_CONFIG="/no/such/file")
    assert (found.code, other.code) == (0, 0)
    assert missing.code == 2
    assert "/no/such/file: No such file or directory" in missing.err
    assert "HEADWAY_CONFIG" in missing.err


async def test_bars_are_ascii_where_blocks_cannot_be_written(folder):
    async with cluster(folder) as (_, where):
        ran = await headway("status", *where, PYTHONIOENCODING="latin-1")
    assert ran.code == 0
    assert "##########" in ran.out


async def test_queue_shows_names_that_others_chose_without_their_tricks(folder):
    async with cluster(folder) as (_, where):
        ran = await headway("queue", *where)
        short = await headway("queue", "--limit", "1", *where)
    assert ran.code == 0
    assert "big?[31m[red]" in ran.out
    assert [line.split()[0] for line in ran.out.splitlines()] == ["JOB", "2", "1", "3"]
    assert "needs 8 GPUs on one node; no GPU is free" in ran.out
    assert short.out.splitlines()[-1] == "2 more; --limit 0 shows all"


async def test_why_shows_sentence_numbers_and_decisions(folder):
    async with cluster(folder) as (_, where):
        waits = await headway("why", "2", *where)
        runs = await headway("why", "1", *where)
    assert waits.out.startswith("Job 2 (waiting): Needs 8 GPUs on one node; ")
    assert "queue position " in waits.out
    assert "DECIDED" in runs.out
    assert not {"snapshot", "SNAPSHOT"} & set(re.split(r"[\s_]+", waits.out + runs.out))
    assert "fallback:fifo  n1:8,n2:8,n3:8,n4:8" in runs.out
    submitted = next(line for line in runs.out.splitlines() if line.startswith("submit time "))
    assert re.fullmatch(r"submit time +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", submitted)


async def test_report_shows_what_became_of_a_job(folder):
    async with cluster(folder) as (_, where):
        runs, waits, as_json, unknown = await asyncio.gather(
            headway("report", "1", *where),
            headway("report", "2", *where),
            headway("report", "1", "--json", *where),
            headway("report", "99", *where),
        )
    lines = dict(line.split(None, 1) for line in runs.out.splitlines() if line)
    assert lines["job"] == "1 big?[31m[red] of ann"
    assert lines["state"].startswith("running (RUNNING), submitted ")
    assert "n1:8,n2:8,n3:8,n4:8  fallback:fifo" in runs.out
    assert "note: its speed is not known: no node agents report to this controller" in runs.out
    assert "STARTED" not in waits.out
    assert set(as_json.json) == set(pb.JobSummary.DESCRIPTOR.fields_by_name)
    assert (as_json.json["user"], as_json.json["end_time_s"]) == ("ann", None)
    assert unknown.code == 1
    assert unknown.err.startswith(
        "headway: neither Slurm nor Headway's journal knows job 99: Headway has not scheduled it"
    )


def test_a_report_of_a_job_that_has_not_run_says_so(capsys):
    message = pb.JobSummary(
        job_id="7", user="ann", name="bert", state="waiting", submit_time_s=1e9, wait_s=60, gpu_hours=0.0, steps=0
    )
    show_report(message)
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line)
    assert lines["ran"] == "not yet"
    assert "trained" not in lines
    message.end_time_s = 1e9 + 60
    show_report(message)
    assert "ran      0 s, 0 GPU hours" in capsys.readouterr().out


def test_a_report_has_a_line_for_each_fact_that_is_known(capsys):
    message = pb.JobSummary(
        job_id="7", user="ann", name="bert", state="ended", slurm_state="COMPLETED", submit_time_s=1e9, end_time_s=1e9 + 9000,
        wait_s=1000, service_s=8000, gpu_hours=17.8, steps=43200, steps_per_s=5.4, contention_loss=0.25, idle_gpu_hours=2.0,
        energy_kwh=16.4, hint="it lost 25% of its speed",
        waits=[pb.ReportedWait(why="for GPUs", wait_s=900), pb.ReportedWait(why="for nothing", wait_s=0.2)],
        runs=[pb.ReportedRun(end_s=1e9 + 100, placement="n1", slurm_state="PREEMPTED")],
        stops=[pb.ReportedStop(number=4, cause="threshold", why="slow", time_s=1e9, step=48, cost_s=41)],
        beside=[pb.ReportedNeighbour(job_id="8", windows=3, loss=0.5), pb.ReportedNeighbour(windows=3, loss=0.4)],
    )  # fmt: skip
    show_report(message)
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line)
    assert lines["waited"] == "17 min for GPUs"
    assert lines["ran"] == "2 h 13 min, 17.8 GPU hours; 1 stop cost 41 s"
    assert lines["trained"] == "at least 43200 steps, 5.4 steps/s on average"
    assert lines["contention"] == "it lost 25% of its speed to jobs beside it (50% beside job 8)"
    assert (lines["idle"], lines["hint"]) == (
        "2 GPU hours without a process of it on the GPU",
        "it lost 25% of its speed",
    )
    assert lines["energy"] == "16.4 kWh of its GPUs"
    message.waits.append(pb.ReportedWait(why="held by its user", wait_s=60))
    message.energy_kwh, message.gpu_hours = 1640.0, 3456.0
    show_report(message)
    assert "3456 GPU hours" in (large := capsys.readouterr().out)
    assert "17 min: 15 min for GPUs, 60 s held by its user" in large
    assert "1640 kWh" in large


def test_a_list_of_preemptions_says_when_it_is_not_whole(capsys):
    found = pb.PreemptionList(preemptions=[pb.PreemptionRecord(number=7, job_id="12", stage="asked")], more=True)
    show_preemptions(found)
    assert capsys.readouterr().out.splitlines()[-1] == "There are more; --limit 0 shows all"
    found.more = False
    show_preemptions(found)
    assert "more" not in capsys.readouterr().out


async def test_on_a_terminal_of_80_columns_each_job_is_one_line(folder):
    async with cluster(folder) as (_, where):
        narrow, wide = await asyncio.gather(on_terminal(80, "queue", *where), on_terminal(160, "queue", *where))
    assert [line.split()[0] for line in narrow] == ["JOB", "2", "1", "3"]
    assert max(map(len, narrow)) <= 80
    assert "for GPUs, in the policy's" in narrow[1]
    assert "n1:8" in narrow[2]
    assert "PLACEMENT" in wide[0]
    assert "needs 8 GPUs on one node; no GPU is free" in wide[1]


def test_the_queue_has_a_column_of_estimated_starts_where_there_are_any(capsys):
    start = pb.StartEstimate(earliest_s=1e9 + 720, median_s=1e9 + 3600, latest_s=1e9 + 7500, held=8, known=10)
    entries = [pb.QueueEntry(job_id="7", state="waiting", start=start), pb.QueueEntry(job_id="8", state="running")]
    show_queue(pb.Queue(entries=entries), 0, 1e9)
    show_queue(pb.Queue(entries=entries[1:]), 0, 1e9)
    head, seven, eight, past, plain, _ = capsys.readouterr().out.splitlines()
    assert "STARTS IN" in head and "STARTS IN" not in plain
    assert "12 min - 2 h 5 min" in seven
    assert "min - " not in eight
    assert past == "Starts: of such estimates 8 in 10 held."


async def test_queue_shows_the_jobs_that_are_wanted(folder):
    async with cluster(folder) as (_, where):
        bobs, waiting, both, mine, wrong, clash = await asyncio.gather(
            headway("queue", "--user", "bob", "--json", *where),
            headway("queue", "--state", "waiting", "--json", *where),
            headway("queue", "--user", "bob", "-t", "ineligible", "-t", "running", "--json", *where),
            headway("queue", "--me", *where),
            headway("queue", "--state", "sleeping", *where),
            headway("queue", "--me", "--user", "bob", *where),
        )
    assert [[entry["job_id"] for entry in ran.json["entries"]] for ran in (bobs, waiting, both)] == [
        ["2", "3"],
        ["2"],
        ["3"],
    ]
    assert mine.out == "No jobs.\n"
    assert (wrong.code, clash.code) == (2, 2)
    assert "'sleeping' is not one of" in wrong.err
    assert "give --me or --user, not both" in clash.err


# --- for scripts


async def test_every_answer_is_one_json_object_with_the_names_of_the_protocol(folder):
    async with cluster(folder) as (_, where):
        status, queue, why, policy = await asyncio.gather(
            headway("status", "--json", *where),
            headway("queue", "--json", *where),
            headway("why", "2", "--json", *where),
            headway("policy", "show", "--json", *where),
        )
    assert all(ran.out.count("\n") == 1 for ran in (status, queue, why, policy))
    assert set(status.json) == set(pb.Status.DESCRIPTOR.fields_by_name)
    assert status.json["jobs_waiting"] == 1
    assert status.json["decisions"] == 2
    node = {"name": "n1", "gpus": 8, "gpus_used": 8, "available": True, "state": "ALLOCATED"}
    assert status.json["nodes"][0] == node | {"partitions": ["dl"], "rack": "", "reason": ""}
    assert status.json["policy"]["serving"] is False
    assert [entry["job_id"] for entry in queue.json["entries"]] == ["2", "1", "3"]
    assert set(queue.json["entries"][0]) == set(pb.QueueEntry.DESCRIPTOR.fields_by_name)
    assert why.json["facts"]["num_gpus"] == "8"
    assert why.json["decisions"] == []
    assert policy.json["fallback"] == "fifo"


def test_large_numbers_stay_numbers_and_empty_fields_are_there():
    assert plain(pb.Status(decisions=1 << 60))["decisions"] == 1 << 60
    assert plain(pb.Queue()) == {"entries": []}
    assert plain(pb.Explanation(facts={"a": "b"}))["facts"] == {"a": "b"}


async def test_events_are_printed_as_they_happen(folder):
    async with cluster(folder) as (world, where):
        process = await start("events", "--json", *where)

        async def tell():
            while True:
                world.events.add("policy", "", "tick")
                await asyncio.sleep(0.05)

        telling = asyncio.create_task(tell())
        try:
            line = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
            assert (line["kind"], line["text"], line["job_id"]) == ("policy", "tick", "")
            process.send_signal(2)
            assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
        finally:
            telling.cancel()
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def test_past_events_are_printed_and_the_program_ends(folder):
    async with cluster(folder) as (world, where):
        world.events.add("started", "7", "n1:8")
        world.events.add("ended", "8", "COMPLETED")
        ours, none, until, wrong = await asyncio.gather(
            headway("events", "--no-follow", "--job", "7", "--json", *where),
            headway("events", "--no-follow", "--since", "0s", "--job", "7", *where),
            headway("events", "--until", "2001-01-01", *where),
            headway("events", "--since", "tomorrow", *where),
        )
    assert (ours.code, ours.json["text"], ours.json["job_id"]) == (0, "n1:8", "7")
    assert (until.code, until.err) == (0, "")
    assert (none.code, none.err) == (0, "")
    assert wrong.code == 2
    assert "'tomorrow' is no time; give how long ago it was" in wrong.err


async def test_events_end_with_the_controller(folder):
    async with cluster(folder) as (world, where):
        process = await start("events", *where)
        async with asyncio.timeout(DEADLINE_S):
            while not world.events._listeners:
                await asyncio.sleep(0.02)
        world.events.add("started", "7", "n1:8")
        line = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
        assert line.split()[-3:] == [b"started", b"7", b"n1:8"]
    _, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 3
    assert b"systemctl status headway-controller" in err


async def test_a_reader_that_has_seen_enough_is_no_error(folder):
    async with cluster(folder) as (_, where):
        process = await start("queue", *where)
        process.stdout._transport.close()
        err = await asyncio.wait_for(process.stderr.read(), DEADLINE_S)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
        assert err == b""


# --- policies


async def test_policy_use_swaps_or_refuses(folder):
    async with cluster(folder) as (world, where):
        world.new_endpoints |= {"unix:///new": Fit(address="unix:///new"), "unix:///sick": FakeEndpoint(sick=True)}
        sick = await headway("policy", "use", "unix:///sick", *where)
        assert (sick.code, sick.out) == (1, "")
        assert "the policy stays as it was" in sick.err
        assert world.decider.address == "unix:///fake"
        fit = await headway("policy", "use", "unix:///new", "--json", *where)
        assert fit.code == 0, fit.err
        assert (fit.json["name"], fit.json["address"], fit.json["serving"]) == ("fake", "unix:///new", True)
    assert world.decider.address == "unix:///new"


def _closed_to_others() -> str:
    """A folder on the way to this installation that other users may not enter, such as /root; empty when there is none."""
    ways = (Path(__file__).resolve(), Path(sys.prefix), Path(sys.prefix).resolve())
    return next((str(up) for way in ways for up in way.parents if not up.stat().st_mode & 0o001), "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run the program as somebody else")
@pytest.mark.skipif(bool(_closed_to_others()), reason=f"nobody else may enter {_closed_to_others()}")
async def test_users_may_read_and_not_change(folder):
    async with cluster(folder) as (_, where):
        status = await headway("status", *where, program=AS_NOBODY)
        use = await headway("policy", "use", "unix:///new", *where, program=AS_NOBODY)
        through = await headway("policy", "use", "x", "--socket", str(folder / "status.sock"), program=AS_NOBODY)
    assert status.code == 0
    assert use.code == 1
    assert "admin.sock: only root and the controller's user may use this socket (try with sudo)" in use.err
    assert through.code == 1
    assert "only root and the controller's user may change the policy" in through.err


# --- what goes wrong


async def test_exit_codes_of_jobs_that_are_not_there(folder):
    async with cluster(folder) as (_, where):
        unknown, no_id = await asyncio.gather(headway("why", "99", "--json", *where), headway("why", "x1", *where))
    assert unknown.code == 1
    assert (unknown.json["exit_code"], unknown.json["reason"]) == (1, "unknown-job")
    assert "neither Slurm nor Headway's journal knows job 99" in unknown.json["error"]
    assert unknown.err.startswith("headway: neither Slurm nor Headway's journal knows job 99")
    assert no_id.code == 2


async def test_a_controller_that_is_not_there(folder):
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(folder / "status.sock"))
    config = folder / "controller.toml"
    config.write_text(f'runtime_dir = "{folder}"\n')
    for arguments in (("status",), ("why", "1"), ("policy", "use", "127.0.0.1:1"), ("events",)):
        ran = await headway(*arguments, "--config", str(config))
        assert ran.code == 3
        assert ran.err.startswith("headway: no controller answers at ")
        assert "Slurm schedules without Headway" in ran.err
        assert ran.out == ""


async def test_a_controller_that_has_not_read_slurm_yet_is_not_taken_for_one_that_is_away(folder):
    world = world_in(folder)
    world.health.last_error = "slurmctld did not answer"
    async with serve_admin(world, folder, ""):
        ran = await headway("queue", "--socket", str(folder / "status.sock"))
    assert ran.code == 3
    assert ran.err.startswith("headway: the controller is running, but has not read the cluster yet: slurmctld did not")
    assert "no controller answers" not in ran.err


async def test_a_controller_that_hangs(folder):
    # given somebody who takes connections and never answers
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(folder / "s"))
        server.listen(8)
        ran = await headway("status", "--socket", str(folder / "s"), program=IMPATIENT_PROGRAM)
    # then the user is sent to its log, and is not asked whether it runs
    assert ran.code == 3
    assert "journalctl -u headway-controller" in ran.err
    assert "is it running?" not in ran.err


@pytest.mark.parametrize(
    ("text", "message"),
    [("runtime_dir = 7", "runtime_dir: must be a string"), ("[", "check-config"), (None, "No such file")],
)
async def test_a_settings_file_that_cannot_be_used(folder, text, message):
    config = folder / "c.toml"
    if text is not None:
        config.write_text(text)
    ran = await headway("status", "--config", str(config))
    assert ran.code == 2
    assert message in ran.err
    assert str(config) in ran.err


async def test_wrong_usage():
    missing, unknown, helped = await asyncio.gather(headway("why"), headway("sing"), headway("--help"))
    assert (missing.code, unknown.code, helped.code) == (2, 2, 0)
    assert "Exit codes: 0 done" in helped.out


async def test_help_loads_nothing_heavy():
    program = (
        "import sys, controller.cli.app\n"
        "heavy = {'grpc', 'google.protobuf', 'rich', 'pydantic', 'numpy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert (await headway(program=program)).err == ""


async def test_doctor_reports_errors_of_the_settings(folder):
    config = folder / "controller.toml"
    config.write_text('partitons = ["dl"]\n')
    checked, read = await asyncio.gather(
        headway("doctor", "-c", str(config)), headway("doctor", "--json", "-c", str(config))
    )
    assert checked.code == read.code == 1
    assert "partitons: no such key" in checked.out
    (finding,) = read.json["findings"]
    assert (finding["check"], finding["level"]) == ("settings", "error")


async def test_doctor_checks_everything_else(folder):
    config = folder / "controller.toml"
    config.write_text(
        f'partitions = ["dl"]\nruntime_dir = "{folder}"\nstate_dir = "{folder}"\nslurm_client = "embedded"\n'
    )
    ran = await headway("doctor", "--json", "-c", str(config))
    findings = ran.json["findings"]
    assert ran.code == (1 if any(finding["level"] == "error" for finding in findings) else 0)
    assert all(finding["mend"] for finding in findings if finding["level"] == "error")
