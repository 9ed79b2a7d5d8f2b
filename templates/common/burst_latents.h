/* burst_latents.h: keys and values that travel as latents, on either target (`travel latents`; multi-head
 * latent attention, DeepSeek-V2, arXiv 2405.04434).
 *
 * KV's parts are then a token's latent and the part of its key that all heads share, rotated by RoPE; dKV's
 * are their gradients. A rank attends its own keys and values as usual, and adds its own pairs' gradients to
 * theirs. Another chunk's keys and values are rebuilt from its latents before its pair is attended, and
 * their gradients are converted to gradients of the latents after it: queries do not travel, so a chunk has
 * one pair. */
#ifndef BURST_LATENTS_H
#define BURST_LATENTS_H

enum { PLAN_OWN = PLAN_HEAD_DIM - PLAN_SHARED }; /* elements of a key that its head does not share */

/* Arrays of the running attention. weight, gradient: for keys' own elements, then for values. */
typedef struct PlanLatents {
    const BurstAct *latent, *weight, *k, *v;
    BurstAct *d_latent;
    float *gradient, *dk, *dv;
} PlanLatents;

#endif
