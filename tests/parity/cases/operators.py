"""Reservations, maintenance, drained nodes, holds and changes by users and operators."""

from __future__ import annotations

from tests.parity.case import OTHER, ROOT, Case, Do, Job, Pause, Step, Until, one, story

SUBJECT = "Reservations, holds and changes"
GPU = "--gres=gpu:1"
BUSY = (Job(label="busy", options="-w {n1} --gres=gpu:8", script="sleep 7"), Until("busy"))


def reserved(name: str, options: str, *steps: Step, **fields: object) -> Case:
    """Return a case with a reservation of its name."""
    create = Do(f"scontrol create reservation ReservationName={name} {options}", ROOT, "create")
    undo = (f"scontrol delete ReservationName={name}",)
    return story(name, create, *steps, undo=undo, **({"within_s": 15} | fields))


def changed(name: str, options: str, change: str, **fields: object) -> Case:
    """Return a case in which the user changes a job while it waits for a node that is busy."""
    do = Do(f"scontrol update JobId={{job}} {change}", label="change")
    return story(name, *BUSY, Job(label="job", options=options), Pause(1), do, **({"within_s": 30} | fields))


CASES = (
    reserved(
        "reservation-used",
        "Users=daemon StartTime=now Duration=10 Nodes={n2}",
        Job(options=f"--reservation=reservation-used {GPU}", script="srun bash ../step.sh"),
        where=True,
    ),
    reserved(
        "reservation-avoided",
        "Users=bin StartTime=now Duration=10 Nodes={n1},{n2}",
        Job(options=GPU),
        where=True,
    ),
    reserved(
        "reservation-of-others",
        "Users=bin StartTime=now Duration=10 Nodes={n2}",
        Job(options=f"--reservation=reservation-of-others {GPU}"),
    ),
    reserved(
        "reservation-magnetic",
        "Users=daemon StartTime=now Duration=20 Flags=MAGNETIC Nodes={n1},{n2},{n3}",
        Job(options=GPU),
    ),
    one("reservation-unknown", f"--reservation=nothing {GPU}"),
    reserved(
        "reservation-too-small",
        "Users=daemon StartTime=now Duration=10 Nodes={n2}",
        Job(options=f"--reservation=reservation-too-small -N2 {GPU}"),
        within_s=8,
    ),
    reserved(
        "reservation-later",
        "Users=daemon StartTime=now+10 Duration=10 Nodes={n2}",
        Job(options=f"--reservation=reservation-later {GPU}"),
        within_s=50,
    ),
    reserved(
        "reservation-ahead-blocks-long",
        "Users=bin StartTime=now+2minutes Duration=10 Nodes={n1},{n2},{n3}",
        Job(label="long", options=f"-t 10 {GPU}"),
        Job(label="brief", options=f"-t 1 {GPU}"),
    ),
    reserved(
        "maintenance-now",
        "Users=root StartTime=now Duration=10 Flags=MAINT,IGNORE_JOBS Nodes={n1},{n2}",
        Job(options=GPU),
        where=True,
    ),
    reserved(
        "maintenance-inside",
        "Users=root,daemon StartTime=now Duration=10 Flags=MAINT,IGNORE_JOBS Nodes={n1},{n2}",
        Pause(8),  # slurmctld of 22.05 sets the state of the nodes within 5 s
        Job(label="inside", options=f"--reservation=maintenance-inside -N2 {GPU}"),
        Job(label="outside", options=GPU),
        where=True,
        within_s=30,
    ),
    reserved(
        "maintenance-everywhere",
        "Users=root StartTime=now Duration=10 Flags=MAINT,IGNORE_JOBS Nodes={n1},{n2},{n3}",
        Job(options=GPU),
        within_s=8,
    ),
    reserved(
        "maintenance-ahead",
        "Users=root StartTime=now+2minutes Duration=10 Flags=MAINT Nodes={n1},{n2},{n3}",
        Job(label="long", options=f"-t 10 {GPU}"),
        Job(label="brief", options=f"-t 1 {GPU}"),
    ),
    reserved(
        "maintenance-removed",
        "Users=root StartTime=now Duration=10 Flags=MAINT,IGNORE_JOBS Nodes={n1},{n2},{n3}",
        Job(options=GPU),
        Pause(4),
        Do("scontrol delete ReservationName=maintenance-removed", ROOT, "delete"),
        within_s=30,
    ),
    story(
        "node-drained",
        Do("scontrol update NodeName={n1},{n2} State=DRAIN Reason=test", ROOT, "drain"),
        Pause(2),
        Job(options=GPU),
        undo=("scontrol update NodeName={n1},{n2} State=RESUME",),
        where=True,
    ),
    story(
        "node-drained-asked-for",
        Do("scontrol update NodeName={n1} State=DRAIN Reason=test", ROOT, "drain"),
        Pause(2),
        Job(options=f"-w {{n1}} {GPU}"),
        Pause(3),
        Do("scontrol update NodeName={n1} State=RESUME", ROOT, "resume"),
        undo=("scontrol update NodeName={n1} State=RESUME",),
        within_s=40,
    ),
    story(
        "node-down-requeues",
        Job(options=f"-w {{n1}} {GPU}", script="sleep 20"),
        Until("job"),
        Pause(2),
        Do("scontrol update NodeName={n1} State=DOWN Reason=test", ROOT, "down"),
        Pause(3),
        undo=("scontrol update NodeName={n1} State=RESUME",),
        within_s=10,
    ),
    story("hold-at-submission", Job(options=f"-H {GPU}"), within_s=8),
    story(
        "hold-at-submission-released",
        Job(options=f"-H {GPU}"),
        Pause(2),
        Do("scontrol release {job}", label="release"),
        within_s=30,
    ),
    story(
        "hold-of-a-waiting-job",
        *BUSY,
        Job(label="held", options=f"-w {{n1}} {GPU}"),
        Pause(1),
        Do("scontrol hold {held}", label="hold"),
        within_s=15,
    ),
    story(
        "hold-and-release",
        *BUSY,
        Job(label="held", options=f"-w {{n1}} {GPU}"),
        Pause(1),
        Do("scontrol hold {held}", label="hold"),
        Pause(2),
        Do("scontrol release {held}", label="release"),
        within_s=40,
    ),
    story(
        "hold-by-root-released-by-user",
        *BUSY,
        Job(label="held", options=f"-w {{n1}} {GPU}"),
        Pause(1),
        Do("scontrol hold {held}", ROOT, "hold"),
        Pause(1),
        Do("scontrol release {held}", label="release"),
        within_s=15,
    ),
    story(
        "hold-by-root",
        *BUSY,
        Job(label="held", options=f"-w {{n1}} {GPU}"),
        Pause(1),
        Do("scontrol hold {held}", ROOT, "hold"),
        within_s=15,
    ),
    story(
        "release-without-hold",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} {GPU}"),
        Do("scontrol release {job}", label="release"),
        within_s=30,
    ),
    story(
        "update-time-limit",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} -t 10 {GPU}", script="squeue -h -j $SLURM_JOB_ID -o %l"),
        Do("scontrol update JobId={job} TimeLimit=5", label="change"),
        within_s=30,
    ),
    story(
        "update-time-limit-raised",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} -t 10 {GPU}", script="squeue -h -j $SLURM_JOB_ID -o %l"),
        Do("scontrol update JobId={job} TimeLimit=20", label="change"),
        within_s=30,
    ),
    story(
        "update-name-and-comment",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} {GPU}", script="squeue -h -j $SLURM_JOB_ID -O name,comment"),
        Do("scontrol update JobId={job} JobName=renamed Comment=mine", label="change"),
        within_s=30,
    ),
    changed("update-gpus", "-w {n1} --gres=gpu:4", "TresPerNode=gres:gpu:2"),
    changed("update-nodes", f"-w {{n1}} {GPU}", "ReqNodeList={n2}", where=True),
    changed("update-number-of-nodes", f"-w {{n1}} -N1 {GPU}", "NumNodes=2-2"),
    changed("update-features", f"-w {{n1}} {GPU}", "ReqNodeList= Features=slow", where=True),
    changed("update-exclude", "-x {n2},{n3} --gres=gpu:1", "ExcNodeList={n1},{n3}", where=True),
    changed("update-begin", f"-w {{n1}} {GPU}", "StartTime=now+12", within_s=40),
    story(
        "update-begin-to-now",
        Job(options=f"--begin=now+1hour {GPU}"),
        Pause(2),
        Do("scontrol update JobId={job} StartTime=now", label="change"),
        within_s=30,
    ),
    changed("update-memory-and-cpus", f"-w {{n1}} -c4 --mem=4G {GPU}", "MinMemoryNode=8192"),
    story(
        "update-requeue",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} {GPU}"),
        Do("scontrol update JobId={job} Requeue=0", label="change"),
        within_s=30,
    ),
    story(
        "update-by-another-user",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} {GPU}"),
        Do("scontrol update JobId={job} TimeLimit=1", OTHER, "change"),
        within_s=30,
    ),
    story(
        "update-deadline",
        *BUSY,
        Job(label="job", options=f"-w {{n1}} -t 1 {GPU}"),
        Do("scontrol update JobId={job} Deadline=now+10minutes", label="change"),
        within_s=30,
    ),
    story(
        "update-running-time",
        Job(options=f"-t 10 {GPU}", script="sleep 4; squeue -h -j $SLURM_JOB_ID -o %l"),
        Until("job"),
        Do("scontrol update JobId={job} TimeLimit=5", label="change"),
    ),
    story(
        "update-running-nodes",
        Job(options=f"-N2 {GPU}", script="sleep 6"),
        Until("job"),
        Do("scontrol update JobId={job} NumNodes=1", label="change"),
    ),
)
