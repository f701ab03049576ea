#!/bin/sh
# Process 1 of a host's namespaces: node-init.sh HOSTNAME DIRECTORY
# Sets up what the host sees, says "ready" on standard output, then only reaps. Ending it ends all that runs on the host.
set -eu
exec </dev/null
name=$1
directory=$2

hostname "$name"
mount --make-rprivate /
mount --bind "$directory/etc/hosts" /etc/hosts
if [ -e /etc/hostname ]; then
    mount --bind "$directory/etc/hostname.$name" /etc/hostname
fi
# /sys of this network namespace, so that /sys/class/net shows its own NICs; the cgroup trees stay where they were.
if mount --rbind /sys/fs/cgroup "$directory/run/sys.$name" 2>/dev/null; then
    mount -t sysfs sysfs /sys && mount --move "$directory/run/sys.$name" /sys/fs/cgroup
fi

trap : HUP INT TERM
echo ready
exec >/dev/null
while :; do
    sleep 2147483647 &
    wait $! || :
done
