"""Dependencies, singletons and arrays."""

from __future__ import annotations

from tests.parity.case import Do, Job, Until, one, stepped, story

SUBJECT = "Dependencies and arrays"
GPU = "--gres=gpu:1"


def pair(name: str, dependency: str, script: str = "sleep 3", **fields: object):  # type: ignore[no-untyped-def]
    """Return a case of two jobs, the second of which depends on the first."""
    first = Job(label="first", options=GPU, script=script)
    return story(name, first, Job(label="second", options=f"{GPU} -d {dependency}"), **({"within_s": 30} | fields))


CASES = (
    pair("afterok", "afterok:{first}"),
    pair("afterok-failed", "afterok:{first}", "exit 3", within_s=15),
    pair("afterok-failed-kill", "afterok:{first} --kill-on-invalid-dep=yes", "exit 3"),
    pair("afternotok", "afternotok:{first}", "exit 3"),
    pair("afternotok-succeeded", "afternotok:{first} --kill-on-invalid-dep=yes"),
    pair("afterany", "afterany:{first}", "exit 3"),
    pair("after", "after:{first}", "sleep 5"),
    pair("after-a-minute", "after:{first}+1", within_s=100),
    pair("aftercorr-single", "aftercorr:{first}"),
    pair("afterburstbuffer", "afterburstbuffer:{first}"),
    story(
        "afterok-two",
        Job(label="first", options=GPU, script="sleep 2"),
        Job(label="second", options=GPU, script="sleep 4"),
        Job(label="third", options=f"{GPU} -d afterok:{{first}}:{{second}}"),
        within_s=30,
    ),
    story(
        "after-any-of-two",
        Job(label="first", options=GPU, script="sleep 2"),
        Job(label="second", options=GPU, script="sleep 8"),
        Job(label="third", options=f"{GPU} -d afterok:{{first}}?afterok:{{second}}"),
        within_s=30,
    ),
    story(
        "afterok-chain",
        Job(label="first", options=GPU, script="sleep 1"),
        Job(label="second", options=f"{GPU} -d afterok:{{first}}", script="sleep 1"),
        Job(label="third", options=f"{GPU} -d afterok:{{second}}"),
        within_s=40,
    ),
    story(
        "afterok-of-a-cpu-job",
        Job(label="first", options="-p {cpu}", script="sleep 2"),
        Job(label="second", options=f"{GPU} -d afterok:{{first}}"),
        within_s=30,
    ),
    one("afterok-unknown", f"{GPU} -d afterok:999998", within_s=12),
    one("dependency-malformed", f"{GPU} -d afterwards:1"),
    story(
        "singleton",
        Job(label="first", options=f"{GPU} -J alone", script="sleep 4"),
        Job(label="second", options=f"{GPU} -J alone -d singleton", script="sleep 2"),
        Job(label="third", options=f"{GPU} -J alone -d singleton"),
        within_s=40,
    ),
    story(
        "singleton-of-another-user",
        Job(label="first", options=f"{GPU} -J mine", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"{GPU} -J mine -d singleton", user="bin"),
        within_s=30,
    ),
    story(
        "dependency-changed",
        Job(label="first", options=GPU, script="sleep 20"),
        Job(label="second", options=f"{GPU} -d afterok:{{first}}"),
        Do("scontrol update JobId={second} Dependency=", label="change"),
        Until("second", "COMPLETED", 15),
        within_s=1,
    ),
    story(
        "dependency-added",
        Job(label="first", options="-w {n1} --gres=gpu:8", script="sleep 4"),
        Job(label="second", options=f"-w {{n1}} {GPU}"),
        Job(label="third", options="-w {n2} --gres=gpu:1", script="sleep 9"),
        Do("scontrol update JobId={second} Dependency=afterany:{third}", label="change"),
        within_s=40,
    ),
    stepped("array-of-three", f"-a 0-2 {GPU}"),
    one("array-with-step", f"-a 1-5:2 {GPU}"),
    one("array-of-numbers", f"-a 3,7 {GPU}"),
    one("array-of-one", f"-a 4 {GPU}"),
    one("array-throttled", f"-a 0-3%1 {GPU}", script="sleep 2", within_s=60),
    one("array-throttled-two", f"-a 0-3%2 {GPU}", script="sleep 3", within_s=60),
    one("array-too-long", f"-a 0-30000 {GPU}"),
    one("array-malformed", f"-a a-b {GPU}"),
    one("array-fills-a-node", "-a 0-2 -w {n1} --gres=gpu:4", script="sleep 3", within_s=40),
    one("array-variables", f"-a 2-3 {GPU}", script='echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"'),
    story(
        "array-task-cancelled",
        Job(label="job", options="-a 0-2%1 --gres=gpu:1", script="sleep 3"),
        Until("job_0"),
        Do("scancel {job}_1", label="cancel"),
        within_s=40,
    ),
    story(
        "array-aftercorr",
        Job(label="first", options=f"-a 0-1 {GPU}", script="sleep $((1 + 3 * SLURM_ARRAY_TASK_ID))"),
        Job(label="second", options=f"-a 0-1 {GPU} -d aftercorr:{{first}}"),
        within_s=40,
    ),
    story(
        "array-afterok",
        Job(label="first", options=f"-a 0-1 {GPU}", script="sleep 2"),
        Job(label="second", options=f"{GPU} -d afterok:{{first}}"),
        within_s=40,
    ),
    story(
        "array-afterok-of-a-task",
        Job(label="first", options=f"-a 0-1 {GPU}", script="sleep $((1 + 5 * SLURM_ARRAY_TASK_ID))"),
        Job(label="second", options=f"{GPU} -d afterok:{{first}}_0"),
        within_s=40,
    ),
    story(
        "array-throttle-changed",
        Job(label="job", options=f"-a 0-3%1 {GPU}", script="sleep 4"),
        Until("job_0"),
        Do("scontrol update JobId={job} ArrayTaskThrottle=4", label="change"),
        within_s=40,
    ),
    story(
        "het-two-components",
        Job(options="--gres=gpu:1 -n1 : --gres=gpu:2 -n1 -p {gpu}", script="srun --het-group=0,1 hostname | wc -l"),
        within_s=30,
    ),
    story("het-with-cpu-component", Job(options="-p {gpu} --gres=gpu:1 : -p {cpu} -n2"), within_s=30),
    story("het-impossible", Job(options="--gres=gpu:1 : -p {gpu} --gres=gpu:9"), within_s=10),
)
