"""Realistic text of scontrol for clusters of any size, as Slurm 22.05 prints it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from controller.slurm.scontrol.clockface import Clockface

EPOCH_S = 1_795_000_000
_USERS = tuple(f"user{number:03d}" for number in range(200))
_NAMES = ("train", "bert-large pretraining", "resnet50_b256", "llama lr=3e-4 seed=1", "sweep", "eval gpt2")


@dataclass(slots=True)
class ScontrolText:
    """A cluster's text. Invariant: the same seed gives the same text; `tick` changes only times and loads."""

    clock: Clockface
    pending: int = 10_000
    nodes: int = 2_000
    running: int = 0
    gpus: int = 8
    seed: int = 1
    now_s: int = EPOCH_S + 100_000
    _shapes: list[tuple[int, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the jobs."""
        draw = random.Random(self.seed)
        self._shapes = [
            (draw.choice((1, 1, 2, 4, 8)), draw.choice((1, 1, 1, 2, 4)), draw.choice(_NAMES))
            for _ in range(self.pending + self.running)
        ]

    def tick(self, seconds: int = 5) -> None:
        """Let time pass without events: run times, loads and last evaluations change."""
        self.now_s += seconds

    def jobs(self) -> bytes:
        """Return the answer to `show job`, running jobs first."""
        running = [self._running(number) for number in range(self.running)]
        pending = [self._pending(number) for number in range(self.running, self.running + self.pending)]
        return "".join(f"{line}\n" for line in running + pending).encode()

    def node_lines(self) -> bytes:
        """Return the answer to `show node`."""
        return "".join(f"{self._node(number)}\n" for number in range(1, self.nodes + 1)).encode()

    def partitions(self) -> bytes:
        """Return the answer to `show partition`."""
        return (
            "PartitionName=dl AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
            f"MaxTime=UNLIMITED MinNodes=0 LLN=NO Nodes=n[1-{self.nodes}] PriorityTier=1 RootOnly=NO State=UP "
            f"TotalCPUs={self.nodes * 64} TotalNodes={self.nodes} SelectTypeParameters=NONE\n"
        ).encode()

    def reservations(self) -> bytes:
        """Return the answer to `show reservation`."""
        return b"No reservations in the system\n"

    def _pending(self, number: int) -> str:
        return self._job(
            number,
            owner="Priority=0",
            state="JobState=PENDING Reason=JobHeldUser",
            run_s=0,
            times=f"EligibleTime=Unknown AccrueTime=Unknown StartTime=Unknown EndTime=Unknown Deadline=N/A SuspendTime=None "
            f"SecsPreSuspend=0 LastSchedEval={self._time(EPOCH_S + number)} Scheduler=Main",
            node_list="NodeList=",
            details="",
        )

    def _running(self, number: int) -> str:
        gpus, nodes, _ = self._shapes[number]
        first = number * 4 % max(self.nodes - nodes, 1) + 1
        listed = f"n[{first}-{first + nodes - 1}]" if nodes > 1 else f"n{first}"
        start_s = EPOCH_S + number + 60
        held = ",".join(f"gpu:g{index}:{int(index < gpus)}(IDX:{index if index < gpus else ''})" for index in range(8))
        total = ",".join(f"gpu:g{index}:{nodes * int(index < gpus)}" for index in range(8))
        return self._job(
            number,
            owner="Priority=4294901759",
            state="JobState=RUNNING Reason=None",
            run_s=self.now_s - start_s,
            times=f"EligibleTime={self._time(start_s)} AccrueTime={self._time(start_s)} StartTime={self._time(start_s)} "
            f"EndTime={self._time(start_s + 86_400)} Deadline=N/A SuspendTime=None SecsPreSuspend=0 "
            f"LastSchedEval={self._time(start_s)} Scheduler=Backfill",
            node_list=f"NodeList={listed} BatchHost=n{first}",
            details=f"JOB_GRES={total}   Nodes={listed} CPU_IDs=0-{gpus - 1} Mem={gpus * 4000} GRES={held} ",
        )

    def _job(self, number: int, *, owner: str, state: str, run_s: int, times: str, node_list: str, details: str) -> str:
        gpus, nodes, name = self._shapes[number]
        user = _USERS[number % len(_USERS)]
        cpus = gpus * nodes * 4
        return (
            f"JobId={1000 + number} JobName={name} UserId={user}({2000 + number % len(_USERS)}) GroupId=users(100) "
            f"MCS_label=N/A {owner} Nice=0 Account=(null) QOS=(null) {state} Dependency=(null) Requeue=1 Restarts=0 "
            f"BatchFlag=1 Reboot=0 ExitCode=0:0 DerivedExitCode=0:0 RunTime={_clock(run_s)} TimeLimit=1-00:00:00 "
            f"TimeMin=N/A SubmitTime={self._time(EPOCH_S + number)} {times} Partition=dl AllocNode:Sid=login1:7515 "
            f"ReqNodeList=(null) ExcNodeList=(null) {node_list} NumNodes={nodes}-{nodes} NumCPUs={cpus} NumTasks={nodes} "
            f"CPUs/Task={gpus * 4} ReqB:S:C:T=0:0:*:* TRES=cpu={cpus},mem={cpus * 1000}M,node={nodes},billing={cpus} "
            f"Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* {details}MinCPUsNode={gpus * 4} MinMemoryCPU=1000M "
            "MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) "
            f"Network=(null) Command=/home/{user}/runs/{number}/train.sh --epochs 90 WorkDir=/home/{user}/runs/{number} "
            f"AdminComment=headway:hold  Comment=run {number} of a sweep  StdErr=/home/{user}/runs/{number}/slurm.out "
            f"StdIn=/dev/null StdOut=/home/{user}/runs/{number}/slurm.out Power= TresPerNode=gres:gpu:{gpus} "
        )

    def _node(self, number: int) -> str:
        gres = ",".join(f"gpu:g{index}:1" for index in range(self.gpus))
        return (
            f"NodeName=n{number} Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=64 CPUTot=64 "
            f"CPULoad=0.{(number * 7 + self.now_s) % 90 + 10} AvailableFeatures=rack{number // 40} "
            f"ActiveFeatures=rack{number // 40} Gres={gres} GresDrain=N/A "
            f"GresUsed={','.join(f'gpu:g{index}:0(IDX:N/A)' for index in range(self.gpus))} NodeAddr=10.0.{number // 250}."
            f"{number % 250} NodeHostName=n{number} Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC Debian  "
            f"RealMemory=512000 AllocMem=0 FreeMem={400_000 + self.now_s % 977} Sockets=2 Boards=1 State=IDLE "
            "ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=dl  "
            f"BootTime={self._time(EPOCH_S)} SlurmdStartTime={self._time(EPOCH_S)} LastBusyTime={self._time(EPOCH_S)} "
            "CfgTRES=cpu=64,mem=500G,billing=64 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
            "ExtSensorsWatts=0 ExtSensorsTemp=n/s"
        )

    def _time(self, seconds: int) -> str:
        return f"{self.clock.token}{seconds}"


def _clock(seconds: int) -> str:
    days, rest = divmod(max(seconds, 0), 86_400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text
