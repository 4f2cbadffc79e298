#!/bin/bash
# First process of the namespaces in which our Docker daemon lives: daemon.sh RUN_FOLDER DATA_FOLDER RUNTIME
# Everything that it makes (bridges, firewall rules, mounts, containers) is in these namespaces and ends with this process.
set -euo pipefail
run=$1 data=$2 runtime=$3

ip link set lo up
# /sys still shows the network of the machine: mount one of ours, with the cgroups where they were.
mkdir -p "$run/sys"
mount -t sysfs sysfs "$run/sys"
mount --rbind /sys/fs/cgroup "$run/sys/fs/cgroup"
mount --move "$run/sys" /sys

# Not by exec: the first process of a process namespace must take in the orphans of all others, and dockerd does not.
dockerd --data-root "$data" --exec-root "$run/exec" --pidfile "$run/dockerd.pid" --host "unix://$run/docker.sock" \
  --add-runtime "kind=$runtime" --default-runtime kind --storage-driver overlay2 --log-level warn &
daemon=$!
trap 'kill -TERM "$daemon"' TERM
code=0
while kill -0 "$daemon" 2>/dev/null; do # a signal interrupts the wait: look again
  code=0
  wait "$daemon" || code=$?
done
exit "$code"
