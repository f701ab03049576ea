#!/bin/sh
# Becomes the process that holds a host's namespaces: holder.sh NETNS PROGRAM ARGUMENTS...
# It first waits for "go" from its parent, which by then has recorded this process and put it into the cgroups of the host.
# If the parent has died, this process ends before it has created anything.
read -r word && [ "$word" = go ] || exit 1
netns=$1
shift
exec nsenter --net="/run/netns/$netns" \
    unshare --uts --mount --pid --ipc --cgroup --fork --kill-child --mount-proc -- "$@"
