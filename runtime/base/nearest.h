/* nearest.h: "did you mean", for messages of the compiler and the runtime. */
#ifndef BURST_NEAREST_H
#define BURST_NEAREST_H

/* The name nearest to word within edit distance 1 + len/4, or one that differs only in case; NULL: none. */
const char *nearest_name(const char *word, const char *const *names, int n);

#endif
