/* attention_host.c: host attention beside the machine's matrix product, on one thread.
 *
 *     attention_host [tokens [heads [kv_heads]]]
 *
 * Causal attention of one chunk with itself for head_dim 64 and 128, counting unmasked pairs only: 4 * pairs * d
 * operations forward, 10 backward. The yardstick is cblas_sgemm of 2048 x 2048 x 2048 in the same run, with the kernels
 * OpenBLAS chooses by itself and with those of burst_blas_setup; the percentages are of the faster.
 */
#include "burst_rt.h"
#include "host.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 3, PRODUCT = 2048 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *random_floats(int64_t n)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    if (!x)
        exit(1);
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) / (1 << 23) - 1;
    }
    return x;
}

static int causal_tile(const BurstSide *q, const BurstSide *k)
{
    return k->lo > q->hi ? BURST_EMPTY : k->hi <= q->lo ? BURST_FULL : BURST_PARTIAL;
}

static void causal_row(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep)
{
    (void)t;
    for (int j = 0; j < n; j++)
        keep[j] = k[j] <= q;
}

/* GFLOP/s of the best of REPEATS runs. */
static double matrix_rate(void)
{
    const int n = PRODUCT;
    float *a = random_floats(n * n), *b = random_floats(n * n), *c = random_floats(n * n);
    double best = 1e30;
    for (int i = 0; i <= REPEATS; i++) {
        double start = now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, b, n, 0, c, n);
        double took = now() - start;
        best = took < best ? took : best;
    }
    free(a), free(b), free(c);
    return 2.0 * n * n * n / best * 1e-9;
}

static double attention_rate(const BurstAttend *a, void (*run)(const BurstAttend *), double flops)
{
    double best = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        burst_attend_start(a);
        double start = now();
        run(a);
        double took = now() - start;
        best = took < best ? took : best;
    }
    return flops / best * 1e-9;
}

static void measure(int64_t n, int heads, int kv_heads, int d, double matrix)
{
    const BurstMask mask = {"k <= q", causal_tile, causal_row};
    int64_t *position = malloc((size_t)n * sizeof *position);
    BurstSide *side = malloc((size_t)(n / BURST_TILE + 1) * sizeof *side);
    if (!position || !side)
        exit(1);
    for (int64_t i = 0; i < n; i++)
        position[i] = i;
    burst_sides(position, n, NULL, 0, side);
    BurstChunk chunk = {n, position, side, (int)((n + BURST_TILE - 1) / BURST_TILE)};
    int64_t q = heads * n * d, kv = kv_heads * n * d;
    BurstAttend a = {.head_dim = d, .q_heads = heads, .kv_heads = kv_heads, .group = heads / kv_heads,
                     .scale = d == 64 ? 0.125f : 0.08838835f, .mask = &mask, .qc = &chunk, .kc = &chunk,
                     .scratch = random_floats(burst_attend_scratch(d))};
    float *inputs[] = {random_floats(q), random_floats(kv), random_floats(kv), random_floats(q), random_floats(heads * n)};
    a.q = inputs[0], a.k = inputs[1], a.v = inputs[2], a.d_o = inputs[3], a.delta = inputs[4];
    float *out[] = {random_floats(q), random_floats(heads * n), random_floats(q), random_floats(kv), random_floats(kv),
                    random_floats(heads * n)};
    a.o = out[0], a.lse = out[1], a.dq = out[2], a.dk = out[3], a.dv = out[4], a.lse_rest = out[5];
    double pairs = heads * (0.5 * (double)n * (double)(n + 1));
    double forward = attention_rate(&a, burst_attend_forward, 4 * pairs * d);
    for (int64_t i = 0; i < heads * n; i++)
        a.lse[i] = 8;
    double backward = attention_rate(&a, burst_attend_backward, 10 * pairs * d);
    printf("causal tokens %lld heads %d/%d head_dim %3d: forward %6.1f GFLOP/s (%2.0f %%), backward %6.1f (%2.0f %%)\n",
           (long long)n, heads, kv_heads, d, forward, 100 * forward / matrix, backward, 100 * backward / matrix);
    for (int i = 0; i < 5; i++)
        free(inputs[i]), free(out[i]);
    free(out[5]), free(a.scratch), free(position), free(side);
}

int main(int argc, char **argv)
{
    int64_t n = argc > 1 ? atoll(argv[1]) : 4096;
    int heads = argc > 2 ? atoi(argv[2]) : 4, kv_heads = argc > 3 ? atoi(argv[3]) : heads;
    if (n < 1 || heads < 1 || kv_heads < 1 || heads % kv_heads) {
        fprintf(stderr, "usage: attention_host [tokens [heads [kv_heads]]]\n");
        return 2;
    }
    openblas_set_num_threads(1);
    printf("sgemm %d: %-10s %6.1f GFLOP/s", PRODUCT, openblas_get_corename(), matrix_rate());
    burst_blas_setup();
    double matrix = matrix_rate();
    printf(", %-10s %6.1f GFLOP/s\n", openblas_get_corename(), matrix);
    measure(n, heads, kv_heads, 64, matrix);
    measure(n, heads, kv_heads, 128, matrix);
    return 0;
}
