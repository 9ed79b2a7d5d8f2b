"""The example of docs/library.md as it stands: compiled, and run by threads, by MPI where there is one, and with a linked plan.

Also that 1, 2 and 4 ranks print the same numbers for the first token, and that two plans in archives fit into one program.
"""
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner
from run_cases import TOPO

WARN = ["-Wall", "-Wextra", "-Werror"]
TWO = """#include <burst.h>
#include <stdio.h>
BURST_DECLARE(one);
BURST_DECLARE(other_1);
int main(void)
{
    const BurstLibrary *const library[] = {BURST_LINKED(one), BURST_LINKED(other_1)};
    const BurstGroup group = {0, 1, 0, 0};
    BurstPlan *plan[2];
    for (int i = 0; i < 2; i++)
        if (burst_plan_use(library[i], &group, &plan[i]) != BURST_SUCCESS)
            return 1;
    printf("%d %d\\n", burst_plan_info(plan[0])->heads, burst_plan_info(plan[1])->heads);
    burst_plan_close(plan[0]);
    burst_plan_close(plan[1]);
    return 0;
}
"""


def block(page, language):
    """The first of this language; the model's block names none."""
    return re.search(rf"^```{language}\n(.*?)^```", page, re.M | re.S)[1]


def compile_plan(o, folder, ranks, model, name):
    (folder / f"{ranks}.topo").write_text(TOPO % ranks)
    runner.run([o.burstc, folder / f"{ranks}.topo", model, "-o", folder / name], 120)
    return folder / name


def check_ranks(o, folder, model, program):
    printed = {}
    for ranks in 1, 2, 4:
        plan = compile_plan(o, folder, ranks, model, f"plan{ranks}.so")
        printed[ranks] = runner.run([program, plan, ranks], 60).stdout
        runner.require(printed[ranks].count("mask ") == 2, f"{ranks} ranks printed\n{printed[ranks]}")
    if o.mpirun:
        mpi = folder / "mpi"
        runner.run([o.mpicc, *WARN, "-DUSE_MPI", folder / "example.c", f"-I{o.include}", o.libburst, "-ldl", "-o", mpi], 60)
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = runner.run([o.mpirun, "-n", 2, "--oversubscribe", mpi, folder / "plan2.so"], 60, env=env)
        runner.require(done.stdout == printed[2], f"MPI printed\n{done.stdout}threads\n{printed[2]}")
    return printed


def check_archives(o, folder, model):
    one = compile_plan(o, folder, 1, model, "one.a")
    other_model = folder / "other.burst"
    other_model.write_text(model.read_text().replace("heads 8", "heads 4"))
    other = compile_plan(o, folder, 1, other_model, "other-1.a")
    (folder / "two.c").write_text(TWO)
    runner.run([o.cc, *WARN, folder / "two.c", f"-I{o.include}", one, other, o.libburst, "-ldl", "-lm", "-lpthread",
                "-o", folder / "two"], 60)
    printed = runner.run([folder / "two"], 30).stdout
    runner.require(printed == "8 4\n", f"two linked plans have heads {printed}")


def main():
    parser = runner.options(__doc__, "--burstc", "--page", "--cc", "--include", "--libburst")
    parser.add_argument("--mpirun")
    parser.add_argument("--mpicc")
    o = parser.parse_args()
    page = pathlib.Path(o.page).read_text()
    with runner.folder(o.work) as folder:
        (folder / "example.c").write_text(block(page, "c"))
        model = folder / "attention.burst"
        model.write_text(block(page, ""))
        program = folder / "example"
        runner.run([o.cc, "-std=gnu17", *WARN, folder / "example.c", f"-I{o.include}", o.libburst, "-ldl", "-lpthread", "-o", program], 60)
        for ranks, text in check_ranks(o, folder, model, program).items():
            print(ranks, "ranks:", text, end="")
        check_archives(o, folder, model)
    return 0


sys.exit(main())
