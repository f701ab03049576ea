#!/usr/bin/env bash
# The tour of the README: boots a mini-cluster with Headway, runs each command of commands.txt on it as on a terminal of 80 columns,
# prints commands and output, and removes the cluster. As root: examples/tour/tour.sh [POLICY]
set -euo pipefail
here=$(dirname "$(realpath "$0")")
name=${TOUR_NAME:-tour}

work=$(mktemp -d)
trap 'headway-minicluster down --name "$name" >&2; rm -rf "$work"' EXIT
headway-minicluster up --name "$name" --headway "${1:-srtf}" >"$work/up"
cat "$work/up" >&2
eval "$(grep -o 'export [A-Z_]*=.*' "$work/up")"
cd "$work"  # sbatch writes the output of jobs here

# Return whether Headway knows all of Slurm's jobs, and none is about to start or end: a job that waits has an estimate, and after
# a cancellation none waits.
settled() {
    local queue jobs
    queue=$(headway queue) || return
    jobs=$(squeue --noheader --format=%T)
    ! grep -qvE 'PENDING|RUNNING' <<<"$jobs" || return
    [ "$(wc -l <<<"$jobs")" = "$(grep -cE ' (waiting|running) ' <<<"$queue")" ] || return
    ! grep -q ' waiting ' <<<"$queue" || { [[ $1 == sbatch* ]] && grep -q 'STARTS IN' <<<"$queue"; }
}

while IFS= read -r command; do
    printf '$ %s\n' "$command"
    COLUMNS=80 TERM=dumb script --quiet --return --command "$command" /dev/null </dev/null | tr -d '\r' | sed 's/ *$//'
    case $command in
    sbatch* | scancel*)
        for _ in {1..120}; do
            sleep 0.5
            if settled "$command"; then break; fi
        done
        ;;
    esac
done <"$here/commands.txt"
