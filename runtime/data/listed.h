/* listed.h: whether a data file lists where its documents begin, by its head alone: also for burstc. */
#ifndef BURST_LISTED_H
#define BURST_LISTED_H

#include <limits.h>
#include <stdbool.h>

#define MEGATRON_MAGIC "MMIDIDX\0"
typedef enum Listed { LISTED_UNKNOWN, LISTED_NOT, LISTED_DOCUMENTS } Listed; /* unknown: it cannot be read */
/* raw: as BurstDataFile has it. */
Listed data_listed(const char *path, int raw);
/* The two files of a Megatron-LM data set, of which `path` may name either; false: it names neither. */
bool source_pair(const char *path, char bin[PATH_MAX], char idx[PATH_MAX]);
#endif
