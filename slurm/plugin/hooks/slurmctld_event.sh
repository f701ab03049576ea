#!/bin/sh
# Headway slurmctld hook, version 11
#
# One script for PrologSlurmctld and EpilogSlurmctld (SLURM_SCRIPT_CONTEXT says which): it wakes the controller when a job
# starts or ends. It runs on the machine of slurmctld as SlurmUser. It never blocks and always succeeds: a failing prolog would
# requeue the job, a slow one would keep it CONFIGURING. It does nothing while the lease of the controller is stale.

RUNTIME_DIR=/run/headway

case ${SLURM_SCRIPT_CONTEXT:-$(basename "$0")} in
*prolog*) event=start ;;
*epilog*) event=end ;;
*) exit 0 ;;
esac

if [ -n "${SLURM_ARRAY_TASK_ID:-}" ] && [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
else
    job=${SLURM_JOB_ID:-}
fi
[ -n "$job" ] && [ -p "$RUNTIME_DIR/wake-hooks" ] && [ -f "$RUNTIME_DIR/lease" ] || exit 0

written='' stale_after=''
while IFS='=' read -r key value; do
    case $key in
    time) written=${value%%[!0-9]*} ;;
    stale_after) stale_after=${value%%[!0-9]*} ;; # whole seconds are precise enough
    esac
done <"$RUNTIME_DIR/lease"
[ -n "$written" ] && [ -n "$stale_after" ] || exit 0
age=$(($(date +%s) - written))
[ "$age" -le "$stale_after" ] && [ "$age" -ge "-$stale_after" ] || exit 0

# oflag=nonblock: opening fails when there is no reader, writing fails when the pipe is full; neither waits. job_submit.lua cannot
# write in this way, so it has a pipe of its own, whose free room only job_submit.lua uses.
printf '%s %s\n' "$event" "$job" |
    dd of="$RUNTIME_DIR/wake-hooks" oflag=nonblock conv=notrunc,nocreat status=none 2>/dev/null
exit 0
