#!/bin/sh
# wait_torch.sh PIDFILE PYTHON: waits while scripts/test installs PyTorch; nothing to wait for where it does not. Then imports once
# what tests import: where none of it is compiled yet, as many ranks as start together would each compile all of it.
if pid=$(cat "$1" 2>/dev/null); then
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
    done
    log=${1%.pid}.log
    [ -s "$log" ] && cat "$log"
fi
compiled=${PYTHONPYCACHEPREFIX:+$PYTHONPYCACHEPREFIX/compiled}
if [ -n "$compiled" ] && ! [ -e "$compiled" ]; then
    "$2" -c 'import torch.distributed.run, torch._dynamo, torch._functorch.aot_autograd, transformers.masking_utils, transformers.modeling_utils' &&
        : >"$compiled"
fi
exit 0
