#!/bin/sh
# Runs a program on a host, from inside its namespaces: enter.sh v1|v2|none PROGRAM ARGUMENTS...
# nsenter does not enter cgroups, so this script does it first.
set -eu
umask 022 # as service managers and logins set it; that of the caller may lock users out
cgroup=$1
shift
case $cgroup in
v1)
    for controller in freezer devices; do
        echo 0 >"/sys/fs/cgroup/$controller/cgroup.procs"
    done
    ;;
v2)
    echo 0 >/sys/fs/cgroup/daemons/cgroup.procs
    ;;
esac
exec "$@"
