"""Traces, logs, profiles and clusters, which users download or write."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from simulator.cluster.cluster import Cluster, read_cluster
from simulator.cluster.toml import cluster_toml
from simulator.engine.failures import read_failures
from simulator.errors import ClusterError, SettingError, SlowdownError, TraceError
from simulator.runs.sweep import load_sweep
from simulator.slowdown.fitting.rows import read_records
from simulator.slowdown.profiles.files import load_profiles, save_profiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.formats import Options, load_log
from simulator.traces.read import read_trace
from tests.fuzz.target import Target
from tests.unit.simulator.traces.formats import test_formats as known
from tests.unit.simulator.traces.formats import test_sacct as known_sacct

_TRACE = (
    b"job_id,submit_time_s,num_gpus,duration_s,user,vc,status,model,batch_size,min_gpus,max_gpus,time_limit_s,preemptible\n"
    b'1,0,8,3600.5,ann,dl,ok,bert,32,1,8,7200,1\n2,10.25,1,1e2,"a, b",dl,,"x""y",,,,,0\n'
)
_HELIOS = (
    b"job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    b"11,ann,vcA,8,16,1,FAILED,2020-05-01 00:01:00,2020-05-01 00:02:00,2020-05-01 00:02:30,30,60\n"
)
_ACME = (
    b"job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    b"s,u1,1,8,9,SFT,COMPLETED,2023-05-01 08:00:00+08:00,2023-05-01 08:00:10+08:00,2023-05-01 08:01:10+08:00,60,10,480.0\n"
)
_ITP = b"job_id,submission_time,duration,num_gpu\na,50,600,1\n"
_OPENB = (
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    b"p0,1,1,1,460,,LS,Succeeded,100,900,150\n"
)
_POLLUX = b"name,time,application,num_replicas,batch_size\ncifar10-0,107.5,cifar10,2,2048\n"
_TIRESIAS = b"job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,8,5,606,vgg19,164,30\n"
_SWF = b"; Version: 2.2\n;\n 1 10 5 100 4 -1 -1 8 3600 -1 1 7 1 1 2 1 -1 -1\n"
_SACCT = "\n".join(
    [known_sacct.HEADER, known_sacct.row("100"), known_sacct.row("101", limit="UNLIMITED", name="a|b"), ""]
).encode()
_CLUSTERS = (
    cluster_toml(Cluster.uniform(3, 8)).encode(),
    b'[[nodes]]\nnames = "a[1-4]"\ngpus = 8\nrack = "r1"\n[[nodes]]\nnames = "b"\ngpus = 4\nspeed = 2.0\nrack = "r2"\n'
    b'[network]\nkind = "racks"\n',
)


def logs() -> list[bytes]:
    """Return a few lines of each format, behind a line with its name."""
    day = "2017-10-05 "
    philly = json.dumps([known.philly_job("a", day + "00:10:00", (day + "00:11:00", day + "00:12:00", 2))], indent=1)
    found = {
        "helios": _HELIOS, "acme": _ACME, "itp": _ITP, "openb": _OPENB, "pollux": _POLLUX, "tiresias": _TIRESIAS, "swf": _SWF,
        "sacct": _SACCT, "philly": philly.encode(), "pai": known.TASKS.encode(), "gavel": known.GAVEL.encode(),
    }  # fmt: skip
    return [name.encode() + b"\n" + text for name, text in found.items()]


def read_log(data: bytes, folder: Path) -> object:
    """Read a log of the format that the first line names."""
    name, _, text = data.partition(b"\n")
    form = name.decode("utf-8", "replace")
    if form not in {each.split(b"\n", 1)[0].decode() for each in _LOGS}:
        form = "sacct"
    (folder / "a.csv").write_bytes(text)
    speeds = folder / "speeds.json"
    speeds.write_text(json.dumps({"v100": {"('A3C', 1)": {"null": 4.0}}}))
    return load_log(form, [folder / "a.csv"], Options(speeds=speeds))


_LOGS = logs()


def compressed() -> list[bytes]:
    """Return traces that are compressed or parquet."""
    with TemporaryDirectory() as folder:
        found = [gzip.compress(_TRACE, mtime=0)]
        from simulator.traces.write import write_trace

        (Path(folder) / "a.csv").write_bytes(_TRACE)
        trace = read_trace(Path(folder) / "a.csv")
        for name in ("b.parquet", "c.csv.zst"):
            write_trace(trace, Path(folder) / name)
            found.append((Path(folder) / name).read_bytes())
        return found


def read_compressed(data: bytes, folder: Path) -> object:
    """Read a trace that is compressed or parquet."""
    ending = ".csv.gz" if data[:2] == b"\x1f\x8b" else ".csv.zst" if data[:4] == b"\x28\xb5\x2f\xfd" else ".parquet"
    (folder / f"a{ending}").write_bytes(data)
    return read_trace(folder / f"a{ending}")


def profiles() -> list[bytes]:
    """Return profiles of models."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profiles.json"
        save_profiles(paper_profiles(), path)
        return [path.read_bytes()]


