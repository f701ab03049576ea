"""salloc, srun, and options of sbatch that do not choose resources."""

from __future__ import annotations

from tests.parity.case import Job, Until, one, stepped, story

SUBJECT = "salloc, srun and other options"
GPU = "--gres=gpu:1"
STEP = "bash ../step.sh"

CASES = (
    story("srun-one", Job(program="srun", options=GPU, script=STEP)),
    story("srun-two-nodes", Job(program="srun", options="-N2 --gres=gpu:2", script=STEP)),
    story("srun-exit-status", Job(program="srun", options=GPU, script="bash -c 'exit 3'")),
    story("srun-too-many", Job(program="srun", options="--gres=gpu:9", script=STEP)),
    story("srun-immediate", Job(program="srun", options=f"-I5 {GPU}", script=STEP)),
    story("salloc-one", Job(program="salloc", options=GPU, script=f"srun {STEP}")),
    story("salloc-two-nodes", Job(program="salloc", options="-N2 --gres=gpu:2", script=f"srun {STEP}")),
    story("salloc-too-many", Job(program="salloc", options="--gres=gpu:9", script="true")),
    story("salloc-exit-status", Job(program="salloc", options=GPU, script="bash -c 'exit 6'")),
    story(
        "srun-behind-a-job",
        Job(label="batch", options="-w {n1} --gres=gpu:8", script="sleep 5"),
        Until("batch"),
        Job(program="srun", options=f"-w {{n1}} {GPU}", script=STEP),
        within_s=30,
    ),
    story(
        "batch-behind-srun",
        Job(label="srun", program="srun", options="-w {n1} --gres=gpu:8", script="sleep 5"),
        Until("srun"),
        Job(options=f"-w {{n1}} {GPU}"),
        within_s=30,
    ),
    stepped("export-none", f"--export=NONE {GPU}"),
    stepped("export-some", f"--export=ALL,MINE=1 {GPU}"),
    one("export-file-missing", f"--export-file=/nonexistent {GPU}"),
    one("chdir", f"-D /tmp {GPU}", script="pwd"),
    one("job-name", f"-J named {GPU}", script="echo $SLURM_JOB_NAME"),
    one("comment", f"--comment=words {GPU}", script="squeue -h -j $SLURM_JOB_ID -O comment"),
    one("mail", f"--mail-type=NONE {GPU}"),
    one("open-mode", f"--open-mode=append {GPU}", script="echo line"),
    one("wckey", f"--wckey=key {GPU}", script="echo $SLURM_WCKEY"),
    one("profile", f"--profile=none {GPU}"),
    one("acctg-freq", f"--acctg-freq=10 {GPU}"),
    one("reboot", f"--reboot {GPU}", within_s=8),
    one("power", f"--power=level {GPU}"),
    one("bb", f"--bb=capacity=1G {GPU}", within_s=8),
    one("network", f"--network=any {GPU}"),
    one("thread-spec", f"--thread-spec=2 {GPU}"),
    one("gid", f"--gid=0 {GPU}"),
    one("uid", f"--uid=0 {GPU}"),
    one("unknown-option", f"--no-such-option {GPU}"),
    one("test-only", f"--test-only {GPU}"),
    one("clusters-unknown", f"-M nowhere {GPU}"),
    one("delay-boot", f"--delay-boot=1 {GPU}"),
    one("cpu-freq", f"--cpu-freq=low {GPU}"),
    one("propagate", f"--propagate=NONE {GPU}"),
    one("ignore-pbs", f"--ignore-pbs {GPU}"),
    one("get-user-env", f"--get-user-env {GPU}"),
    one("container-missing", f"--container=/nonexistent {GPU}", within_s=10),
    one("many-words-in-comment", f"--comment='headway=preemptible' {GPU}"),
)
