/* data_format.h: recognizes files that are no token files. */
#ifndef BURST_DATA_FORMAT_H
#define BURST_DATA_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { HEAD_MOST = 4096 }; /* bytes that are read */
typedef struct DataFormat { const char *name, *advice; } DataFormat;
/* head: the file's first n bytes, at most HEAD_MOST, followed by a zero byte. bytes: the file's size. */
DataFormat data_format(const char *head, size_t n, off_t bytes);
#endif