def of_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """Return what reads the file of that name."""
    return lambda _data, folder: read(folder / name)


_FOUR = Cluster.uniform(4, 8)
SIMULATOR = (
    Target(
        "trace-csv",
        "traces",
        "text",
        lambda: [_TRACE],
        of_file("a.csv", read_trace),
        (TraceError,),
        file="a.csv",
        cost=4,
    ),
    Target(
        "trace-packed",
        "traces in gzip, zstd and parquet",
        "bytes",
        compressed,
        read_compressed,
        (TraceError,),
        cost=20,
        needs="pyarrow",
    ),
    Target(
        "trace-logs", "published logs of clusters, and sacct's", "text", lambda: _LOGS, read_log, (TraceError,), cost=6
    ),
    Target(
        "failures",
        "failures of nodes",
        "text",
        lambda: [b"time_s,node,change\n10,n1,down\n20.5,0,up\n"],
        of_file("f.csv", lambda path: read_failures(path, _FOUR)),
        (TraceError,),
        file="f.csv",
        cost=2,
    ),
    Target(
        "profiles-json",
        "profiles of models in JSON",
        "json",
        profiles,
        of_file("p.json", load_profiles),
        (SlowdownError,),
        file="p.json",
        cost=6,
    ),
    Target(
        "profiles-toml",
        "profiles of models in TOML",
        "text",
        lambda: [
            b'format = 1\npairs = [["a,1", "b,2", 0.5]]\n[models.a]\ncompute_s = 0.1\nbytes = 1e6\nlocality = [1, 1, 0.2, 0.1]\n'
        ],
        of_file("p.toml", load_profiles),
        (SlowdownError,),
        file="p.toml",
        cost=4,
    ),
    Target(
        "fit-rows",
        "measurements to fit models to",
        "text",
        lambda: [b"a,b,c\n1,2.5,x\n2,nan,y\n"],
        of_file("r.csv", lambda path: list(read_records(path, ("a", "b")))),
        (SlowdownError,),
        file="r.csv",
        cost=2,
    ),
    Target(
        "cluster-toml",
        "simulated clusters",
        "text",
        lambda: list(_CLUSTERS),
        of_file("c.toml", read_cluster),
        (ClusterError,),
        file="c.toml",
        cost=5,
    ),
    Target(
        "sweep-toml",
        "options that a sweep varies",
        "text",
        lambda: [
            b'trace = "a.csv"\ncluster = "1x4"\npolicies = ["fifo"]\nslowdown = "none"\n'
            b"[sweep]\npreempt-cost = [0, 7.5]\nseed = [1, 2]\n"
        ],
        of_file("s.toml", lambda path: load_sweep(path, {}, None)),
        (SettingError,),
        file="s.toml",
        cost=4,
    ),
)
