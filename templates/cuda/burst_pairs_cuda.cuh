/* burst_pairs_cuda.cuh: launches of attention, for pairs of a chunk of queries with some chunks of keys, or
 * for the whole sequence.
 *
 * The program has included the kernels and defined PLAN_KERNEL_MASKS: the masks as kernels take them, by
 * number. */

/* Chunks of keys of a launch, up to what its kernels take. */
typedef struct PlanLaunchKeys {
    BurstTokens tokens[BURST_MOST_CHUNKS];
    BurstTileRanges there[BURST_MOST_CHUNKS];
    int tiles;
} PlanLaunchKeys;

template <class PAIR>
static inline PlanLaunchKeys plan_launch_keys(const PlanState *s, const PAIR *pair, int pairs, int tile)
{
    PlanLaunchKeys k = {};
    for (int i = 0; i < pairs; i++) {
        k.tokens[i] = pair[i].k_tokens;
        k.there[i] = s->launch.there[i];
        k.tiles += burst_tiles(k.tokens[i].n, tile);
    }
    return k;
}

#ifdef PLAN_LIBRARY
/* Where the call's next launch keeps its lists (own tiles by others) in the batch's memory; NULL: it does
 * not keep them. Calls with the same mask and direction have the same launches in the same order. During
 * stream capture nothing runs, so such a launch keeps no lists. */
static inline PlanKept *plan_keep(PlanState *s, bool backward, int own, int other, bool turns, int parts)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const size_t ints = (burst_lists_ints(own, other, turns ? PLAN_HEADS : 0, parts) + 63) / 64 * 64;
    PlanKept *kept = s->launches < PLAN_KEPT ? &s->kept[s->mask][backward][s->launches++] : NULL;
    if (!kept || kept->made)
        return kept;
    if (s->kept_ints + ints > PLAN_KEPT_INTS ||
        cudaStreamIsCapturing(burst_gpu_compute(s->exec), &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone)
        return NULL;
    kept->lists = burst_lists_place(own, other, turns, parts, s->buffer.kept_lists + s->kept_ints);
    s->kept_ints += ints;
    return kept;
}
#endif

/* Makes the pairs' lists of live tiles on the compute stream. lists: with what plan_by_lists sets. */
template <class MASK>
static inline cudaError_t plan_lists(PlanState *s, bool backward, const BurstTokens &q,
                                     const PlanLaunchKeys &keys, int pairs, int tile_q, int tile_k,
                                     BurstTileLists *lists)
{
    const int tiles = burst_tiles(q.n, tile_q), own = backward ? keys.tiles : tiles,
              other = backward ? tiles : keys.tiles, home = backward ? 0 : s->launch.home,
              parts = home ? 2 : 1;
    const bool turns = backward && PLAN_DETERMINISTIC;
    const BurstTileLists how = *lists;
    *lists = BurstSelects<MASK>::YES && !turns
                 ? burst_lists_place_sets(own, other, how.sets, parts, how, s->buffer.lists)
                 : burst_lists_place(own, other, turns, parts, s->buffer.lists);
    lists->chosen = how.chosen;
#ifdef PLAN_LIBRARY /* lists of blocks that tiles choose differ from call to call */
    PlanKept *kept = BurstSelects<MASK>::YES ? NULL : plan_keep(s, backward, own, other, turns, parts);
    if (kept) {
        const bool made = kept->made;
        kept->made = true;
        *lists = kept->lists;
        if (made)
            return cudaSuccess;
    }
#endif
    return burst_make_lists<MASK>(&q, 1, keys.tokens, pairs, keys.there, tile_q, tile_k, !backward, home,
                                  s->buffer.tile_sides, *lists, burst_gpu_compute(s->exec));
}

#ifdef PLAN_SELECTIONS
/* Query heads of the rank, from a multiple on, that share a list. */
static inline int plan_alike(const PlanState *s)
{
    const int kind = plan_masks[s->mask]->selection->heads;
    if (kind == BURST_SELECT_OF_ALL)
        return PLAN_HEADS;
    return kind == BURST_SELECT_OF_KV ? PLAN_KV_SHARE : 1;
}

