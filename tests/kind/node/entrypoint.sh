#!/bin/bash
# First process of a kind node: makes the container look like a machine to systemd and the kubelet, then becomes systemd.
set -euo pipefail

mount --make-rshared /
# Every node needs an id of its own; systemd makes one where the file is empty.
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id

if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
  echo 'INFO: detected cgroup v2'
else
  # A bind mount onto itself keeps systemd from removing the kubelet's cgroups before the kubelet has started.
  mount --make-rprivate /sys/fs/cgroup
  for controller in /sys/fs/cgroup/*/; do
    controller=${controller%/}
    [[ $(stat -f -c %T "$controller") == cgroupfs ]] || continue
    for group in kubelet kubelet.slice; do
      mkdir -p "$controller/$group"
      if [[ -f $controller/cpuset.cpus ]]; then # else nothing may be put into the group: ENOSPC
        cat "$controller/cpuset.cpus" >"$controller/$group/cpuset.cpus"
        cat "$controller/cpuset.mems" >"$controller/$group/cpuset.mems"
      fi
      mount --bind "$controller/$group" "$controller/$group"
    done
  done
  echo 'INFO: detected cgroup v1' # kind waits for this line
fi

exec /sbin/init
