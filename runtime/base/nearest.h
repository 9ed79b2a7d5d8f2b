/* nearest.h: "did you mean"; in messages of the compiler and the runtime. */
#ifndef BURST_NEAREST_H
#define BURST_NEAREST_H

/* The nearest of names to word within edit distance 1 + len/4, or what differs in case alone, or NULL. */
const char *nearest_name(const char *word, const char *const *names, int n);

#endif