static inline BurstChosen plan_chosen(const PlanState *s, int list)
{
    const BurstSelection *how = plan_masks[s->mask]->selection;
    const BurstChosen chosen = {s->chosen + list * how->top, plan_tile_words(how), how->top};
    return chosen;
}

/* The same pair with `heads` of its query heads, from the first + at on. */
static inline BurstForward plan_heads_of(const BurstForward &pair, int at, int heads)
{
    BurstForward p = pair;
    const int64_t rows = (int64_t)at * pair.q_tokens.n;
    p.q.at += at * pair.q.head, p.out.at += at * pair.out.head, p.lse += rows;
    if (p.o)
        p.o += rows * PLAN_VALUE_DIM;
    p.q_head0 += at, p.q_heads = heads;
    return p;
}

/* ... and with the key heads that these read. */
static inline BurstBackward plan_heads_of(const BurstBackward &pair, int at, int heads)
{
    BurstBackward p = pair;
    const int64_t rows = (int64_t)at * pair.q_tokens.n;
    p.q.at += at * pair.q.head, p.d_o.at += at * pair.d_o.head;
    p.lse += rows, p.delta += rows, p.dq += rows * PLAN_HEAD_DIM;
    p.q_head0 += at, p.q_heads = heads;
    const int first = p.q_head0 / p.group, before = first - p.kv_head0;
    p.k.at += before * p.k.head, p.v.at += before * p.v.head;
    p.dk += (int64_t)before * p.k_tokens.n * PLAN_HEAD_DIM;
    p.dv += (int64_t)before * p.k_tokens.n * PLAN_VALUE_DIM;
    p.kv_head0 = first, p.kv_heads = (p.q_head0 + heads - 1) / p.group - first + 1;
    return p;
}
#endif

#ifdef PLAN_SELECTIONS
/* Backward takes the tiles of queries in bands: those that chose a tile of keys lie anywhere, and rows of a
 * band stay in the L2 cache. Each band adds dK and dV once more, which a list of one head is not worth. */
enum { PLAN_BAND_BYTES = 32 << 20 };
static inline int plan_band_bits(const BurstForward &, int) { return 0; }
static inline int plan_band_bits(const BurstBackward &p, int alike)
{
    const double bytes = (double)p.q_tokens.n * (6 * PLAN_HEAD_DIM + 2 * PLAN_VALUE_DIM);
    int bits = 0;
    while (alike > 1 && bits < BURST_MOST_BAND_BITS && bytes / (1 << bits) > 1.5 * PLAN_BAND_BYTES)
        bits++;
    return bits;
}

/* The most lists that a launch may have: as many as the memory of lists holds, which has room for one. */
template <class MASK>
static inline int plan_lists_at_once(const PlanState *s, const BurstForward *p, int pairs)
{
    using T = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>;
    const int own = burst_tiles(p->q_tokens.n, T::FORWARD_Q),
              other = plan_launch_keys(s, p, pairs, T::FORWARD_K).tiles;
    return (int)(PLAN_LISTS_INTS / burst_lists_ints(own, other, 0, s->launch.home ? 2 : 1));
}

template <class MASK>
static inline int plan_lists_at_once(const PlanState *s, const BurstBackward *p, int pairs)
{
    using T = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>;
    const int own = plan_launch_keys(s, p, pairs, T::BACKWARD_K).tiles,
              other = burst_tiles(p->q_tokens.n, T::BACKWARD_Q), bands = 1 << p->lists.band_bits;
    return (int)(PLAN_LISTS_INTS / burst_lists_ints(own * bands, burst_tiles(other, bands), 0, 1));
}
#endif

/* Launches `one` for all heads of the pairs or, if the mask has a selection, for the heads of as many lists
 * as fit. */
