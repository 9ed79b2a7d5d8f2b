/* choices.cu: records which experts an emitted program chooses. Linked with --wrap of burst_op_choose and of
 * burst_op_choose_corrected, whose calls come here. BURST_CHOICES: a file to which they are appended. */
#include "burst_step_cuda.h"

#include <stdio.h>
#include <stdlib.h>

#define CHOOSE _Z15burst_op_chooseP8BurstGpulPK12BurstExpertsPKfPiPf
#define CORRECTED _Z25burst_op_choose_correctedP8BurstGpulPK12BurstExpertsPKfS5_PiPf
#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)

extern "C" int NAMED(__real_, CHOOSE)(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                                      int32_t *choice, float *route);
extern "C" int NAMED(__real_, CORRECTED)(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                                         const float *correction, int32_t *choice, float *route);

static int32_t *record;
static int64_t recorded;

extern "C" const int32_t *recorded_choices(int64_t *count)
{
    *count = recorded;
    return record;
}

static int append(const char *path, int64_t count, const int32_t *choice)
{
    FILE *file = fopen(path, "ab");
    if (!file)
        return BURST_E_IO;
    const bool all = fwrite(choice, sizeof *choice, (size_t)count, file) == (size_t)count;
    return fclose(file) == 0 && all ? BURST_OK : BURST_E_IO;
}

static int add(int64_t count, const int32_t *choice)
{
    const char *path = getenv("BURST_CHOICES");
    record = (int32_t *)realloc(record, sizeof *record * (size_t)(recorded + count + 1));
    if (!record || cudaDeviceSynchronize() != cudaSuccess ||
        cudaMemcpy(record + recorded, choice, sizeof *record * (size_t)count, cudaMemcpyDeviceToHost) !=
            cudaSuccess)
        return BURST_E_DEVICE;
    recorded += count;
    return path ? append(path, count, record + recorded - count) : BURST_OK;
}

extern "C" int NAMED(__wrap_, CHOOSE)(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                                      int32_t *choice, float *route)
{
    BURST_TRY(NAMED(__real_, CHOOSE)(g, n, m, logits, choice, route));
    return add(n * m->top, choice);
}

extern "C" int NAMED(__wrap_, CORRECTED)(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                                         const float *correction, int32_t *choice, float *route)
{
    BURST_TRY(NAMED(__real_, CORRECTED)(g, n, m, logits, correction, choice, route));
    return add(n * m->top, choice);
}
