/* nearest.c: see nearest.h. */
#include "base/nearest.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 256, ROW = LONGEST + LONGEST / 4 + 3 };

/* Levenshtein distance, or limit + 1 if it is larger. a: at most LONGEST bytes. */
static int edit_distance(const char *a, const char *b, int limit)
{
    int n = (int)strlen(a), m = (int)strlen(b), row[ROW];
    if (abs(n - m) > limit)
        return limit + 1;
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *nearest_name(const char *word, const char *const *names, int n)
{
    const size_t len = strlen(word);
    const char *best = NULL;
    if (len > LONGEST)
        return NULL;
    int limit = 1 + (int)len / 4;
    for (int i = 0; i < n; i++) {
        if (!names[i])
            continue;
        const bool same = strcasecmp(word, names[i]) == 0 && strcmp(word, names[i]) != 0;
        const int distance = same ? 0 : edit_distance(word, names[i], limit);
        if (distance <= limit && distance < (int)len) {
            best = names[i];
            limit = distance - 1;
        }
    }
    return best;
}
