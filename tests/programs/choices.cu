/* choices.cu: records which experts an emitted program chooses. Linked with --wrap of burst_op_choose, whose
 * calls come here. */
#include "burst_step_cuda.h"

#include <stdlib.h>

#define CHOOSE _Z15burst_op_chooseP8BurstGpulPK12BurstExpertsPKfPiPf
#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)

extern "C" int NAMED(__real_, CHOOSE)(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                                      int32_t *choice, float *route);

static int32_t *record;
static int64_t recorded;

extern "C" const int32_t *recorded_choices(int64_t *count)
{
    *count = recorded;
    return record;
}

extern "C" int NAMED(__wrap_, CHOOSE)(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                                      int32_t *choice, float *route)
{
    BURST_TRY(NAMED(__real_, CHOOSE)(g, n, m, logits, choice, route));
    record = (int32_t *)realloc(record, sizeof *record * (size_t)(recorded + n * m->top + 1));
    if (!record || cudaDeviceSynchronize() != cudaSuccess ||
        cudaMemcpy(record + recorded, choice, sizeof *record * (size_t)(n * m->top),
                   cudaMemcpyDeviceToHost) != cudaSuccess)
        return BURST_E_DEVICE;
    recorded += n * m->top;
    return BURST_OK;
}
