#!/bin/sh
# keep_report.sh COMPILER ... -o OBJECT ...: compiles, and keeps what the compiler says in OBJECT.report, where tests read ptxas's
# counts of registers. Shows what else it says, and all of it where it fails.
before= object=
for word; do
    [ "$before" = -o ] && object=$word
    before=$word
done
if [ -z "$object" ]; then # CMake's own questions
    exec "$@"
fi
status=0
"$@" >"$object.report" 2>&1 || status=$?
if [ "$status" = 0 ]; then
    sed '/^ptxas info/d; /^ *[0-9]* bytes stack frame/d' "$object.report" >&2
else
    cat "$object.report" >&2
fi
exit "$status"
