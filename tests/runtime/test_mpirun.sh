#!/bin/sh
# test_mpirun.sh MINI_MAIN EXCHANGE_MAIN: the runtime's programs under mpirun, on this host.
# Ends with 77 where there is no mpirun.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
mini=$1 exchange=$2
. "$here/check.sh"
command -v mpirun >/dev/null || { echo "SKIPPED: no mpirun here"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# ./run COUNT PROGRAM ...
cat >run <<RUN
#!/bin/sh
count=\$1
shift
exec mpirun $([ "$(id -u)" = 0 ] && echo --allow-run-as-root) --oversubscribe -n "\$count" "\$@"
RUN
chmod +x run

check "messages and collectives" 0 "" ./run 4 "$exchange" 4

export MINI="4 2 1 4 20 2"
check "training alone" 0 "" "$mini" --quiet --metrics alone
check "training under mpirun" 0 "" ./run 4 "$mini" --quiet --metrics mpi --checkpoint ck --every 10
losses alone >a && losses mpi >b
check "same losses, bit by bit" 0 "" cmp a b
check "lines of metrics" 0 "20 mpi" wc -l mpi
MINI="3 1 0 4 22 2"
check "going on alone" 0 "resumed after step 20" "$mini" --resume --checkpoint ck

MINI="4 1 0 4 500 -1"
check "wrong number of ranks" 2 "the plan (mini) has 4 ranks, but mpirun started 3; use mpirun -n 4" ./run 3 "$mini"
check "usage" 2 "unknown option '--what'" ./run 4 "$mini" --what
# Rank 0 may be killed before it has read its options.
cat >late <<'LATE'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-1}}" != 0 ] || sleep 2
exec "$@"
LATE
chmod +x late
check "usage, rank 0 late" 2 "unknown option '--what'" ./run 4 ./late "$mini" --what
export MINI_FAULT="kill 2 100"
check "a killed rank" any "lost rank 2, step 100 (step): its process" ./run 4 "$mini" --quiet
MINI_FAULT="nan 0 3"
check "an error" 1 "the loss of step 3 is not a number" ./run 4 "$mini" --quiet
MINI_FAULT="hang 1 3"
check "watchdog" 1 "all wait for rank 1, step 3 (step)" ./run 4 "$mini" --quiet --timeout 0.5
exit $((failures != 0))