template <class MASK, class PAIR, class ONE>
static inline cudaError_t plan_by_lists(PlanState *s, PAIR *pair, int pairs, const ONE &one)
{
    (void)s, (void)pairs;
#ifdef PLAN_SELECTIONS
    if (BurstSelects<MASK>::YES) {
        PAIR some[BURST_MOST_CHUNKS] = {};
        cudaError_t e = cudaSuccess;
        const int begin = pair->q_head0, end = begin + pair->q_heads, alike = plan_alike(s),
                  bits = PLAN_DETERMINISTIC ? 0 : plan_band_bits(*pair, alike);
        pair->lists.band_bits = bits;
        const int fit = plan_lists_at_once<MASK>(s, pair, pairs),
                  lists = BURST_LISTS > 1 && fit > 1 ? fit : 1;
        for (int head = begin, next; head < end && e == cudaSuccess; head = next) {
            next = (head / alike + lists) * alike < end ? (head / alike + lists) * alike : end;
            for (int i = 0; i < pairs; i++)
                some[i] = plan_heads_of(pair[i], head - begin, next - head);
            some->lists.heads = alike, some->lists.band_bits = bits;
            some->lists.sets = burst_sets(alike, bits, head, next - head);
            some->lists.chosen = plan_chosen(s, head / alike);
            e = one(some);
        }
        return e;
    }
#endif
    return one(pair);
}

/* Makes the lists, then launches the kernel. Lists of a launch in two parts, or in pieces of the heads, are
 * made once, unless each list of a selection has its own. */
template <class MASK>
static inline cudaError_t plan_forward_pairs(PlanState *s, BurstForward *pair, int pairs)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::FORWARD_Q,
                  K = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::FORWARD_K;
    cudaError_t e = cudaSuccess;
    if ((!s->launch.rest && !s->launch.listed) || BurstSelects<MASK>::YES)
        e = plan_lists<MASK>(s, false, pair->q_tokens, plan_launch_keys(s, pair, pairs, K), pairs, Q, K,
                             &pair->lists);
    if (s->launch.rest)
        pair->lists = burst_lists_rest(pair->lists);
    if (e != cudaSuccess)
        return e;
    pair->flags |= s->launch.home ? BURST_PART : 0;
    return burst_forward<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>(pair, 1, pairs, s->multiprocessors,
                                                              burst_gpu_compute(s->exec));
}

#ifndef PLAN_INFER
template <class MASK>
static inline cudaError_t plan_backward_pairs(PlanState *s, BurstBackward *pair, int pairs)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::BACKWARD_Q,
                  K = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::BACKWARD_K;
    cudaError_t e = cudaSuccess;
    if (!s->launch.listed || BurstSelects<MASK>::YES)
        e = plan_lists<MASK>(s, true, pair->q_tokens, plan_launch_keys(s, pair, pairs, K), pairs, Q, K,
                             &pair->lists);
    if (e != cudaSuccess)
        return e;
    return burst_backward<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>(pair, 1, pairs, s->multiprocessors,
                                                               burst_gpu_compute(s->exec));
}
#endif

template <class MASK>
static inline cudaError_t plan_forward_heads(PlanState *s, BurstForward *pair, int pairs)
{
    return plan_by_lists<MASK>(s, pair, pairs,
                               [&](BurstForward *some) { return plan_forward_pairs<MASK>(s, some, pairs); });
}

#ifndef PLAN_INFER
template <class MASK>
static inline cudaError_t plan_backward_heads(PlanState *s, BurstBackward *pair, int pairs)
{
    return plan_by_lists<MASK>(s, pair, pairs, [&](BurstBackward *some) {
        return plan_backward_pairs<MASK>(s, some, pairs);
    });
}
#endif

template <class... MASK>
static inline cudaError_t plan_forward_of(PlanState *s, BurstForward *pair, int pairs)
{
    static cudaError_t (*const launch[])(PlanState *, BurstForward *, int) = {plan_forward_heads<MASK>...};
    return launch[s->mask](s, pair, pairs);
}

#ifndef PLAN_INFER
template <class... MASK>
static inline cudaError_t plan_backward_of(PlanState *s, BurstBackward *pair, int pairs)
{
    static cudaError_t (*const launch[])(PlanState *, BurstBackward *, int) = {plan_backward_heads<MASK>...};
    return launch[s->mask](s, pair, pairs);
}
#endif

