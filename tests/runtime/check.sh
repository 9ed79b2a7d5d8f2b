# check.sh: sourced by the tests that are shell scripts.
failures=0

# check NAME WANTED-CODE TEXT COMMAND...: runs the command, for at most 10 minutes; the text must be in what it writes. Code "any":
# any failure. A command that ends with 77 skips the whole test.
check() {
    name=$1 wanted=$2 text=$3
    shift 3
    begin=$(date +%s%N)
    timeout 600 "$@" >log 2>&1
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
