#!/bin/sh
# test_netns.sh MINI_MAIN EXCHANGE_MAIN [mpirun|torchrun]: the runtime's programs on several hosts, which are network
# namespaces, under mpirun or, without MPI, as torchrun starts them. Ends with 77 where the system does not permit them.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
mini=$1 exchange=$2 run=$here/netns_run.sh
export NETNS_BY="${3:-mpirun}"
. "$here/check.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

check "exchanges, 2 hosts of 2 ranks" 0 "" "$run" 2 2 "$exchange" 4
check "exchanges, 3 hosts of 1 rank" 0 "" "$run" 3 1 "$exchange" 3
[ "$NETNS_BY" = mpirun ] || NETNS_RATE=20mbit check "exchanges over a slow network" 0 "" "$run" 2 2 "$exchange" 4

if [ "$NETNS_BY" = torchrun ]; then
    export MINI="4 1 0 4 3 2" BURST_PORT=27001
    late='[ "$RANK" != 3 ] || sleep 0.5; exec "$0" --quiet'
    started=$(date +%s)
    NETNS_STRANGER="$here/strangers.py 10.77.0.1 $BURST_PORT 10" check "strangers on another host" 0 "" "$run" 2 2 sh -c "$late" "$mini"
    [ $(($(date +%s) - started)) -lt "$(scaled_timeout 5)" ] || { echo "FAILED: it took 5 s and more"; failures=1; }
    look='[ "$RANK" != 1 ] || { sleep 0.3; grep -h " 0A " /proc/net/tcp /proc/net/tcp6; }; '
    check "rank 0 listens at MASTER_ADDR" 0 " 01004D0A:6979 " "$run" 2 2 sh -c "$look$late" "$mini"
    [ "$(grep -c " 0A " log)" = 1 ] || { echo "FAILED: there are more listeners:"; cat log; failures=1; }
    unset BURST_PORT
fi

export MINI="4 2 1 4 10 2"
check "training alone" 0 "" "$mini" --quiet --metrics "$work/alone"
check "training on 2 hosts" 0 "" "$run" 2 2 "$mini" --quiet --metrics "$work/hosts" --checkpoint "$work/ck"
losses alone >a && losses hosts >b
check "same losses, bit by bit" 0 "" cmp a b
MINI="3 1 0 4 12 2"
check "going on alone" 0 "resumed after step 10" "$mini" --resume --checkpoint ck

MINI="4 1 0 4 500 -1"
export MINI_FAULT="hang 3 4"
NETNS_HANGS=3 check "watchdog across hosts" 1 "timed out after" "$run" 2 2 "$mini" --quiet --timeout 0.5
MINI_FAULT="kill 3 4"
started=$(date +%s)
if [ "$NETNS_BY" = mpirun ]; then
    check "a killed rank across hosts" any "rank 3" "$run" 2 2 "$mini" --quiet
else
    check "a killed rank across hosts" any "lost rank 3, step" "$run" 2 2 "$mini" --quiet
    grep -F "killed, having not ended" log && { echo "FAILED: others did not end by themselves"; failures=1; }
fi
[ $(($(date +%s) - started)) -lt "$(scaled_timeout 10)" ] || { echo "FAILED: it took 10 s and more"; failures=1; }
exit $((failures != 0))
