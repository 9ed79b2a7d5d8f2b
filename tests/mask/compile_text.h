/* compile_text.h: C text to a loaded shared object, for tests of emitted code. */
#ifndef COMPILE_TEXT_H
#define COMPILE_TEXT_H

#include "tools/tools.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Fails the cmocka test where the text does not compile. dlclose the result. */
static void *compile_text(const char *text, const char *name, const char *flags)
{
    Arena *a = arena_new();
    Text file = {0};
    text_add(&file, text);
    const char *c = arena_printf(a, "%s/%s.c", SCRATCH_DIR, name),
               *so = arena_printf(a, "%s/%s.so", SCRATCH_DIR, name);
    assert_int_equal(text_write_file(&file, c), 0);
    text_free(&file);
    assert_int_equal(system(arena_printf(a, "%s -std=gnu17 %s -fPIC -shared -I%s -o %s %s", TEST_CC, flags,
                                         RUNTIME_DIR, so, c)),
                     0);
    void *handle = dlopen(so, RTLD_NOW);
    assert_non_null(handle);
    arena_free(a);
    return handle;
}

#endif
