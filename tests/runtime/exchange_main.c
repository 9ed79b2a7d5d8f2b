/* exchange_main.c: the exchanges as a program, to be run alone or under mpirun: exchange_main WORLD. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int world = argc > 1 ? atoi(argv[1]) : 0;
    if (world < 2) {
        fprintf(stderr, "usage: exchange_main WORLD (2 or more)\n");
        return 2;
    }
    for (uint64_t seed = 1; seed <= 3; seed++) {
        Exchange e = {seed, 200, 20000};
        BurstPlan p = bare_plan(world, exchange_arena(world, &e));
        int code = burst_launch(&p, argc, argv, exchange_messages, &e);
        if (code == 0)
            code = burst_launch(&p, argc, argv, exchange_collectives, &e);
        if (code != 0)
            return code;
    }
    return 0;
}
