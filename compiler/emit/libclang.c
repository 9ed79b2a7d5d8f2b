/* libclang.c: loads libclang's functions by name from the library that the build was configured with, or one
 * of that name in the loader's path. */
#ifdef BURST_LIBCLANG
#include "emit/libclang.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static Libclang functions;

const Libclang *clang(void) { return &functions; }

const char *libclang_load(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } table[] = {
#define ROW(name) {"clang_" #name, offsetof(Libclang, name)},
        LIBCLANG_FUNCTIONS(ROW)
#undef ROW
    };
    static void *library;
    if (library)
        return NULL;
    void *opened = dlopen(BURST_LIBCLANG, RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        opened = dlopen(strrchr(BURST_LIBCLANG, '/') + 1, RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return dlerror();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *function = dlsym(opened, table[i].name);
        if (!function)
            return dlerror();
        memcpy((char *)&functions + table[i].offset, &function, sizeof function);
    }
    library = opened;
    return NULL;
}
#endif
