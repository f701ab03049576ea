#!/bin/bash
# A job of a story: job.sh STEPS SAVES STATUS IGNORES_TERM
# It takes four steps a second, and appends a line to its own log for its start, every step, every save and its end.
# With SAVES=yes it saves the number of steps done on SIGUSR1, requeues itself, and continues from there in its next run.
asked=
if [ "$2" = yes ]; then trap 'asked=yes' USR1; else trap '' USR1; fi
if [ "$4" = yes ]; then trap '' TERM; fi
steps=$1
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
run=${SLURM_RESTART_COUNT:-0}
exec {clock}<> <(:)

note() { echo "$EPOCHREALTIME $run $SLURMD_NODENAME $*" >> "$job.log"; }

save() {
    echo "$step" > "$job.saved.$run" && mv "$job.saved.$run" "$job.saved" && note saved "$step"
}

step=0
if [ -e "$job.saved" ]; then read -r step < "$job.saved"; fi
note start "$step"
while [ "$step" -lt "$steps" ]; do
    read -r -t 0.25 -u "$clock"
    step=$((step + 1))
    note step "$step"
    if [ -n "$asked" ]; then
        asked=
        save
        if scontrol requeue "$job" 2>> "$job.err"; then
            note requeued "$step"
            read -r -t 15 -u "$clock" # Slurm ends this run now
        fi
    fi
done
note end "$step"
exit "$3"
