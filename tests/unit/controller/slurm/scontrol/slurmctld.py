"""A small slurmctld behind a fake scontrol: jobs are dictionaries of fields, updates do to them what Slurm 22.05 does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.scontrol.run import Completed
from tests.unit.controller.slurm.scontrol.text import RUNNING, SUBMIT_S, at, job_line, node_line

NODES = tuple(f"n{number}" for number in range(1, 5))
_AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
_CONFIG = "Configuration data as of t.1\nClusterName             = lab\nAccountingStorageTRES   = cpu,gres/gpu\n"


@dataclass
class Job:
    """One job. `fields` are text.job_line's."""

    raw: int
    fields: dict[str, str] = field(default_factory=dict)
    tasks: int = 1
    """Number of tasks that the user gave with -n; the number of nodes can raise the value that is shown."""
    exact_tasks: bool = False
    """True as on 24.11 and 26.05: a number of tasks that the user gave is not raised with the nodes, TasksPerNode=0 is refused
    while the job needs more than one node, other numbers are multiplied by the nodes and raise MinCPUsNode, which is multiplied by
    the nodes in turn, and NumTasks sets the CPUs to the tasks."""
    tasks_per_gpu: int = 0
    """Number of --ntasks-per-gpu as on 26.05, where NumNodes sets tasks and CPUs to its product with the nodes; 0: none."""

    @property
    def job_id(self) -> str:
        """Job ID as users write it: of an array task, ARRAY_TASK."""
        array = self.fields.get("array", "")
        words = dict(word.split("=") for word in array.split())
        return f"{words['ArrayJobId']}_{words['ArrayTaskId']}" if words else str(self.raw)

    @property
    def least_nodes(self) -> str:
        """Return the least number of nodes, as Slurm uses it."""
        return self.fields.get("tres", "node=1").rpartition("node=")[2]

    def line(self) -> str:
        """Return the job as scontrol prints it."""
        return job_line(raw=str(self.raw), **self.fields)


