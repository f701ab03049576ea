"""Plays one case on one lot of a cluster."""

from __future__ import annotations

import re
import shlex
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CompletedProcess

from slurm.errors import CommandError
from slurm.minicluster.cluster import RunningCluster
from tests.parity.case import OVERRIDES, ROOT, Case, Do, Job, Pause, Step, Until
from tests.parity.outcome import CaseOutcome, CommandOutcome, JobOutcome
from tests.parity.play.records import Record
from tests.parity.play.scripts import STEP_FILE, STEP_TEXT, Written, batch_script
from tests.parity.play.watch import Watch
from tests.parity.world import Lot

COMMAND_S = 90.0
_CLEAR_S = 60.0
_ID_OR_TIME = re.compile(r"\b1\d{4}(?=[._]|\b)|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b(?:\.\d{3}\b)?")
"""Ids of jobs, which begin at 10000, and times, which newer releases log with milliseconds."""
_OCCUPIES = frozenset({"CONFIGURING", "RUNNING", "COMPLETING"})
_NO_JOB = "999999"
"""Id in the place of a job that was refused."""


@dataclass
class Player:
    """One case in flight. Invariant: its jobs have ended when `play` returns."""

    cluster: RunningCluster
    watch: Watch
    lot: Lot
    case: Case
    ids: dict[str, str] = field(default_factory=dict)
    """Ids of the accepted jobs, by label."""
    refused: dict[str, str] = field(default_factory=dict)
    """Words of refusals, by label."""
    commands: dict[str, CommandOutcome] = field(default_factory=dict)
    explain: Callable[[str], str] = lambda job_id: ""
    """Returns Headway's explanation of a job that waits."""
    begun_s: float = 0.0

    @property
    def folder(self) -> Path:
        """Folder of the case, to which every user may write."""
        return self.cluster.files.work / self.case.name

    def play(self) -> CaseOutcome:
        """Play the case, and return its outcome."""
        self._make_folder()
        waiting: dict[str, Future[CompletedProcess[str]]] = {}
        with ThreadPoolExecutor(4) as foreground:
            try:
                for step in self.case.steps:
                    self._take(step, waiting, foreground)
                self._until_all_ended(self.case.within_s)
                self._until_scripts_ended()
                last = self._all_records()
                explained = self._explanations(last)
                outcomes = self._outcomes(last)
            except CommandError as error:
                return CaseOutcome(problem=str(error)[-300:])
            finally:
                self._clear()
        for label, future in waiting.items():
            self._note_foreground(label, future)
        outcomes |= {label: JobOutcome(words=words) for label, words in self.refused.items()}
        return CaseOutcome(
            {label: replace(job, why=explained.get(label, "")) for label, job in outcomes.items()}, self.commands
        )

    def _explanations(self, last: dict[str, list[Record]]) -> dict[str, str]:
        waiting = {label: record for label, records in last.items() for record in records if record.state == "PENDING"}
        return {label + record.part: self._neutral(self.explain(record.job_id)) for label, record in waiting.items()}

    def _make_folder(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.chmod(0o1777)
        step = self.cluster.files.work / STEP_FILE
        if not step.exists():
            step.write_text(STEP_TEXT)
            step.chmod(0o755)

    # ---- steps

    def _take(
        self, step: Step, waiting: dict[str, Future[CompletedProcess[str]]], foreground: ThreadPoolExecutor
    ) -> None:
        self.begun_s = self.begun_s or time.time()
        match step:
            case Job(program="sbatch"):
                self._submit(step)
            case Job():
                waiting[step.label] = foreground.submit(self._run_foreground, step)
                self._find_foreground(step, waiting[step.label])
            case Do():
                done = self._run(*shlex.split(self._filled(step.words)), user=step.user)
                if step.label:
                    self.commands[step.label] = CommandOutcome(done.returncode, self._neutral(_said(done)))
            case Until():
                self._until(step.label, frozenset(step.states.split("|")), step.within_s)
            case Pause():
                time.sleep(step.seconds)

    def _submit(self, job: Job) -> None:
        options = ["--parsable", "--output=%j.out", *self._options(job)]
        done = self._run("sbatch", *options, user=job.user, stdin=batch_script(job))
        if done.returncode == 0:
            self.ids[job.label] = done.stdout.strip().split(";")[0]
        else:
            self.refused[job.label] = self._neutral(_said(done))

    def _run_foreground(self, job: Job) -> CompletedProcess[str]:
        command = shlex.split(self._filled(job.script))
        return self._run(job.program, *self._options(job), *command, user=job.user)

    def _find_foreground(self, job: Job, future: Future[CompletedProcess[str]]) -> None:
        """Wait until the job of a command that stays in the foreground is known by its name, or the command has ended."""
        for _ in range(20):
            self.watch.next_reading()
            if found := self.watch.named(self._job_name(job)):
                self.ids[job.label] = found[0].root_id
                return
            if future.done():
                break

    def _note_foreground(self, label: str, future: Future[CompletedProcess[str]]) -> None:
        try:
            done = future.result()
        except CommandError:
            self.commands[label] = CommandOutcome(-1, "no answer")
            return
        if label not in self.ids:
            self.refused[label] = self._neutral(_said(done))
        self.commands[label] = CommandOutcome(done.returncode, self._neutral(done.stdout.strip()))

    def _options(self, job: Job) -> list[str]:
        words = shlex.split(self._filled(job.options))
        chosen = any(word.startswith(OVERRIDES) for word in (*words, *job.directives.split()))
        partition = [] if chosen else [f"--partition={self.lot.names['gpu']}"]
        return [f"--job-name={self._job_name(job)}", *partition, *words]

    def _job_name(self, job: Job) -> str:
        return f"{self.case.name}.{job.label}"

    def _filled(self, words: str) -> str:
        return words.format_map(defaultdict(lambda: _NO_JOB, self.lot.names | self.ids)) if "{" in words else words

    def _run(self, *argv: str, user: str, stdin: str = "") -> CompletedProcess[str]:
        as_user = None if user == ROOT else user
        return self.cluster.run(*argv, user=as_user, stdin=stdin, check=False, timeout=COMMAND_S, cwd=self.folder)

    # ---- waiting

    def _records(self, label: str) -> list[Record]:
        return self.watch.records(self.ids[label]) if label in self.ids else []

    def _all_records(self) -> dict[str, list[Record]]:
        return {label: self._records(label) for label in self.ids}

    def _until(self, label: str, states: frozenset[str], within_s: float) -> None:
        name, underscore, part = label.partition("_")
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and name in self.ids:
            self.watch.next_reading()
            records = [record for record in self._records(name) if record.part in {"", underscore + part} or not part]
            if records and all(record.state in states for record in records):
                return

    def _until_all_ended(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not self._all_ended() and time.monotonic() < deadline:
            self.watch.next_reading()

    def _until_scripts_ended(self) -> None:
        """Wait for jobs that run: on a busy machine, short scripts take long, too."""
        deadline = time.monotonic() + self.case.runs_on_s
        while self._any_runs() and time.monotonic() < deadline:
            self.watch.next_reading()

    def _any_runs(self) -> bool:
        records = [record for label in self.ids for record in self._records(label)]
        return any(record.state in _OCCUPIES for record in records)

    def _all_ended(self) -> bool:
        records = [record for label in self.ids for record in self._records(label)]
        known = {record.root_id for record in records}
        return known == set(self.ids.values()) and all(record.has_ended for record in records)

    def _clear(self) -> None:
        if not self._all_ended():
            self._run("scancel", "--state=PENDING", *self.ids.values(), user=ROOT)
            self._run("scancel", *self.ids.values(), user=ROOT)
        for words in self.case.undo:
            self._run(*shlex.split(self._filled(words)), user=ROOT)
        self._until_all_ended(_CLEAR_S)

    # ---- the outcome

    def _outcomes(self, last: dict[str, list[Record]]) -> dict[str, JobOutcome]:
        written = Written(self.folder)
        outcomes = {}
        for label, records in last.items():
            for record in records:
                outcomes[label + record.part] = self._outcome(record, written)
        return outcomes

    def _outcome(self, record: Record, written: Written) -> JobOutcome:
        began_s, fields = written.first_begin_s(record.job_id), record.fields
        runs = record.state != "PENDING"
        return JobOutcome(
            state=record.state,
            reason="" if runs else fields.get("Reason", ""),
            exit_code=fields.get("ExitCode", "") if record.has_ended else "",
            restarts=record.restarts,
            began_s=None if began_s is None else round(began_s - self.begun_s, 1),
            ended_s=None if record.end_s is None else round(record.end_s - self.begun_s, 1),
            gpus={self.lot.neutral(node): number for node, number in record.gpus.items()},
            resources=fields.get("TRES", fields.get("AllocTRES", "")) if runs else "",
            environment=self._neutral_values(written.environment(record.job_id, record.begun_runs)),
            tasks=tuple(self._neutral_values(task) for task in written.tasks(record.job_id, record.begun_runs)),
            output=self._neutral(written.output(record.job_id)),
        )

    def _neutral(self, text: str) -> str:
        text = self.lot.neutral(text)
        for label, job_id in self.ids.items():
            text = re.sub(rf"\b{job_id}(?=_|\b)", f"<{label}>", text)
        return _ID_OR_TIME.sub("<id>", text).strip()

    def _neutral_values(self, values: dict[str, str]) -> dict[str, str]:
        return {name: self._neutral(value) for name, value in values.items()}


def _said(done: CompletedProcess[str]) -> str:
    """Return what a command printed, without the name of the program; repeated lines once."""
    lines = (re.sub(r"^\w+: (error: )?", "", line) for line in (done.stderr or done.stdout).splitlines())
    return "\n".join(dict.fromkeys(line for line in lines if line.strip()))
