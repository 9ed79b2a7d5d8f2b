"""The Python package: worker.py on 1, 2 and 4 ranks with gloo. 77 where torch is not installed.

Two ranks by torchrun, whose ranks each import torch, the others by fork_ranks.py. The long campaign: --count 70, all by torchrun.
"""
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner

LONG = 70


def main():
    parser = runner.options(__doc__, "--home")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    if runner.lacks("torch"):
        return 77
    here = pathlib.Path(__file__).resolve().parent
    with runner.folder(o.work) as folder:
        env = dict(os.environ, BURST_HOME=o.home, BURST_CACHE=str(folder / "cache"), PYTHONPATH=str(here.parent.parent / "python"),
                   OMP_NUM_THREADS="1")
        for ranks in 1, 2, 4:
            launcher = [here / "fork_ranks.py", ranks, "torch,torch.distributed"]
            if ranks == 2 or o.count >= LONG:
                launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
            done = runner.run([sys.executable, *launcher, here / "worker.py", "--count", o.count, "--seed", o.seed], 200 + 10 * o.count,
                              env=env)
            print(done.stdout, end="")
    return 0


sys.exit(main())
