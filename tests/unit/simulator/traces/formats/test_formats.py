"""Every log format, on a log of a few rows made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import TraceError
from simulator.traces.formats import FORMATS, Loaded, Options, load_log
from simulator.traces.trace import NS_PER_S


def load(folder: Path, form: str, *texts: str, names: tuple[str, ...] = (), options: Options | None = None) -> Loaded:
    paths = []
    for at, text in enumerate(texts):
        path = folder / (names[at] if names else f"{form}{at}.log")
        path.write_text(text)
        paths.append(path)
    return load_log(form, paths, options)


def seconds(loaded: Loaded) -> list[tuple[str, float, int, float]]:
    """Each job's id, submit time, GPUs and run time."""
    trace = loaded.trace
    submits, durations = (trace.submit_ns / NS_PER_S).tolist(), (trace.duration_ns / NS_PER_S).tolist()
    return list(zip(trace.job_ids, submits, trace.num_gpus.tolist(), durations, strict=True))


def test_helios(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "helios",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "11,ann,vcA,8,16,1,FAILED,2020-05-01 00:01:00,2020-05-01 00:02:00,2020-05-01 00:02:30,30,60\n"
        "10,bob,vcB,1,4,1,COMPLETED,2020-05-01 00:00:00,2020-05-01 00:00:00,2020-05-01 01:00:00,3600,0\n"
        "12,bob,vcB,0,4,1,COMPLETED,2020-05-01 00:03:00,2020-05-01 00:03:00,2020-05-01 01:00:00,3420,0\n"
        "13,bob,vcB,1,4,1,CANCELLED,2020-05-01 00:04:00,None,2020-05-01 00:05:00,0,60\n"
        "14,bob,vcB,1,4,1,SUSPENDED,2020-05-01 00:05:00,2020-05-01 00:05:00,2020-05-01 00:06:00,60,0\n",
    )
    assert seconds(loaded) == [("10", 0, 1, 3600), ("11", 60, 8, 30)]
    assert loaded.trace.user == ("bob", "ann")
    assert loaded.trace.vc == ("vcB", "vcA")
    assert loaded.trace.status == ("COMPLETED", "FAILED")
    assert loaded.trace.extra["queue_s"] == ("0", "60")
    assert loaded.skipped == {
        "jobs without GPUs": 1,
        "jobs that had not ended when the log did": 1,
        "jobs that never ran, or for no time at all": 1,
    }


def test_acme_counts_no_queueing_as_run_time(tmp_path: Path) -> None:
    header = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    day = "2023-05-01 "
    loaded = load(
        tmp_path,
        "acme",
        header + f"s,u1,1,8,9,SFT,COMPLETED,{day}08:00:00+08:00,{day}08:00:10+08:00,{day}08:01:10+08:00,60,10,480.0\n",
        header
        + f"k,u2,2,16.0,9,Pretrain,FAILED,{day}00:00:30+00:00,{day}00:00:40+00:00,{day}00:00:45+00:00,15,10,240.0\n"
        + f"n,u2,2,16,9,Pretrain,CANCELLED,{day}00:00:30+00:00,,{day}00:00:45+00:00,0,15,0\n"
        + f"c,u2,1,0,9,Other,COMPLETED,{day}00:00:30+00:00,{day}00:00:40+00:00,{day}00:00:45+00:00,15,10,0\n",
        names=("trace_seren.csv", "trace_kalos.csv"),
    )
    assert seconds(loaded) == [("s", 0, 8, 60), ("k", 30, 16, 5)]
    assert loaded.trace.vc == ("seren", "kalos")
    assert loaded.trace.extra["type"] == ("SFT", "Pretrain")
    assert sum(loaded.skipped.values()) == 2


