#!/bin/sh
# netns_run.sh HOSTS RANKS_PER_HOST PROGRAM [ARGUMENT ...]
# Runs a program under mpirun on several "hosts" of this machine: network namespaces, each with a hostname of its own,
# joined by a bridge. Ranks of one host share memory, between hosts they talk TCP through MPI.
# NETNS_BY=torchrun: without mpirun, each process by itself as torchrun would start it (ranks.py); messages between hosts are
# then the runtime's own over TCP.
# NETNS_STRANGER=COMMAND runs beside ranks started so, in the network of the last host, and ends with them at the latest.
# NETNS_HANGS=RANK: of these, the one that never ends (ranks.py).
# NETNS_RATE=1gbit limits what each host sends (tc tbf). Ends with mpirun's exit code, or 77 with a message where the
# system does not permit namespaces.
set -u
[ $# -ge 3 ] || { echo "usage: $0 HOSTS RANKS_PER_HOST PROGRAM [ARGUMENT ...]" >&2; exit 2; }
hosts=$1 ranks=$2
shift 2
prefix=burst$$
work=$(mktemp -d) || exit 2

stranger=
cleanup() {
    [ -z "$stranger" ] || kill "$stranger" 2>/dev/null
    for i in $(seq 0 "$hosts"); do
        ip netns del "$prefix-$i" 2>/dev/null
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
here=$(cd "$(dirname "$0")" && pwd) || exit 2
by=${NETNS_BY:-mpirun}
for tool in ip unshare $([ "$by" = mpirun ] && echo mpirun); do
    command -v $tool >/dev/null || skip "no $tool here"
done

# Namespace 0 holds the bridge; namespaces 1 .. hosts are the hosts, 10.77.0.i.
ip netns add "$prefix-0" 2>/dev/null || skip "this system permits no network namespaces"
ip -n "$prefix-0" link add name wires type bridge 2>/dev/null || skip "this system has no bridges"
ip -n "$prefix-0" link set wires up
for i in $(seq 1 "$hosts"); do
    ip netns add "$prefix-$i" &&
        ip -n "$prefix-0" link add "to$i" type veth peer name nic netns "$prefix-$i" &&
        ip -n "$prefix-0" link set "to$i" master wires up &&
        ip -n "$prefix-$i" addr add "10.77.0.$i/24" dev nic &&
        ip -n "$prefix-$i" link set nic up &&
        ip -n "$prefix-$i" link set lo up || skip "cannot connect two namespaces here"
    if [ -n "${NETNS_RATE:-}" ]; then
        tc -n "$prefix-$i" qdisc add dev nic root tbf rate "$NETNS_RATE" burst 256kb latency 50ms || skip "no tc tbf here"
    fi
    echo "10.77.0.$i slots=$ranks" >>"$work/hosts"
done

if [ "$by" = torchrun ]; then
    # NUMBER COMMAND-LINE: on the host of this number.
    cat >"$work/agent" <<AGENT
#!/bin/sh
host=$prefix-\$1
shift
exec ip netns exec \$host unshare --uts sh -c 'hostname "\$0"; exec "\$@"' \$host "\$@"
AGENT
    chmod +x "$work/agent"
    if [ -n "${NETNS_STRANGER:-}" ]; then
        ip netns exec "$prefix-$hosts" sh -c "exec $NETNS_STRANGER" &
        stranger=$!
    fi
    "$here/ranks.py" --through "$work/agent" --set MASTER_ADDR=10.77.0.1 --hosts "$hosts" ${NETNS_HANGS:+--hangs "$NETNS_HANGS"} $((hosts * ranks)) "$@"
    exit
fi

# What mpirun calls instead of ssh: AGENT HOST COMMAND-LINE
cat >"$work/agent" <<AGENT
#!/bin/sh
host=\$1
shift
exec ip netns exec $prefix-\${host##*.} unshare --uts sh -c "hostname $prefix-\${host##*.}; \$*"
AGENT
chmod +x "$work/agent"

ip netns exec "$prefix-1" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$prefix-1" \
    mpirun --allow-run-as-root --oversubscribe --hostfile "$work/hosts" -n $((hosts * ranks)) \
    --map-by "ppr:$ranks:node" --bind-to none --mca plm_rsh_agent "$work/agent" --mca btl tcp,vader,self \
    --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --mca orte_tmpdir_base "$work" "$@"
