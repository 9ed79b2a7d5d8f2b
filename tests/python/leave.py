"""How a rank ends that held a gloo group."""
import os
import sys

import torch.distributed as dist


def leave():
    """Ends this process with 0. A thread of gloo's that still holds the tensors of its last collective would release them while the
    interpreter ends, which aborts the process now and then (pytorch/pytorch#179291, #190489)."""
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
