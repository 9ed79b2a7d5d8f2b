/* exchange_main.c: the exchanges as a program, to be run alone or by a launcher:
 *     exchange_main WORLD [FLOATS | small | large | ended]
 * FLOATS: the most of a message. small, large: rank 1 sends a byte more than rank 0 expects; ended: it
 * sends nothing. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 100,
    LARGE = 1 << 20,
    USUAL_FLOATS = 20000,
    MESSAGES = 200,
    FLOATS_IN_ALL = MESSAGES * USUAL_FLOATS
};

static int go_wrong(BurstCtx *c, const BurstPlan *p, void *mode)
{
    BurstReq req = {0};
    size_t bytes = strcmp(mode, "large") == 0 ? LARGE : SMALL;
    void *data = burst_take(c, bytes + 1);
    (void)p;
    CHECK(c, data != NULL);
    if (burst_rank(c) == 1 && strcmp(mode, "ended") != 0)
        BURST_TRY(burst_send(c, 3, 0, data, bytes + 1, &req));
    if (burst_rank(c) == 0)
        BURST_TRY(burst_recv(c, 3, 1, data, bytes, &req));
    return burst_wait(c, &req);
}

static int run_exchanges(int world, int floats, int argc, char **argv)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        Exchange e = {seed, FLOATS_IN_ALL / floats < MESSAGES ? FLOATS_IN_ALL / floats : MESSAGES, floats};
        BurstPlan p = bare_plan(world, exchange_arena(world, &e));
        int code = burst_launch(&p, argc, argv, exchange_messages, &e);
        if (code == 0)
            code = burst_launch(&p, argc, argv, exchange_collectives, &e);
        if (code != 0)
            return code;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int world = argc > 1 ? atoi(argv[1]) : 0, floats = argc > 2 ? atoi(argv[2]) : USUAL_FLOATS;
    if (world < 2 || floats < 0 || floats > FLOATS_IN_ALL) {
        fprintf(stderr, "usage: exchange_main WORLD (2 or more) [FLOATS | small | large | ended]\n");
        return 2;
    }
    if (floats > 0)
        return run_exchanges(world, floats, argc, argv);
    BurstPlan p = bare_plan(world, LARGE + SMALL);
    return burst_launch(&p, argc, argv, go_wrong, argv[2]);
}