def philly_job(job_id: str, submitted: str, *attempts: tuple[str, str, int], user: str = "u") -> dict[str, object]:
    return {
        "status": "Pass",
        "vc": "v",
        "jobid": job_id,
        "attempts": [
            {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{at}" for at in range(gpus)]}]}
            for start, end, gpus in attempts
        ],
        "submitted_time": submitted,
        "user": user,
    }


def test_philly_adds_the_attempts_and_cuts_those_that_overlap(tmp_path: Path) -> None:
    day = "2017-10-05 "
    jobs = [
        philly_job(
            "late", day + "00:10:00", (day + "00:11:00", day + "00:12:00", 2), (day + "00:20:00", day + "00:20:30", 4)
        ),
        philly_job(
            "over", day + "00:00:00", (day + "01:00:00", day + "03:00:00", 8), (day + "02:00:00", day + "03:00:00", 8)
        ),
        philly_job("none", day + "00:00:00"),
        philly_job("open", day + "00:00:00", (day + "01:00:00", "None", 1)),
    ]
    loaded = load(tmp_path, "philly", json.dumps(jobs, indent=1))
    assert seconds(loaded) == [("over", 0, 8, 7200), ("late", 600, 4, 90)]
    assert loaded.trace.extra["attempts"] == ("2", "2")
    assert loaded.skipped == {"jobs without GPUs": 1, "jobs that had not ended when the log did": 1}


def test_philly_jobs_whose_last_attempt_has_no_end_have_not_ended(tmp_path: Path) -> None:
    day = "2017-10-05 "
    ends, runs = (day + "00:10:00", day + "00:12:00", 2), (day + "00:20:00", "None", 2)
    jobs = [
        philly_job("runs", day + "00:00:00", ends, runs),
        philly_job("lost", day + "00:00:00", (day + "00:01:00", "None", 2), ends),
    ]
    loaded = load(tmp_path, "philly", json.dumps(jobs))
    assert seconds(loaded) == [("lost", 0, 2, 120)]
    assert loaded.skipped == {"jobs that had not ended when the log did": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"jobid": "a",', r"line 2: the JSON ends too early; .*copy or download"),
        ('[\n{"jobid": "a"}\n]', "line 2, column attempts: is missing"),
        ('[\n{"jobid" "a"}\n]', "line 2: is not valid JSON"),
        ("jobid,vc\n", "does not begin with"),
        ("[]", "contains no job"),
        ("[\n\n7]", "line 3: '7' is not a job"),
        (json.dumps([philly_job("a", "2017-10-05 00:00:00", ("x", "y", 1))]), "line 1: 'x' is not a date with time"),
    ],
)
def test_invalid_philly_logs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        load(tmp_path, "philly", text)


TASKS = (
    "j1,ps,1.0,Terminated,90.0,400.0,600.0,29.3,,\n"
    "j1,worker,3.0,Terminated,100.0,400.0,600.0,29.3,50.0,V100\n"
    "j2,tensorflow,1.0,Failed,50.0,80.0,600.0,29.3,100.0,T4\n"
    "j3,worker,1.0,Running,60.0,,600.0,29.3,100.0,T4\n"
    "j4,worker,1.0,Terminated,60.0,70.0,600.0,29.3,0.0,\n"
)


def test_pai_joins_its_tables(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "pai",
        "inst_id,user,gpu_type_spec,group,workload\ni1,ann,V100,g,bert\n",
        TASKS,
        "j1,i1,ann,Terminated,70.0,400.0\nj2,i2,bob,Failed,40.0,80.0\nj3,i3,bob,Running,60.0,\nj4,i4,bob,Terminated,1.0,70.0\n",
    )
    assert seconds(loaded) == [("j2", 0, 1, 30), ("j1", 30, 2, 300)]
    assert loaded.trace.user == ("bob", "ann")
    assert loaded.trace.model == ("", "bert")
    assert loaded.trace.extra["plan_gpu"] == ("100", "150")
    assert loaded.trace.extra["gpu_type"] == ("T4", "V100"), "not those of tasks without GPUs"
    assert loaded.skipped == {"jobs without GPUs": 1, "jobs that had not ended when the log did": 1}


def test_pai_without_the_job_table_submits_at_the_launch(tmp_path: Path) -> None:
    assert seconds(load(tmp_path, "pai", TASKS)) == [("j2", 0, 1, 30), ("j1", 50, 2, 300)]


def test_pai_jobs_that_the_job_table_does_not_know_are_submitted_at_their_launch(tmp_path: Path) -> None:
    jobs = "j2,i2,bob,Failed,,80.0\nj9,i9,bob,Terminated,1.0,70.0\n"
    loaded = load(tmp_path, "pai", TASKS, jobs)
    assert seconds(loaded) == [("j2", 0, 1, 30), ("j1", 50, 2, 300)]
    assert loaded.trace.user == ("bob", "")


def test_pai_times_of_zero_are_not_known(tmp_path: Path) -> None:
    tasks = TASKS + "j5,worker,1.0,Failed,0.0,9000.0,600.0,29.3,100.0,T4\n"
    loaded = load(tmp_path, "pai", tasks, "j1,i1,ann,Terminated,0.0,400.0\nj2,i2,bob,Failed,40.0,80.0\n")
    assert seconds(loaded) == [("j2", 0, 1, 30), ("j1", 60, 2, 300)]
    assert loaded.skipped["jobs that never ran, or for no time at all"] == 1


