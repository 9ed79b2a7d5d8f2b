/* ir/shape.c: a rank's part of the model's heads and feed-forward network. The program's model is not
 * changed; this file has all that a choice derives from it. */
#include "ir/choice.h"

/* The same number of queries per key head. */
static Heads with_kv_heads(Heads h, int kv_heads)
{
    return (Heads){h.heads / h.kv_heads * kv_heads, kv_heads};
}

/* If ranks outnumber key heads, equally many neighbours share one. */
static Shape split(const Model *m, int tensor)
{
    const int copies = m->kv_heads < tensor ? tensor / m->kv_heads : 1;
    const Heads rank = {m->heads / tensor, m->kv_heads / (tensor / copies)};
    return (Shape){tensor, copies, m->ffn / tensor, rank, 1, 0, rank, 0};
}

Shape shape_of(const Program *p, const Choice *c)
{
    Shape s = split(&p->model, choice_tensor(c));
    s.expert_groups = c->expert_groups > 1 ? c->expert_groups : 0;
    if (c->head_chunks < 2)
        return s;
    const int kv_heads = s.rank.kv_heads, most = (kv_heads + c->head_chunks - 1) / c->head_chunks;
    s.head_chunks = c->head_chunks;
    s.short_chunks = most * c->head_chunks - kv_heads;
    s.chunk = with_kv_heads(s.rank, most);
    return s;
}

Shape shape_unchunked(Shape s)
{
    s.head_chunks = 1, s.short_chunks = 0, s.chunk = s.rank;
    return s;
}

Heads shape_chunk(const Shape *s, bool is_short)
{
    return with_kv_heads(s->chunk, s->chunk.kv_heads - is_short);
}

int program_tensor(const Program *p)
{
    const Setting *tensor = &p->layout.tensor;
    return tensor->is_auto || tensor->value < 1 ? 1 : (int)tensor->value;
}

Shape program_shape(const Program *p) { return split(&p->model, program_tensor(p)); }
