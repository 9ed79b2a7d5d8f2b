/* burst_rope.h: what the frequencies of a rotary position embedding follow from (families/frequency.h).
 */
#ifndef BURST_ROPE_H
#define BURST_ROPE_H

/* How frequencies are scaled: linear (Position Interpolation, arXiv 2306.15595), llama3 (arXiv 2407.21783),
 * yarn (arXiv 2309.00071), dynamic (NTK, by the length of the sequence), longrope (arXiv 2402.13753: a factor
 * for each pair, of sequences up to `original` or of longer ones). Names are those of transformers and of
 * models. */
#define BURST_ROPE_ROWS(X) \
    X(DEFAULT, "default") \
    X(LINEAR, "linear") X(LLAMA3, "llama3") X(YARN, "yarn") X(DYNAMIC, "dynamic") X(LONGROPE, "longrope")
enum {
#define X(id, name) BURST_ROPE_##id,
    BURST_ROPE_ROWS(X)
#undef X
        BURST_ROPE_KINDS
};
/* Of longrope: what the frequency of each pair is divided by. */
enum { BURST_ROPE_PAIRS = 128 };
typedef struct BurstRopeFactors {
    int count;
    double short_factor[BURST_ROPE_PAIRS], long_factor[BURST_ROPE_PAIRS];
} BurstRopeFactors;
typedef struct BurstRope {
    double theta;     /* 0: nothing turns */
    int kind;         /* BURST_ROPE_...; all below is 0 where the kind does not have it */
    double factor;    /* positions are stretched so many times */
    double original;  /* tokens of the sequences that the model was trained on before */
    double low,
        high; /* turns in `original`: pairs that turn less get the whole factor, that turn more none */
    double attention; /* yarn, longrope: what cosines and sines are multiplied by */
    double length;    /* dynamic, longrope: tokens of a sequence */
    /* elements of a head that turn, the first ones; below 0: so many of the last ones (multi-head latent
     * attention, arXiv 2405.04434); 0: all */
    int rotary;
    int interleaved;  /* pairs are neighbours, 2j and 2j + 1; 0: halves, j and j + half */
    const BurstRopeFactors *factors; /* longrope; NULL: none */
} BurstRope;
#endif