def test_pai_jobs_have_the_status_of_the_job_and_else_failed_if_a_task_failed(tmp_path: Path) -> None:
    tasks = TASKS.replace("j1,worker,3.0,Terminated", "j1,worker,3.0,Failed")
    assert load(tmp_path, "pai", tasks).trace.status == ("Failed", "Failed")
    jobs = "j1,i1,ann,Terminated,70.0,400.0\nj2,i2,bob,,40.0,80.0\n"
    assert load(tmp_path, "pai", tasks, jobs).trace.status == ("Failed", "Terminated")


def test_pai_jobs_with_a_gpu_task_that_runs_have_not_ended(tmp_path: Path) -> None:
    tasks = TASKS + "j2,worker,1.0,Running,50.0,90.0,600.0,29.3,100.0,T4\nj1,ps,1.0,Running,90.0,,600.0,29.3,,\n"
    loaded = load(tmp_path, "pai", tasks)
    assert loaded.trace.job_ids == ("j1",)
    assert loaded.skipped["jobs that had not ended when the log did"] == 2


def test_pai_needs_its_task_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no task table .* give pai_task_table\.csv"):
        load(tmp_path, "pai", "j1,i1,ann,Terminated,70.0,400.0\n")
    with pytest.raises(TraceError, match="second table of its kind"):
        load(tmp_path, "pai", TASKS, TASKS)
    with pytest.raises(TraceError, match="has 2 columns"):
        load(tmp_path, "pai", "a,b\n")


def test_openb(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "openb",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,1,1,1,460,,LS,Running,100,890,140\np1,1,1,0,0,,LS,Running,100,900,150\n"
        "p2,1,1,8,1000,V100M16,BE,Succeeded,120,220,120\np3,1,1,1,1000,,BE,Pending,130,900,\n"
        "p4,1,1,1,1000,,LS,Running,200,900,250\np5,1,1,1,1000,,LS,Failed,200,900,250\n",
    )
    assert seconds(loaded) == [("p0", 0, 1, 750), ("p2", 20, 8, 100), ("p5", 100, 1, 650)]
    assert loaded.trace.vc == ("LS", "BE", "LS")
    assert loaded.trace.extra["gpu_milli"] == ("460", "1000", "1000")
    assert loaded.skipped == {
        "jobs without GPUs": 1,
        "jobs that never ran, or for no time at all": 1,
        "jobs that had not ended when the log did": 1,
    }


def test_itp_joins_clusters_on_one_clock(tmp_path: Path) -> None:
    header = "job_id,submission_time,duration,num_gpu\n"
    loaded = load(
        tmp_path, "itp", header + "a,50,600,1\n", header + "b,20,60,8\na,70,1,2\n", names=("c1.csv", "c2.csv")
    )
    assert seconds(loaded) == [("c2/b", 0, 8, 60), ("c1/a", 30, 1, 600), ("c2/a", 50, 2, 1)]
    assert loaded.trace.vc == ("c2", "c1", "c2")


def test_itp_reads_models(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "itp",
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\na,50,9,bert,90,128,4,600\n",
    )
    assert (loaded.trace.model, loaded.trace.batch_size.tolist()) == (("bert",), [128])
    assert loaded.trace.extra["deadline_s"] == ("90",)


GAVEL = (
    "ResNet-18 (batch size 32)\tpython3 main.py --x\t--num_steps\t1\t1000\t0.000000\t2\n"
    'A3C\tpython3 main.py "\t--max-steps\t0\t500\t10.500000\t1\n'
    "CycleGAN\tpython3 main.py\t--n_steps\t1\t100\t20.000000\t1\n"
)


def test_gavel_turns_steps_into_seconds(tmp_path: Path) -> None:
    speeds = tmp_path / "speeds.csv"
    speeds.write_text(
        "gpu,job_type,scale_factor,isolated_steps_per_s\nv100,ResNet-18 (batch size 32),1,99\n"
        "v100,ResNet-18 (batch size 32),2,20\nv100,A3C,1,4\nk80,CycleGAN,1,5\n"
    )
    loaded = load(tmp_path, "gavel", GAVEL, options=Options(speeds=speeds))
    assert seconds(loaded) == [("000000", 0, 2, 50), ("000001", 10.5, 1, 125)]
    assert loaded.trace.model == ("ResNet-18", "A3C")
    assert loaded.trace.batch_size.tolist() == [64, -1]
    assert loaded.skipped == {"jobs of types that were not measured at their scale": 1}


