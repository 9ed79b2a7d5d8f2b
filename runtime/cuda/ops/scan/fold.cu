/* fold.cu: the states before a rank's pieces from the maps of the pieces before them, and in reverse their
 * gradients; in fp32, since errors add up over pieces. A block has a head and COLUMNS columns of the state.
 */
#include "cuda/ops/scan/scan.h"
#include "cuda/ops/vec.cuh"

enum { COLUMNS = 32, THREADS = 256, STEP = 32, LANES = THREADS / COLUMNS, MOST_KEY = 256 };

typedef struct FoldArgs {
    int heads, key_dim, value_dim, total, pieces;
    bool read, back;
    const float *maps;
    int64_t map, state; /* floats */
    float *out;
    int16_t slot[SCAN_MOST_FOLDED], number[BURST_MOST_PIECES];
} FoldArgs;

/* Whether a piece's M is 0, as where a document begins in it: what is before it must not be read, since it
 * may be no number. */
static __device__ bool is_zero(const float *m, int count)
{
    bool any = false;
    for (int i = threadIdx.x; i < count; i += THREADS)
        any |= !(m[i] == 0);
    return !__syncthreads_or(any);
}

/* sum[i] += row (lane + LANES i) of M, or of its transpose, by a column of the state. */
static __device__ void multiply(const FoldArgs &a, const float *m, const float *state, float *tile,
                                float sum[MOST_KEY / LANES])
{
    const int column = threadIdx.x % COLUMNS, lane = threadIdx.x / COLUMNS, key = a.key_dim;
    for (int from = 0; from < key; from += STEP) {
        __syncthreads();
        for (int i = threadIdx.x; i < STEP * key; i += THREADS) { /* tile[k][row] */
            const int in_row = i % STEP, row = i / STEP;
            if (a.back)
                tile[i / key * (key + 1) + i % key] = m[(int64_t)(from + i / key) * key + i % key];
            else
                tile[in_row * (key + 1) + row] = m[(int64_t)row * key + from + in_row];
        }
        __syncthreads();
        for (int k = 0; k < STEP; k++) {
            const float x = state[(from + k) * COLUMNS + column];
#pragma unroll
            for (int i = 0; i < MOST_KEY / LANES; i++)
                if (lane + LANES * i < key)
                    sum[i] += tile[k * (key + 1) + lane + LANES * i] * x;
        }
    }
}

static __global__ void __launch_bounds__(THREADS) fold_kernel(const __grid_constant__ FoldArgs a)
{
    extern __shared__ __align__(16) float state[]; /* [key_dim][COLUMNS], then a tile of M */
    const int head = blockIdx.y, at = blockIdx.x * COLUMNS, column = threadIdx.x % COLUMNS,
              lane = threadIdx.x / COLUMNS, key = a.key_dim;
    const int64_t in_state = (int64_t)head * key * a.value_dim + at + column;
    const int64_t in_map = a.state + (int64_t)head * key * (a.read ? key : 1);
    int next = a.back ? a.pieces - 1 : 0;
    for (int row = lane; row < key; row += LANES)
        state[row * COLUMNS + column] = 0;
    for (int i = 0; i <= a.total; i++) { /* the last: after all pieces, where that is wanted */
        const int piece = a.back ? a.total - 1 - i : i;
        if (a.number[next] == piece) {
            for (int row = lane; row < key; row += LANES)
                a.out[next * a.state + in_state + (int64_t)row * a.value_dim] = state[row * COLUMNS + column];
            next += a.back ? -1 : 1;
        }
        if (next < 0 || next == a.pieces)
            break;
        const float *map = a.maps + a.slot[piece] * a.map;
        const bool zero = is_zero(map + in_map, key * (a.read ? key : 1));
        float sum[MOST_KEY / LANES] = {};
        if (!zero && a.read)
            multiply(a, map + in_map, state, state + key * COLUMNS, sum);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < MOST_KEY / LANES; j++) {
            const int row = lane + LANES * j;
            if (row >= key)
                break;
            float &x = state[row * COLUMNS + column];
            const float kept = a.read ? sum[j] : map[in_map + row] * x;
            x = map[in_state + (int64_t)row * a.value_dim] + (zero ? 0 : kept);
        }
        __syncthreads();
    }
}

void scan_fold(const BurstScan *s, const BurstFold *f, bool back, const float *maps, float *out,
               cudaStream_t stream)
{
    FoldArgs a = {
        s->heads,          s->key_dim,          s->value_dim, f->total, f->pieces, s->read != 0, back, maps,
        burst_scan_map(s), burst_scan_state(s), out,          {},       {}};
    for (int i = 0; i < f->total; i++)
        a.slot[i] = (int16_t)f->slot[i];
    for (int i = 0; i < f->pieces; i++)
        a.number[i] = (int16_t)f->number[i];
    const size_t shared = (size_t)(s->key_dim * COLUMNS + STEP * (s->key_dim + 1)) * sizeof(float);
    cudaFuncSetAttribute(fold_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    fold_kernel<<<dim3((unsigned)(s->value_dim / COLUMNS), (unsigned)s->heads), THREADS, shared, stream>>>(a);
}
