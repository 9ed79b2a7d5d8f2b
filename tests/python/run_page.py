"""The first example of docs/python.md as it stands, alone and under torchrun. 77 where torch is not installed."""
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner


def main():
    o = runner.options(__doc__, "--home", "--page").parse_args()
    if runner.lacks("torch"):
        return 77
    here = pathlib.Path(__file__).resolve().parent
    with runner.folder(o.work) as folder:
        text = re.search(r"^```python\n(.*?)^```", pathlib.Path(o.page).read_text(), re.M | re.S)[1]
        (folder / "example.py").write_text(text)
        (folder / "ranks.py").write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n" + text +
                                           "\nfrom leave import leave\nleave()\n")
        env = dict(os.environ, BURST_HOME=o.home, BURST_CACHE=str(folder / "cache"), OMP_NUM_THREADS="1",
                   PYTHONPATH=f"{here.parent.parent / 'python'}:{here}")
        alone = runner.run([sys.executable, folder / "example.py"], 200, env=env).stdout
        runner.require("(512, 4, 32) True" in alone, alone)
        logs = folder / "logs"  # of each rank by itself: what ranks print meets inside of lines
        runner.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--redirects", 1,
                    "--log-dir", logs, folder / "ranks.py"], 200, env=env)
        both = [log.read_text() for log in logs.rglob("stdout.log")]
        runner.require(len(both) == 2 and all("(256, 4, 32) True" in text for text in both), both)
    return 0


sys.exit(main())
