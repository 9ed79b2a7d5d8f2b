/* check.h: what the device tests share: inputs rounded to bf16, copies, and comparison with references in
 * double. */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include "burst_step_cuda.h"
#include "burst_sizes.h"

#include <vector>

typedef std::vector<float> Floats;
typedef std::vector<double> Doubles;

enum { CHECK_CHANNELS = 4 }; /* as traffic.h has */

/* One rank's test: failed comparisons are counted, failed calls end it. */
typedef struct Check {
    BurstCtx *c;
    const BurstPlan *p;
    BurstGpu *g;
    int failures;
} Check;

/* Relative to the reference's norm: one rounding to bf16 gives 1.1e-3 to 1.7e-3; sums of exact inputs in
 * fp32 far less. */
constexpr double BF16 = 2.5e-3, FP32 = 2e-6;

Floats random_floats(size_t count, unsigned seed, double scale);
Floats random_bf16(size_t count, unsigned seed, double scale); /* exact in bf16 */
std::vector<int32_t> random_ints(size_t count, unsigned seed, int below);
float to_bf16(float x);

/* Device copies; out of memory ends the program. */
BurstBf16 *up_bf16(Check *k, const Floats &x);
float *up(Check *k, const Floats &x);
int32_t *up(Check *k, const std::vector<int32_t> &x);
void *poisoned(Check *k, size_t bytes); /* every element not a number */
Floats down_bf16(Check *k, const BurstBf16 *x, size_t count);
Floats down(Check *k, const float *x, size_t count);

/* |got - want| / |want| at most the tolerance; what is not a number fails. */
void compare(Check *k, const char *name, const Floats &got, const Doubles &want, double tolerance);
void expect(Check *k, const char *name, bool holds);
#define MUST(k, call) must((k), (call), #call)
void must(Check *k, int status, const char *call);

void check_products(Check *k);
void check_layer(Check *k);
void check_recurrent(Check *k);
void check_embedding(Check *k);
void check_loss(Check *k);
void check_transfers(Check *k);
void check_copies(Check *k);
void check_optimizer(Check *k);
void measure(Check *k);
/* opens and closes the device itself, once a transport */
void measure_links(BurstCtx *c, const BurstPlan *p);
#endif
