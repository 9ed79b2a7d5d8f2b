/* mix.c: see mix.h. Each slot goes to the file furthest below its share. */
#include "data/mix.h"

void mix_make(Mix *m, const double *share, int files)
{
    double all = 0;
    for (int f = 0; f < files; f++) {
        all += share[f];
        m->slots[f] = 0;
    }
    for (int s = 0; s < MIX_SLOTS; s++) {
        int most = 0;
        double lag = -MIX_SLOTS;
        for (int f = 0; f < files; f++) {
            const double is = share[f] / all * (s + 1) - m->slots[f];
            most = is > lag ? f : most;
            lag = is > lag ? is : lag;
        }
        m->file[s] = (uint8_t)most;
        m->before[s] = (uint16_t)m->slots[most]++;
    }
}

int mix_at(const Mix *m, int64_t n, int64_t *index)
{
    const int slot = (int)(n % MIX_SLOTS), f = m->file[slot];
    *index = n / MIX_SLOTS * m->slots[f] + m->before[slot];
    return f;
}
