#!/bin/sh
# test_launchers.sh MINI_MAIN EXCHANGE_MAIN: the runtime's programs as torchrun and srun start them (ranks.py), on this host
# and on several, which are ranks kept apart by BURST_HOSTID: their messages go through TCP.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
mini=$1 exchange=$2 ranks=$here/ranks.py
. "$here/check.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID BURST_PORT BURST_HOSTID BURST_SECRET

# The others ended by themselves.
none_killed() {
    grep -F "killed, having not ended" log && { echo "FAILED: they had to be killed"; failures=$((failures + 1)); }
}

for hosts in 1 2 4; do
    check "messages and collectives, $hosts hosts" 0 "" "$ranks" --hosts $hosts 4 "$exchange" 4
done
check "messages and collectives, hosts of 2 and 1 ranks" 0 "" "$ranks" --hosts 2 3 "$exchange" 3
# Larger than a segment and than what the kernel keeps of a connection.
check "large messages" 0 "" "$ranks" --hosts 2 4 "$exchange" 4 500000
for hosts in 1 2; do
    for size in small:100 large:1048576; do
        bytes=${size#*:}
        check "a ${size%:*} message of the wrong size, $hosts hosts" 1 \
            "rank 1 sent $((bytes + 1)) bytes to rank 0 on channel 3 (message 0), but it expects $bytes" "$ranks" --hosts $hosts 2 "$exchange" 2 ${size%:*}
    done
    check "a rank waits for one that has ended, $hosts hosts" 1 "which has already exited" "$ranks" --hosts $hosts 2 "$exchange" 2 ended
done

export MINI="4 2 1 4 20 2"
check "training alone" 0 "" "$mini" --quiet --metrics alone
losses alone >a
for way in "--as torchrun" "--as torchrun --hosts 2" "--as torchrun --hosts 4" "--as srun" "--as srun --hosts 2"; do
    rm -f metrics
    check "training, $way" 0 "" "$ranks" $way 4 "$mini" --quiet --metrics metrics
    losses metrics >b
    check "same losses, bit by bit" 0 "" cmp a b
done
check "lines of metrics" 0 "20 metrics" wc -l metrics
check "a checkpoint of 2 hosts" 0 "" "$ranks" --hosts 2 4 "$mini" --quiet --checkpoint ck --every 10
MINI="3 1 0 4 22 2"
check "going on alone" 0 "resumed after step 20" "$mini" --resume --checkpoint ck
MINI="1 1 0 4 3 2"
check "a world of one" 0 "" "$ranks" --set MASTER_ADDR=- 1 "$mini" --quiet

MINI="4 1 0 4 3 2"
check "without LOCAL_RANK" 0 "" "$ranks" --set LOCAL_RANK=- 4 "$mini" --quiet
check "another port" 0 "" "$ranks" --hosts 2 --set BURST_PORT=$((20000 + $$ % 5000)) 4 "$mini" --quiet
check "help once" 0 "Exit codes: 0 success" "$ranks" 4 "$mini" --help
[ "$(grep -c "Exit codes" log)" = 1 ] || { echo "FAILED: the help came more than once"; failures=1; }
check "usage once" 2 "unknown option '--what'" "$ranks" 4 "$mini" --what
# A batch script's environment is none of a task: all ranks start.
check "inside a batch script" 0 "" env SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 "$mini" --quiet

# Wrong environments: what is set, code, text.
wrong() {
    check "$1" 2 "$2" "$ranks" --set "$1" 4 "$mini" --quiet --timeout 1
}
wrong WORLD_SIZE=- "RANK is set (to '0') but WORLD_SIZE is not"
wrong RANK=- "WORLD_SIZE is set (to '4') but RANK is not"
wrong MASTER_PORT=- "MASTER_PORT is not set"
wrong WORLD_SIZE=5 "WORLD_SIZE is 5, but the plan (mini) has 4 ranks; start as many (torchrun --nproc-per-node times --nnodes: 4)"
wrong RANK=0,1,1,3 "two processes claim to be rank 1, on $(hostname) and on $(hostname)"
wrong RANK=0,1,2,0 "two processes claim to be rank 0"
wrong LOCAL_RANK=0,1,2,1 "ranks 1 and 3 on $(hostname) both have LOCAL_RANK 1"
check "a rank out of range" 2 "RANK is '4', expected a number from 0 to 3" "$ranks" --set RANK=0,1,2,4 4 "$mini" --quiet --timeout 1
check "another shape" 2 "burst: rank 3 has a different ffn: 7, rank 0 has 6" "$ranks" --set "MINI_FFN=6,6,6,7" 4 "$mini" --quiet --timeout 1
check "srun with another number" 2 "tasks (SLURM_NTASKS) is 3, but the plan (mini) has 4 ranks; start as many (srun -n 4)" "$ranks" --as srun 3 "$mini" --quiet
check "a rank that does not come" 1 "(see --timeout), waiting for rank 3 of 4" "$ranks" 4 sh -c '[ "$RANK" = 3 ] || exec "$0" --quiet --timeout 1' "$mini"
check "an unknown master" 1 "cannot reach rank 0 at no.such.host.invalid" "$ranks" --hosts 2 --set MASTER_ADDR=no.such.host.invalid 4 sh -c '[ "$RANK" = 0 ] || exec "$0" --quiet --timeout 1' "$mini"
# A foreign server on the first port: another one is taken.
check "a foreign listener" 0 "" "$here/foreign.py" "$ranks" --hosts 2 4 "$mini" --quiet

MINI="4 1 0 4 500 -1"
for hosts in 1 2 4; do
    export MINI_FAULT="kill 2 100"
    check "a killed rank, $hosts hosts" any "lost rank 2, step" "$ranks" --hosts $hosts 4 "$mini" --quiet
    none_killed
    MINI_FAULT="exit 3 5"
    check "a rank that ends early, $hosts hosts" 1 "lost rank 3, step" "$ranks" --hosts $hosts 4 "$mini" --quiet
    none_killed
    MINI_FAULT="nan 0 3"
    check "an error, $hosts hosts" 1 "the loss of step 3 is not a number" "$ranks" --hosts $hosts 4 "$mini" --quiet
    MINI_FAULT="hang 1 3"
    check "watchdog, $hosts hosts" 1 "timed out after" "$ranks" --hangs 1 --hosts $hosts 4 "$mini" --quiet --timeout 0.5
    grep -qx "ranks.py: killed, having not ended: 1" log || { echo "FAILED: the others should have ended"; failures=1; }
done
unset MINI_FAULT

if command -v torchrun >/dev/null; then
    MINI="4 2 1 4 20 2"
    rm -f metrics
    check "torchrun itself" 0 "" torchrun --no-python --nproc-per-node=4 "$mini" --quiet --metrics metrics
    losses metrics >b
    check "same losses, bit by bit" 0 "" cmp a b
    rm -f metrics
    node="torchrun --no-python --nnodes=2 --nproc-per-node=2 --master-addr=127.0.0.1 --master-port=$((25000 + $$ % 5000))"
    BURST_HOSTID=1 timeout "$(scaled_timeout 20)" $node --node-rank=1 "$mini" --quiet >other 2>&1 &
    check "two of them" 0 "" env BURST_HOSTID=0 $node --node-rank=0 "$mini" --quiet --metrics metrics
    wait $! || { echo "FAILED: the other node:"; cat other; failures=$((failures + 1)); }
    losses metrics >b
    check "same losses, bit by bit" 0 "" cmp a b
    MINI="4 1 0 4 500 -1"
    export MINI_FAULT="kill 2 100"
    check "a killed rank under torchrun" any "" torchrun --no-python --standalone --nproc-per-node=4 "$mini" --quiet
else
    echo "no torchrun here: its variables only"
fi
exit $((failures != 0))
