# check.sh: sourced by the tests that are shell scripts.
failures=0

# scaled_timeout SECONDS: the wall-clock limit, in whole seconds, for something that takes less on an idle machine; see check.h.
scaled_timeout() {
    awk -v seconds="$1" -v cores="$(getconf _NPROCESSORS_ONLN)" '{
        split($4, now, "/"); load = now[1] > $1 ? now[1] : $1; scale = 4 * load / cores
        printf "%d\n", seconds * (scale > 1 ? scale : 1) }' /proc/loadavg
}

# check NAME WANTED-CODE TEXT COMMAND...: runs the command until it ends or hangs; the text must be in what it writes. Code "any":
# any failure. A command that ends with 77 skips the whole test.
check() {
    name=$1 wanted=$2 text=$3
    shift 3
    begin=$(date +%s%N)
    timeout "$(scaled_timeout 30)" "$@" >log 2>&1
    code=$?
    if [ $code = 77 ]; then
        cat log
        exit 77
    fi
    [ "$wanted" = any ] && [ $code != 0 ] && [ $code != 124 ] && code=any
    if [ "$code" = "$wanted" ] && { [ -z "$text" ] || grep -qF -e "$text" log; }; then
        echo "ok: $name ($((($(date +%s%N) - begin) / 1000000)) ms)"
    else
        echo "FAILED: $name: code $code (expected $wanted), expected '$text' in:"
        cat log
        failures=$((failures + 1))
    fi
}

# Losses of a metrics file, all digits.
losses() {
    sed 's/.*"loss": \([^,]*\),.*/\1/' "$1"
}
