#!/bin/bash
# A site's own Slurm before Headway: two nodes with fake GPUs on this machine, on an address of its own. Runs inside, as root.
set -euo pipefail
host=$(hostname)
address=10.99.0.1

ip link add site0 type veth peer name site1
ip addr add "$address/24" dev site0
ip link set site0 up
ip link set site1 up
ip link set lo up
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$host" >/etc/hosts

mkdir -p /opt/site/gpu /etc/slurm /var/lib/slurm/slurmctld /var/log/slurm
touch /opt/site/gpu/{0,1,2,3}
chown -R slurm: /var/lib/slurm /var/log/slurm
useradd --create-home --shell /bin/bash alice

cat >/etc/slurm/slurm.conf <<EOF
# The site's own comment.
ClusterName=site
SlurmctldHost=$host($address)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=5
DefMemPerCPU=1000
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname=$host NodeAddr=$address Port=[17001-17002] CPUs=32 RealMemory=128000 Gres=gpu:a100:4
PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=7-0 State=UP
EOF
# On a machine with cgroups of both versions, as a host of such a root may be, slurmd starts only with a plugin that is named.
case $(slurmctld -V) in
*" 22.05"*) echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf ;;
*) echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf ;;
esac
echo 'Name=gpu Type=a100 File=/opt/site/gpu/[0-3]' >/etc/slurm/gres.conf

cat >/etc/systemd/system/slurmd@.service <<'EOF'
[Unit]
After=munge.service slurmctld.service
[Service]
ExecStart=/usr/sbin/slurmd -D -N %i
KillMode=process
Delegate=yes
Restart=on-failure
RestartSec=2
EOF
systemctl daemon-reload
systemctl restart munge slurmctld
systemctl start slurmd@n1 slurmd@n2

for _ in $(seq 60); do
    if [ "$(sinfo --noheader --format=%T)" = idle ]; then
        cp -a /etc/slurm /root/slurm.before
        exit 0
    fi
    sleep 1
done
sinfo
tail -n 5 /var/log/slurm/*.log
exit 1
