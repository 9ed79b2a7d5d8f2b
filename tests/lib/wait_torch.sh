#!/bin/sh
# wait_torch.sh PIDFILE: waits while scripts/test installs PyTorch; nothing to wait for where it does not.
pid=$(cat "$1" 2>/dev/null) || exit 0
while kill -0 "$pid" 2>/dev/null; do
    sleep 1
done
log=$(dirname "$1").log
[ -s "$log" ] && cat "$log"
exit 0
