/* mini_main.c: the miniature plan as a program of its own, as burstc would emit one. The environment chooses the shape:
 * MINI="world data partition batch steps separator", MINI_FAULT="kill 2 3", MINI_FFN=6,
 * MINI_RENAME_MS=1000. */
#include "mini.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Linked in place of rename: MINI_RENAME_MS holds a finished file or folder back, so that a test sees the moment before. */
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    const char *wait = getenv("MINI_RENAME_MS");
    if (wait)
        usleep((useconds_t)atoi(wait) * 1000);
    return __real_rename(from, to);
}

int main(int argc, char **argv)
{
    Mini m = {.world = 2, .data = 1, .sequence = 48, .batch = 4, .steps = 12, .separator = -1, .documents = true,
              .ffn = getenv("MINI_FFN") ? atoi(getenv("MINI_FFN")) : 6,
              .fault = getenv("MINI_FAULT")};
    const char *shape = getenv("MINI");
    long long batch, steps, separator;
    if (shape && sscanf(shape, "%d %d %d %lld %lld %lld", &m.world, &m.data, &m.partition, &batch, &steps, &separator) == 6) {
        m.batch = batch;
        m.steps = steps;
        m.separator = separator;
    } else if (shape) {
        fprintf(stderr, "mini: MINI is '%s'\n", shape);
        return 2;
    }
    return burst_main(mini_plan(&m), argc, argv);
}
