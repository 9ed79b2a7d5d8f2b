/* listed.h: whether a data file lists where its documents begin, from its head; also used by burstc. */
#ifndef BURST_LISTED_H
#define BURST_LISTED_H

#include <limits.h>
#include <stdbool.h>

#define MEGATRON_MAGIC "MMIDIDX\0"
/* unknown: the file cannot be read */
typedef enum Listed { LISTED_UNKNOWN, LISTED_NOT, LISTED_DOCUMENTS } Listed;
/* raw: as in BurstDataFile. */
Listed data_listed(const char *path, int raw);
/* The two files of a Megatron-LM data set; `path` may be either. Returns false if it is neither. */
bool source_pair(const char *path, char bin[PATH_MAX], char idx[PATH_MAX]);
#endif