def test_gavel_takes_its_newer_form_and_its_own_table(tmp_path: Path) -> None:
    speeds = tmp_path / "speeds.json"
    speeds.write_text(json.dumps({"p100": {"('A3C', 1)": {"null": 4.0, "('A3C', 1)": [1.0, 1.0]}}}))
    row = "A3C\tpython3 main.py\t--max-steps\t0\t500\t1\t1.0\t-1.0\t30.0\n"
    loaded = load(tmp_path, "gavel", row, options=Options(speeds=speeds, gpu="p100"))
    assert seconds(loaded) == [("000000", 0, 1, 125)]
    with pytest.raises(TraceError, match="contains no speeds of the GPU 'v100'; give --gpu, one of p100"):
        load(tmp_path, "gavel", row, options=Options(speeds=speeds))


def test_gavel_needs_speeds(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="counts steps, not seconds; give --speeds FILE"):
        load(tmp_path, "gavel", GAVEL)


def test_pollux_derives_the_work_from_the_category(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "pollux",
        "name,time,application,num_replicas,batch_size\ncifar10-0,107.5,cifar10,2,2048\nimagenet-1,110,imagenet,8,1600\nx,1,dlrm,1,1\n",
    )
    (cifar, _, cifar_gpus, cifar_s), (imagenet, submit, imagenet_gpus, imagenet_s) = seconds(loaded)
    assert (cifar, imagenet, submit) == ("cifar10-0", "imagenet-1", 2.5)
    assert 0 < cifar_s * cifar_gpus / 3600 < 1
    assert 100 < imagenet_s * imagenet_gpus / 3600 < 1000
    assert loaded.trace.batch_size.tolist() == [2048, 1600]
    assert sum(loaded.skipped.values()) == 1


def test_tiresias(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "tiresias",
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,8,5,606,vgg19,164,30\n",
    )
    assert seconds(loaded) == [("0", 0, 8, 164)]
    assert (loaded.trace.model, loaded.trace.extra["iterations"]) == (("vgg19",), ("606",))


def test_swf(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "swf",
        "; Version: 2.2\n;\n"
        " 1 10 5 100 4 -1 -1 8 3600 -1 1 7 1 1 2 1 -1 -1\n"
        " 2 20 5 100 4 -1 -1 -1 -1 -1 0 -1 1 1 -1 3 -1 -1 ; a remark\n"
        " 3 30 5 -1 4 -1 -1 8 3600 -1 5 7 1 1 2 1 -1 -1\n"
        " 4 40 5 50 4 -1 -1 8 3600 -1 2 7 1 1 2 1 -1 -1\n"
        " 5 50 5 50 -1 -1 -1 -1 3600 -1 1 7 1 1 2 1 -1 -1\n",
    )
    assert seconds(loaded) == [("1", 0, 8, 100), ("2", 10, 4, 100)]
    assert loaded.trace.limit_ns.tolist() == [3600 * NS_PER_S, -1]
    assert (loaded.trace.user, loaded.trace.vc) == (("7", ""), ("2", "3"))
    assert loaded.trace.status == ("completed", "failed")
    assert sum(loaded.skipped.values()) == 3


def test_invalid_swf_lines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 2: has 3 fields, not 18"):
        load(tmp_path, "swf", ";\n1 2 3\n")
    with pytest.raises(TraceError, match=r"line 3, column requested_processors|line 3, column num_gpus"):
        load(tmp_path, "swf", ";\n;\n 1 10 5 100 4 -1 -1 x 3600 -1 1 7 1 1 2 1 -1 -1\n")


def test_errors_name_the_column_and_the_line_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 4, column num_gpu: '1.5' is not a whole number of GPUs"):
        load(tmp_path, "itp", "job_id,submission_time,duration,num_gpu\na,0,1,1\nb,0,1,0\nc,0,1,1.5\n")


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in {"philly", "swf", "gavel", "pai"}])
def test_the_error_of_another_table_names_the_missing_column(tmp_path: Path, form: str) -> None:
    with pytest.raises(TraceError, match=r"line 1, column .*: is not in the header"):
        load(tmp_path, form, "a,b\n1,2\n")


def test_a_log_without_a_job_to_keep_says_why(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"contains no job to keep .2 jobs without GPUs.; give a log of GPU jobs"):
        load(tmp_path, "itp", "job_id,submission_time,duration,num_gpu\na,0,1,0\nb,0,1,0\n")


def test_an_unknown_format_is_a_programming_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are philly, helios"):
        load(tmp_path, "nope", "")
