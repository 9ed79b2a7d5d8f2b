/* text.h: the front end on texts, for the unit tests. Files are made in memory. */
#ifndef TEST_DSL_TEXT_H
#define TEST_DSL_TEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "dsl.h"

#define TOPO "cluster one { nodes 1 { gpus 4 of h100; } }\n"
#define MODEL "model m { layers 4; hidden 64; heads 4; ffn swiglu 128; vocab 256; }\n"

static inline const char *memory_file(Arena *a, const char *text)
{
    int fd = memfd_create("text", 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    return arena_printf(a, "/proc/self/fd/%d", fd);
}

static inline void close_files(void)
{
    for (int fd = 3; fd < 64; fd++)
        close(fd);
}

/* A right input: anything else fails the test with what was said. */
static inline const Program *program_of(Arena *a, const char *topo, const char *model)
{
    Diags *d = diags_new(a);
    FrontEnd in = {.target = &targets[TARGET_C],
                   .topo_path = memory_file(a, topo),
                   .model_path = memory_file(a, model),
                   .stock_dir = DSL_STOCK};
    const Program *p = front_end(a, d, &in);
    diags_print(d, stderr);
    close_files();
    assert_non_null(p);
    return p;
}

static inline const SchedText *schedule_of(Arena *a, const char *text)
{
    Diags *d = diags_new(a);
    const SchedText *s = parse_schedule(a, d, DSL_STOCK, memory_file(a, text));
    diags_print(d, stderr);
    close_files();
    assert_non_null(s);
    return s;
}

#endif
