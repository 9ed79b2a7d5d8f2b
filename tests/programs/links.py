"""Rates between the processes of two nodes by NCCL send and receive, all pairs at once, both ways: inside a node, where it has
two, (0, 1), (2, 3); between nodes (0, 2), (1, 3), or (0, 1). Started with torchrun's variables; rank 0 prints one line of
JSON, GB/s each way."""
import json
import os
import time

import torch
import torch.distributed as dist

BYTES, REPEAT = 64 << 20, 6


def pair_rate(rank, peer):
    x = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    times = []
    for _ in range(2 + REPEAT):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.monotonic()
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]):
            work.wait()
        torch.cuda.synchronize()
        times.append(time.monotonic() - begin)
    slowest = torch.tensor([sorted(times[2:])[REPEAT // 2]], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return BYTES / float(slowest) / 1e9


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    lanes = int(os.environ["WORLD_SIZE"]) // 2
    rates = {"inside": pair_rate(rank, rank ^ 1) if lanes == 2 else None, "between": pair_rate(rank, rank ^ lanes)}
    if rank == 0:
        print(json.dumps(rates), flush=True)
    dist.destroy_process_group()


main()
