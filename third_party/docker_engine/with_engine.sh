#!/usr/bin/env bash
# Run a command beside a Docker engine: the one that already answers, else one of its own that ends with the command.
#
#     with_engine.sh [--optional] COMMAND...
#
# DOCKER_HOST names the engine to the command, whose exit code is returned. An own engine has its own socket, data, pid
# file and containerd namespace in a temporary folder, makes no bridge and no firewall rule, and is gone afterwards.
# Where no engine is possible: says why and exits with 75; with --optional the command runs without one and reads the
# reason in MLEXPERT_NO_ENGINE.
set -uo pipefail
set -m # the daemon and the command get process groups of their own, so that a Ctrl-C passes through here first

readonly IMPOSSIBLE=75 START_S=60 STOP_S=30
reason="" folder="" engine="" command=""

say() { echo "with_engine: $*" >&2; }

answers() { # does an engine answer at this unix socket?
  python3 - "$1" 2>/dev/null <<'PYTHON'
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(5)
connection.connect(sys.argv[1])
connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
sys.exit(b" 200 " not in connection.recv(64))
PYTHON
}

find_engine() { # one that answers already
  local host=${DOCKER_HOST:-unix:///var/run/docker.sock}
  [ "$host" != "${host#unix://}" ] && answers "${host#unix://}" && export DOCKER_HOST="$host" && say "using the engine at $host"
}

install_engine() {
  command -v dockerd >/dev/null && return
  command -v apt-get >/dev/null || { reason="dockerd is not installed, and there is no apt-get to install it"; return 1; }
  say "installing docker.io (about 65 MB to download)"
  local output
  output=$( (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends docker.io) 2>&1 </dev/null) ||
    { reason="apt-get cannot install docker.io: $(tail -n 1 <<<"$output")"; return 1; }
}

start_engine() {
  [ "$(id -u)" = 0 ] || { reason="no engine answers at ${DOCKER_HOST:-the default socket}, and only root can start one"; return 1; }
  install_engine || return 1
  folder=$(mktemp -d "${TMPDIR:-/tmp}/mlexpert-engine.XXXXXX") || { reason="no temporary folder can be made"; return 1; }
  local leash=() name=${folder##*/}
  command -v setpriv >/dev/null && leash=(setpriv --pdeathsig TERM) # if this script is killed, the daemon still ends
  "${leash[@]}" dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/dockerd.pid" \
    --host "unix://$folder/docker.sock" --containerd-namespace "$name" --containerd-plugins-namespace "$name-plugins" \
    --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --bridge=none --userland-proxy=false \
    --exec-opt native.cgroupdriver=cgroupfs --shutdown-timeout 5 </dev/null >"$folder/dockerd.log" 2>&1 &
  engine=$!
  local until=$((SECONDS + START_S))
  until answers "$folder/docker.sock"; do
    if ! kill -0 "$engine" 2>/dev/null || [ "$SECONDS" -gt "$until" ]; then
      reason="dockerd does not start: $(grep -v level=info "$folder/dockerd.log" | tail -n 1)"
      return 1
    fi
    sleep 0.2
  done
  export DOCKER_HOST="unix://$folder/docker.sock"
  say "started an engine at $DOCKER_HOST"
}

stop_engine() {
  [ -n "$folder" ] || return 0
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null
    local until=$((SECONDS + STOP_S))
    while kill -0 "$engine" 2>/dev/null && [ "$SECONDS" -le "$until" ]; do sleep 0.1; done
    kill -KILL "$engine" 2>/dev/null && say "the engine did not stop within $STOP_S s and was killed"
    wait "$engine" 2>/dev/null
  fi
  local process mount
  for process in $(grep -lsF "$folder/" /proc/[0-9]*/cmdline | cut -d/ -f3); do
    if grep -qs ^containerd "/proc/$process/comm"; then
      say "killing a leftover $(cat "/proc/$process/comm") ($process)"
      kill -KILL "$process"
    fi
  done
  for mount in $(cut -d' ' -f2 /proc/mounts | grep -F "$folder/" | sort -r); do umount --lazy "$mount"; done
  rm -rf --one-file-system "$folder"
  folder=""
}

pass_on() { # a signal goes to the command; before the command has started it ends this script
  interrupted=yes
  if [ -n "$command" ]; then kill -s "$1" -- "-$command" 2>/dev/null; else exit "$2"; fi
}

optional=no
if [ "${1:-}" = --optional ]; then optional=yes; shift; fi
if [ $# = 0 ]; then say "usage: with_engine.sh [--optional] COMMAND..."; exit 2; fi

trap stop_engine EXIT
trap 'pass_on HUP 129' HUP
trap 'pass_on INT 130' INT
trap 'pass_on TERM 143' TERM
if ! find_engine && ! start_engine; then
  if [ "$optional" = no ]; then
    say "ERROR: no Docker engine is possible here: $reason"
    exit "$IMPOSSIBLE"
  fi
  say "WARNING: what needs a Docker engine is SKIPPED, none is possible here: $reason"
  stop_engine
  unset DOCKER_HOST
  export MLEXPERT_NO_ENGINE="$reason"
fi
"$@" <&0 &
command=$!
interrupted=yes
while [ "$interrupted" = yes ]; do # by a signal that was passed on
  interrupted=no
  wait "$command"
  code=$?
done
exit "$code"