class Slurmctld:
    """Invariant: what the fake scontrol prints is what the jobs are at that moment."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = {job.job_id: job for job in jobs}
        self.away = False
        self.calls: list[list[str]] = []
        """Commands of each process."""
        self.refusals: dict[str, str] = {}
        """Job id → why slurmctld refuses every update of it."""
        self.deaf: set[str] = set()
        """Jobs whose updates are accepted and not carried out."""
        self.before: Callable[[str], None] = lambda line: None
        """Called with each command, before it is carried out: the rest of the world."""
        self.signals: list[str] = []
        self.config = _CONFIG
        self.unregistered: set[str] = set()
        """Nodes that have not registered since it started."""
        self.topology = ""
        """What `show topology` prints."""

    def __getitem__(self, job_id: str) -> dict[str, str]:
        return self.jobs[job_id].fields

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        """One process."""
        if program == "scancel":
            self.signals.append(" ".join(arguments))
            return Completed((program, *arguments), 0, b"", "")
        lines = [line.split(" ") for line in stdin.decode().splitlines()] or [list(arguments)]
        self.calls.append([" ".join(words) for words in lines])
        output, errors = "", []
        for words in lines:
            self.before(" ".join(words))
            answer, error = ("", _AWAY) if self.away else self._carry_out(words)
            output += f"scontrol: {' '.join(words)}\n{answer}"
            errors += [error] if error else []
        output += "scontrol: \n" if stdin else ""
        return Completed((program, *arguments), 1 if errors else 0, output.encode(), "\n".join(errors))

    def commands(self, verb: str) -> list[str]:
        """Every command of that verb so far."""
        return [line for call in self.calls for line in call if line.startswith(verb)]

    def _carry_out(self, words: list[str]) -> tuple[str, str]:
        match words:
            case ["show", "hostnames", name]:
                return f"{name}\n", ""
            case ["show", "job"]:
                return "".join(f"{job.line()}\n" for job in self.jobs.values()) or "No jobs in the system\n", ""
            case ["show", "job", job_id]:
                found = [
                    job for known, job in self.jobs.items() if job_id in {known, known.partition("_")[0], str(job.raw)}
                ]
                text = "".join(f"{job.line()}\n" for job in found)
                return (text, "") if found else ("", "slurm_load_jobs error: Invalid job id specified")
            case ["show", "node", *given]:
                names = [name for name in NODES if not given or name in given[0].split(",")]
                lines = [node_line(name) for name in names]
                for place, name in enumerate(names):
                    if name in self.unregistered:
                        lines[place] = re.sub("SlurmdStartTime=[^ ]*", "SlurmdStartTime=None", lines[place])
                return "".join(f"{line}\n" for line in lines), ""
            case ["show", "partition"]:
                return f"PartitionName=dl MaxTime=UNLIMITED Nodes={','.join(NODES)} State=UP\n", ""
            case ["show", "reservation"]:
                return "No reservations in the system\n", ""
            case ["show", "topology"]:
                return self.topology, "" if self.topology else "error: No topology information available"
            case ["version"]:
                return "slurm-wlm 22.05.8\n", ""
            case ["show", "config"]:
                return self.config, ""
            case ["release", job_id]:
                return "", self._update(job_id, {"Priority": "4294901000"})
            case ["uhold", job_id]:
                return "", self._update(job_id, {"uhold": ""})
            case ["requeuehold", job_id]:
                return "", self._requeue(job_id)
            case ["update", target, *changes]:
                pairs = {key: value for key, _, value in (change.partition("=") for change in changes)}
                return "", self._update(target.removeprefix("JobId="), pairs)
        raise AssertionError(f"no such command: {words}")

    def _update(self, job_id: str, changes: dict[str, str]) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return f"Invalid job id specified for job {job_id}"
        if job_id in self.refusals:
            return f"{job_id}: {self.refusals[job_id]}"
        if "ResetAccrueTime" in changes and job.fields.get("state", "PENDING") != "PENDING":
            return f"{job_id}: Job is no longer pending execution"
        if not set(filter(None, changes.get("ReqNodeList", "").split(","))) <= set(NODES):
            return f"{job_id}: Invalid node name specified"
        nodes = changes.get("NumNodes", job.least_nodes).partition("-")[0]
        if job.exact_tasks and changes.get("TasksPerNode") == "0" and nodes != "1":
            return f"{job_id}: Task count specification invalid"
        if job_id not in self.deaf:
            # slurmctld takes the CPUs before the tasks, and the nodes before the tasks on each.
            order = {"NumCPUs": 0, "NumNodes": 1, "MinCPUsNode": 2} if job.exact_tasks else {}
            for key, value in sorted(changes.items(), key=lambda change: order.get(change[0], 3)):
                _apply(job, key, value)
        return ""

    def _requeue(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return f"Invalid job id specified for job {job_id}"
        if job.fields.get("requeue") == "0":
            return f"{job_id}: Requested operation is presently disabled"
        ended = job.fields["state"] == "COMPLETED"
        restarts = int(job.fields.get("restarts", "0")) + 1
        job.fields.update(restarts=str(restarts), priority="0", reason="job_requeued_in_held_state")
        job.fields.update(state="PENDING" if ended else "COMPLETING")
        if ended:
            job.fields.update(submit=at(SUBMIT_S + 60), nodes="", details="")
        return ""


def _apply(job: Job, key: str, value: str) -> None:
    fields = job.fields
    match key:
        case "Priority":
            fields["priority"] = value
            if value == "0":
                fields["reason"] = "JobHeldAdmin"
        case "uhold":
            fields.update(priority="0", reason="JobHeldUser")
        case "AdminComment":
            fields["admin_comment"] = value
        case "ReqNodeList":
            fields["req_nodes"] = value or "(null)"
            if fields.get("state", "PENDING") == "RUNNING":
                fields["nodes"] = value  # Slurm takes the others away from it
        case "ResetAccrueTime":
            pass  # a held job accrues no time
        case "TresPerJob" | "TresPerNode":
            others = [word for word in fields.get("gpus", "").split() if not word.startswith(f"{key}=")]
            fields["gpus"] = " ".join([*others, f"{key}={value}"]) + " "
        case "TasksPerNode":
            fields["tasks_per_node"] = value
            if job.exact_tasks and value != "0":
                each, least = int(fields.get("cpus_per_task", "1")), int(job.least_nodes)
                job.tasks = int(value) * least
                min_cpus = max(int(fields.get("min_cpus", "1")), int(value) * each)
                fields.update(num_tasks=str(job.tasks), num_cpus=str(min_cpus * least), min_cpus=str(min_cpus))
        case "CPUsPerTask":
            fields["cpus_per_task"] = value
        case "MinMemoryNode":
            fields["memory"] = f"MinMemoryNode={value}M"
        case "MinCPUsNode":
            fields["min_cpus"] = value
            if job.exact_tasks:
                fields["num_cpus"] = str(int(value) * int(job.least_nodes))
        case "NumTasks":
            job.tasks = int(value)
            fields["num_tasks"] = value
            if job.exact_tasks:
                fields["num_cpus"] = value
        case "NumCPUs":
            fields["num_cpus"] = str(max(int(value), int(job.least_nodes)))
        case "NumNodes":
            least = int(value.split("-", maxsplit=1)[0])
            tasks = job.tasks if job.exact_tasks else max(job.tasks, least)
            if job.tasks_per_gpu:
                job.tasks = tasks = job.tasks_per_gpu * least
                fields["num_cpus"] = str(tasks)
            fields.update(num_nodes=value, tres=f"cpu=1,node={least}", num_tasks=str(tasks))
            cpus = least * int(fields.get("min_cpus", "1")) if job.exact_tasks else least
            fields["num_cpus"] = str(max(int(fields.get("num_cpus", "1")), cpus))
        case "StartTime":
            fields["eligible"] = "Unknown" if value == "now" else at(int(value.removeprefix("uts")))
        case _:
            raise AssertionError(f"no such field: {key}")


def held(raw: int = 7, **fields: str) -> Job:
    """A job that Headway holds."""
    return Job(
        raw,
        {"state": "PENDING", "priority": "0", "admin_comment": HOLD_MARK, **fields},
        tasks=int(fields.get("num_tasks", "1")),
    )


def pending(raw: int = 7, **fields: str) -> Job:
    """A job that Slurm may start."""
    return held(raw, **{"priority": "4294901000", "reason": "Priority", "admin_comment": "", **fields})


def running(raw: int = 7, **fields: str) -> Job:
    """A job that runs."""
    return Job(raw, {**RUNNING, **fields})