/* Whether tiles of keys have PLAN_CARRIED tokens, or half of that. */
template <class MASK> static constexpr bool plan_tiles_divide(void)
{
    using T = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>;
    return PLAN_CARRIED % T::FORWARD_K == 0 && PLAN_CARRIED % T::BACKWARD_K == 0;
}

template <class... MASK> static inline bool plan_carries_tiles_of(int mask)
{
    static const bool divide[] = {plan_tiles_divide<MASK>()...};
    return divide[mask];
}

static inline bool plan_carries_tiles(const PlanState *s)
{
    return plan_carries_tiles_of<PLAN_KERNEL_MASKS>(s->mask);
}

template <class MASK> static inline cudaError_t plan_setup_of(void)
{
    const cudaError_t e = burst_forward_setup<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>();
#if defined PLAN_KEEPS_LATENTS
    return e != cudaSuccess ? e : burst_decode_latent_setup<PLAN_LATENT, PLAN_SHARED, PLAN_HEADS, MASK>();
#elif defined PLAN_INFER
    return e;
#else
    return e != cudaSuccess ? e : burst_backward_setup<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>();
#endif
}

template <class... MASK> static inline cudaError_t plan_setup_all(void)
{
    cudaError_t e = cudaSuccess;
    ((e = e != cudaSuccess ? e : plan_setup_of<MASK>()), ...);
    return e;
}

static cudaError_t plan_launch_forward(PlanState *s, BurstForward *pair, int pairs)
{
    return plan_forward_of<PLAN_KERNEL_MASKS>(s, pair, pairs);
}

#ifdef PLAN_INFER
static cudaError_t plan_launch_backward(PlanState *, BurstBackward *, int)
{
    return cudaErrorNotSupported; /* there is none */
}

template <class... MASK>
static inline cudaError_t plan_decode_of(PlanState *s, int mask, const BurstDecode *d)
{
    static cudaError_t (*const launch[])(const BurstDecode *, cudaStream_t) = {
#ifdef PLAN_KEEPS_LATENTS
        burst_decode_latent<PLAN_LATENT, PLAN_SHARED, PLAN_HEADS, MASK>...};
#else
        burst_decode<PLAN_HEAD_DIM, PLAN_VALUE_DIM, PLAN_HEADS, PLAN_KV_HEADS, MASK>...};
#endif
    return launch[mask](d, burst_gpu_compute(s->exec));
}

static cudaError_t plan_launch_decode(PlanState *s, int mask, const BurstDecode *d)
{
    return plan_decode_of<PLAN_KERNEL_MASKS>(s, mask, d);
}
#else
static cudaError_t plan_launch_backward(PlanState *s, BurstBackward *pair, int pairs)
{
    return plan_backward_of<PLAN_KERNEL_MASKS>(s, pair, pairs);
}
#endif

static cudaError_t plan_launch_setup(void)
{
    return plan_setup_all<PLAN_KERNEL_MASKS>();
}

#ifdef PLAN_SELECTIONS
template <class... OPEN>
static inline cudaError_t plan_choose_of(PlanState *s, int mask, const BurstChoose &x, int head_dim,
                                         const float *queries, const float *keys, char *work, int32_t *lists)
{
    static cudaError_t (*const choose[])(const BurstChoose &, BurstChoosing, int, const float *,
                                         const float *, char *, int32_t *,
                                         cudaStream_t) = {burst_choose_lists<OPEN>...};
    return choose[mask](x, plan_choosing(s, s->me), head_dim, queries, keys, work, lists,
                        burst_gpu_compute(s->exec));
}

static cudaError_t plan_choose(PlanState *s, int mask, const BurstChoose &x, int head_dim,
                               const float *queries, const float *keys, char *work, int32_t *lists)
{
    return plan_choose_of<PLAN_OPEN_MASKS>(s, mask, x, head_dim, queries, keys, work, lists);
}
#endif
