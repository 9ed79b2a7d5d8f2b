"""The Python package: worker.py on 1, 2 and 4 ranks with gloo. 77 where torch is not installed.

By fork_ranks.py, which imports torch once; run_page.py has two ranks by torchrun. --all (BURST_TEST_ALL=1): 201 cases, all by
torchrun; otherwise --count cases on each number of ranks, others each day.
"""
import datetime
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner

COUNT, LONG = 5, 67  # on each number of ranks


def main():
    parser = runner.options(__doc__, "--home")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, help="of the first case")
    o = parser.parse_args()
    count = o.count or (LONG if o.all else COUNT)
    seed = o.seed if o.seed is not None else 1 if o.all else datetime.date.today().toordinal() * COUNT
    if runner.lacks("torch"):
        return 77
    here = pathlib.Path(__file__).resolve().parent
    with runner.folder(o.work) as folder:
        env = dict(os.environ, BURST_HOME=o.home, BURST_CACHE=str(folder / "cache"), PYTHONPATH=str(here.parent.parent / "python"),
                   OMP_NUM_THREADS="1")
        for ranks in 1, 2, 4:
            launcher = [here / "fork_ranks.py", ranks, "torch,torch.distributed,torch._dynamo"]
            if count >= LONG:
                launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
            done = runner.run([sys.executable, *launcher, here / "worker.py", "--count", count, "--seed", seed], 200 + 15 * count,
                              env=env)
            print(done.stdout, end="")
    return 0


sys.exit(main())
