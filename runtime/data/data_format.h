/* data_format.h: what a file that is no token file looks like. */
#ifndef BURST_DATA_FORMAT_H
#define BURST_DATA_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { HEAD_MOST = 4096 }; /* bytes that are looked at */
typedef struct DataFormat { const char *name, *advice; } DataFormat;
/* head: the file's first n bytes, at most HEAD_MOST, then a zero byte. bytes: the file's size. */
DataFormat data_format(const char *head, size_t n, off_t bytes);
#endif
