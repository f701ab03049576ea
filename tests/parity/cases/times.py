"""Begin times, limits of time, deadlines, signals and requeues."""

from __future__ import annotations

from tests.parity.case import ROOT, Do, Job, Pause, Until, one, stepped, story

SUBJECT = "Times, signals and requeues"
GPU = "--gres=gpu:1"
# slurmctld looks every 30 s for jobs that are to get their signal, so the script waits longer than that. A signal to a whole step
# also ends the shell's `sleep`; the shell reports that on its error output, before the trap or after it.
TRAP = 'exec 2>/dev/null; trap "echo got USR1; exit 0" USR1; for i in $(seq 45); do sleep 1; done'

CASES = (
    one("begin-now", f"--begin=now {GPU}"),
    one("begin-later", f"--begin=now+6 {GPU}", within_s=40),
    one("begin-past", f"--begin=2020-01-01 {GPU}"),
    one("begin-malformed", f"--begin=someday {GPU}"),
    stepped("time", f"-t 2 {GPU}"),
    stepped("time-minimum", f"-t 5 --time-min=2 {GPU}"),
    one("time-above-partition", f"-t 120 {GPU}", within_s=10),
    one("time-limit-reached", f"-t 0:01 {GPU}", script="sleep 300", within_s=120),
    one("time-malformed", f"-t soon {GPU}"),
    one("deadline-kept", f"--deadline=now+5minutes -t 1 {GPU}"),
    one("deadline-impossible", f"--deadline=now+30 -t 10 {GPU}", within_s=12),
    one("deadline-past", f"--deadline=2020-01-01 -t 1 {GPU}"),
    story(
        "deadline-missed",
        Job(label="first", options="-w {n1} --gres=gpu:8", script="sleep 300"),
        Until("first"),
        Job(label="second", options=f"-w {{n1}} --deadline=now+65 -t 1 {GPU}"),
        Until("second", "DEADLINE", 90),
        within_s=1,
        runs_on_s=1,
    ),
    one("signal-batch", f"--signal=B:USR1@55 -t 1 {GPU}", script=TRAP, within_s=40),
    one("signal-steps", f"--signal=USR1@55 -t 1 {GPU}", script=f"srun bash -c '{TRAP}'", within_s=40),
    one("signal-for-reservation", f"--signal=R:USR1@5 -t 1 {GPU}"),
    one("time-unlimited", f"-t UNLIMITED {GPU}", within_s=10),
    one("time-zero", f"-t 0 {GPU}", within_s=10),
    one("begin-in-hours", f"--begin=now+1hour {GPU}", within_s=6),
    one("signal-malformed", f"--signal=NOTHING@5 {GPU}"),
    story(
        "scancel-signal",
        Job(options=GPU, script=TRAP),
        Until("job"),
        Pause(1),
        Do("scancel -b -s USR1 {job}", label="signal"),
        within_s=30,
    ),
    one("exit-status", GPU, script="exit 7"),
    one("exit-by-signal", GPU, script="kill -SEGV $$"),
    one("exit-of-a-step", GPU, script="srun bash -c 'exit 5'"),
    one("no-such-program", GPU, script="srun /nonexistent 2>/dev/null"),
    stepped("kill-on-bad-exit", f"-n2 {GPU}", srun="--kill-on-bad-exit=1"),
    one("wait-all-nodes", f"--wait-all-nodes=1 -N2 {GPU}"),
    one(
        "requeue-itself", GPU, script='[ "$SLURM_RESTART_COUNT" ] || scontrol requeue $SLURM_JOB_ID; sleep 3; echo done'
    ),
    story(
        "requeue-by-user",
        Job(options=GPU, script="sleep 6"),
        Until("job"),
        Pause(1),
        Do("scontrol requeue {job}", label="requeue"),
        within_s=30,
    ),
    story(
        "requeue-refused",
        Job(options=f"--no-requeue {GPU}", script="sleep 6"),
        Until("job"),
        Do("scontrol requeue {job}", label="requeue"),
        within_s=20,
    ),
    story(
        "requeue-hold",
        Job(options=GPU, script="sleep 6"),
        Until("job"),
        Do("scontrol requeuehold {job}", label="requeue"),
        within_s=15,
    ),
    story(
        "requeue-hold-release",
        Job(options=GPU, script="sleep 6"),
        Until("job"),
        Pause(1),
        Do("scontrol requeuehold {job}", user=ROOT, label="requeue"),
        Until("job", "PENDING"),
        Pause(3),
        Do("scontrol release {job}", user=ROOT, label="release"),
        within_s=30,
    ),
    story(
        "suspend",
        Job(options=GPU, script="sleep 4"),
        Until("job"),
        Pause(1),
        Do("scontrol suspend {job}", user=ROOT, label="suspend"),
        Pause(3),
        Do("scontrol resume {job}", user=ROOT, label="resume"),
        within_s=30,
    ),
    story("cancel-running", Job(options=GPU, script="sleep 30"), Until("job"), Do("scancel {job}", label="cancel")),
    story(
        "cancel-waiting",
        Job(label="first", options="-w {n1} --gres=gpu:8", script="sleep 8"),
        Until("first"),
        Job(label="second", options=f"-w {{n1}} {GPU}"),
        Pause(3),
        Do("scancel {second}", label="cancel"),
        within_s=20,
    ),
    story(
        "cancel-of-another-user", Job(options=GPU, script="sleep 5"), Until("job"), Do("scancel {job}", "bin", "cancel")
    ),
    story(
        "cancel-by-name",
        Job(options=f"{GPU} -J unwanted", script="sleep 20"),
        Until("job"),
        Do("scancel --name=unwanted", label="cancel"),
    ),
    one("wait-for-end", f"--wait {GPU}", script="exit 4"),
)
