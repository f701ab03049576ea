"""Lines as scontrol 22.05 prints them, with fields that differ by name."""

from __future__ import annotations

from controller.slurm.scontrol.clockface import Clockface

CLOCK = Clockface("t0123456789abcdef.")
SUBMIT_S = 1_795_176_869


def at(seconds: int = SUBMIT_S) -> str:
    """A time as Slurm prints it for us."""
    return f"{CLOCK.token}{seconds}"


_JOB = (
    "JobId={raw} {array}{het}JobName={name} {het_set}UserId={user}({uid}) GroupId=users(100) MCS_label={mcs_label} "
    "Priority={priority} Nice=0 Account={account} QOS={qos} {wckey}JobState={state} Reason={reason} "
    "Dependency={dependency} Requeue={requeue} Restarts={restarts} BatchFlag={batch} Reboot=0 ExitCode=0:0 "
    "DerivedExitCode=0:0 RunTime={run_time} TimeLimit={time_limit} TimeMin=N/A SubmitTime={submit} "
    "EligibleTime={eligible} AccrueTime=Unknown StartTime={start} EndTime={end} Deadline=N/A SuspendTime=None "
    "SecsPreSuspend=0 LastSchedEval={evaluated} Scheduler={scheduler} Partition={partition} "
    "AllocNode:Sid=login1:7515 ReqNodeList={req_nodes} ExcNodeList={exc_nodes} NodeList={nodes} {host}"
    "NumNodes={num_nodes} NumCPUs={num_cpus} NumTasks={num_tasks} CPUs/Task={cpus_per_task} ReqB:S:C:T=0:0:*:* TRES={tres} "
    "Socks/Node=* NtasksPerN:B:S:C={tasks_per_node}:0:*:* CoreSpec=* {details}MinCPUsNode={min_cpus} {memory} MinTmpDiskNode=0 "
    "Features={features} {reservation}DelayBoot=00:00:00 {cluster_features}OverSubscribe={oversubscribe} Contiguous=0 "
    "Licenses={licenses} "
    "Network={network} Command={command} WorkDir={workdir} {admin_comment}{comment}StdErr={stderr} StdIn=/dev/null "
    "StdOut={stdout} Power= {gpus}{mail}"
)
_PENDING = {
    "raw": "7", "array": "", "het": "", "het_set": "", "name": "train", "user": "ann", "uid": "1001", "priority": "0",
    "account": "(null)", "qos": "(null)", "wckey": "", "state": "PENDING", "reason": "JobHeldUser",
    "dependency": "(null)", "requeue": "1", "restarts": "0", "batch": "1", "run_time": "00:00:00",
    "time_limit": "UNLIMITED", "submit": at(), "eligible": "Unknown", "start": "Unknown", "end": "Unknown",
    "evaluated": at(), "scheduler": "Main", "partition": "dl", "req_nodes": "(null)", "exc_nodes": "(null)",
    "nodes": "", "host": "", "num_nodes": "1", "num_cpus": "1", "num_tasks": "1", "cpus_per_task": "1",
    "tres": "cpu=1,mem=1000M,node=1,billing=1", "tasks_per_node": "0", "min_cpus": "1", "details": "",
    "memory": "MinMemoryCPU=1000M",
    "features": "(null)", "reservation": "", "oversubscribe": "OK", "licenses": "(null)", "network": "(null)",
    "command": "/home/ann/train.sh", "workdir": "/home/ann", "admin_comment": "", "comment": "",
    "mcs_label": "N/A", "cluster_features": "",
    "stderr": "/dev/null", "stdout": "/dev/null", "gpus": "TresPerNode=gres:gpu:2 ", "mail": "",
}  # fmt: skip
RUNNING = {
    "priority": "4294901759", "state": "RUNNING", "reason": "None", "run_time": "00:01:40", "eligible": at(),
    "start": at(SUBMIT_S + 1), "end": at(SUBMIT_S + 601), "nodes": "n1", "host": "BatchHost=n1 ",
    "details": "JOB_GRES=gpu:a100:2   Nodes=n1 CPU_IDs=0-3 Mem=4000 GRES=gpu:a100:2(IDX:0,3) ",
}  # fmt: skip
"""Fields of a running job that differ from those of a pending one."""


def job_line(**fields: str) -> str:
    """A pending, held job of two GPUs, but for the fields that are given. Comments: only their text."""
    for name, key in (("admin_comment", "AdminComment"), ("comment", "Comment")):
        if fields.get(name):
            # scontrol prints one more space after comments than after other fields.
            fields[name] = f"{key}={fields[name]}  "
    return _JOB.format(**{**_PENDING, **fields})


def node_line(
    name: str = "n1", state: str = "IDLE", gres: str = "gpu:a100:8", more: str = "", load: str = "0.10"
) -> str:
    """A node."""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=62 CPUTot=64 CPULoad={load} "
        f"AvailableFeatures=fast,big ActiveFeatures=fast Gres={gres} NodeAddr=10.0.0.1 NodeHostName={name} "
        "Version=22.05.8 OS=Linux 6.1.0 #1 SMP Debian  RealMemory=256000 AllocMem=0 FreeMem=1 Sockets=2 "
        f"Boards=1 MemSpecLimit=6000 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
        f"Partitions=dl,short  BootTime={at()} SlurmdStartTime={at()} LastBusyTime={at()} CfgTRES=cpu=64,mem=250G "
        f"AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsTemp=n/s{more}"
    )
