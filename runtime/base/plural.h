/* plural.h: the plural ending after a count, "%d rank%s", in messages of the compiler and the runtime. */
#ifndef BURST_PLURAL_H
#define BURST_PLURAL_H

static inline const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}

#endif
