#!/bin/sh
# Process 1 of a host's namespaces: node-init.sh HOSTNAME DIRECTORY v1|v2|none
# It sets up the mounts of the host, prints "ready", and then only reaps children. When it ends, everything on the host ends.
set -eu
exec </dev/null
name=$1
directory=$2
cgroup=$3
kept=$directory/run/sys.$name

hostname "$name"
# A machine from debootstrap lacks this file, and the mount needs one.
[ -e /etc/hosts ] || echo '127.0.0.1 localhost' >/etc/hosts
mount --bind "$directory/etc/hosts" /etc/hosts
if [ -e /etc/hostname ]; then
    mount --bind "$directory/etc/hostname.$name" /etc/hostname
fi

# A /sys of this network namespace, in which /sys/class/net shows only the NICs of the host; and only the host's own cgroups.
if [ "$cgroup" = none ]; then
    mount --rbind /sys/fs/cgroup "$kept" && mount -t sysfs sysfs /sys && mount --move "$kept" /sys/fs/cgroup
elif [ "$cgroup" = v1 ]; then
    mount -t sysfs sysfs /sys
    mount -t tmpfs -o mode=755,size=1m tmpfs /sys/fs/cgroup
    for controller in freezer devices; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
    done
else
    # slurmd of 24.11 and later takes the first cgroup2 in /proc/1/mountinfo for its own, also one below another mount.
    umount --recursive --lazy /sys
    mount -t sysfs sysfs /sys
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # Only leaf cgroups may hold processes: this process and those of enter.sh each have one; Slurm needs the slice.
    mkdir -p /sys/fs/cgroup/init.scope /sys/fs/cgroup/daemons /sys/fs/cgroup/system.slice
    echo 0 >/sys/fs/cgroup/init.scope/cgroup.procs
fi

trap : HUP INT TERM
echo ready
exec >/dev/null
while :; do
    sleep 2147483647 &
    wait $! || :
done
