/* step/passes/latents.c: keys and values travel as the latents that they are made of (`travel latents`;
 * multi-head latent attention, DeepSeek-V2, arXiv 2405.04434).
 *
 * The rows of the model stay: a rank makes its own keys and values, and attends them. Beside them attention
 * reads the latent and the weights of both products, and sends its neighbours the latent and the elements of
 * a key that all heads share, turned: 576 numbers a token of DeepSeek-V2-Lite, not 5120. Of what arrives it
 * makes keys and values of all heads, once; in backward it makes of their gradients those of the latent and
 * of the shared elements, which travel on and home, and what it adds to those of the weights. At home the
 * latent's are the first part of its gradient, and the shared elements' are added to those of the first
 * head's key, whose sum over heads is taken behind (OP_JOIN_BACK).
 */
#include "step/step.h"

#include <string.h>

/* The first of two tensors that follow each other: of keys' own elements, and of values. */
static const char weights[] = "self_attn.k_b_proj.weight";

void step_latents(Step *s)
{
    Block *b = &s->block[BLOCK_FORWARD];
    Operand latent = {-1, 0};
    if (!s->choice.latents)
        return;
    for (int i = 0; i < b->ops.n; i++) {
        Op *o = &b->ops.at[i];
        if (o->kind == OP_LINEAR && !strcmp(o->weight, weights))
            latent = o->read[0]; /* of all tensor ranks, where there are several */
        if (o->kind != OP_ATTENTION)
            continue;
        op_read(o, latent.value, latent.next);
        o->weight = weights;
        o->tensors = 2;
    }
}
