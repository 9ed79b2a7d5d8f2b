/* check_products.cu: the linear layer's products against plain loops in double. */
#include "check.h"

enum { N = 77, IN = 192, OUT = 328 };

/* out[r][c] = (start or 0) + sum over i of left(r, i) * right(i, c) */
template <typename Left, typename Right>
static Doubles product(int rows, int columns, int inner, const Floats *start, Left left, Right right)
{
    Doubles out((size_t)rows * columns);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            double sum = start ? (*start)[(size_t)r * columns + c] : 0;
            for (int i = 0; i < inner; i++)
                sum += (double)left(r, i) * right(i, c);
            out[(size_t)r * columns + c] = sum;
        }
    return out;
}

static void check_forward(Check *k, const Floats &x, const Floats &w)
{
    const Floats add = random_bf16(N * OUT, 3, 2);
    auto left = [&](int r, int i) { return x[(size_t)r * IN + i]; };
    auto right = [&](int i, int c) { return w[(size_t)c * IN + i]; };
    BurstBf16 *y = (BurstBf16 *)poisoned(k, N * OUT * sizeof *y), *dx = up_bf16(k, x), *dw = up_bf16(k, w);
    MUST(k, burst_op_linear(k->g, N, IN, OUT, 1, dx, dw, NULL, y));
    compare(k, "linear", down_bf16(k, y, N * OUT), product(N, OUT, IN, NULL, left, right), BF16);
    MUST(k, burst_op_linear(k->g, N, IN, OUT, 1, dx, dw, up_bf16(k, add), y));
    compare(k, "linear, add", down_bf16(k, y, N * OUT), product(N, OUT, IN, &add, left, right), BF16);
    MUST(k, burst_op_linear(k->g, 0, IN, OUT, 1, dx, dw, NULL, y));
}

/* Of one token: rows shorter and longer than what a warp loads at a time. */
static void check_one(Check *k, int in)
{
    const Floats x = random_bf16((size_t)in, 7, 1), w = random_bf16((size_t)OUT * in, 8, 1),
                 add = random_bf16(OUT, 9, 2);
    auto left = [&](int, int i) { return x[(size_t)i]; };
    auto right = [&](int i, int c) { return w[(size_t)c * in + i]; };
    BurstBf16 *y = (BurstBf16 *)poisoned(k, OUT * sizeof *y);
    MUST(k, burst_op_linear(k->g, 1, in, OUT, 1, up_bf16(k, x), up_bf16(k, w), NULL, y));
    compare(k, "linear, one token", down_bf16(k, y, OUT), product(1, OUT, in, NULL, left, right), BF16);
    MUST(k, burst_op_linear(k->g, 1, in, OUT, 1, up_bf16(k, x), up_bf16(k, w), up_bf16(k, add), y));
    compare(k, "linear, one token, add", down_bf16(k, y, OUT), product(1, OUT, in, &add, left, right), BF16);
}

static void check_back(Check *k, const Floats &x, const Floats &w)
{
    const Floats dy = random_bf16(N * OUT, 4, 1), before = random_bf16(N * IN, 5, 3),
                 dw0 = random_floats(OUT * IN, 6, 3);
    auto dy_at = [&](int r, int i) { return dy[(size_t)r * OUT + i]; };
    auto w_at = [&](int i, int c) { return w[(size_t)i * IN + c]; };
    auto dy_turned = [&](int r, int i) { return dy[(size_t)i * OUT + r]; };
    auto x_at = [&](int i, int c) { return x[(size_t)i * IN + c]; };
    BurstBf16 *to = (BurstBf16 *)poisoned(k, N * IN * sizeof *to), *added = up_bf16(k, before),
              *d = up_bf16(k, dy);
    MUST(k, burst_op_linear_dx(k->g, N, IN, OUT, 1, d, up_bf16(k, w), to, false));
    compare(k, "linear_dx", down_bf16(k, to, N * IN), product(N, IN, OUT, NULL, dy_at, w_at), BF16);
    MUST(k, burst_op_linear_dx(k->g, N, IN, OUT, 1, d, up_bf16(k, w), added, true));
    compare(k, "linear_dx, add", down_bf16(k, added, N * IN), product(N, IN, OUT, &before, dy_at, w_at),
            BF16);
    float *dw = up(k, dw0);
    MUST(k, burst_op_linear_dw(k->g, N, IN, OUT, 1, d, up_bf16(k, x), dw));
    compare(k, "linear_dw", down(k, dw, OUT * IN), product(OUT, IN, N, &dw0, dy_turned, x_at), FP32);
}

void check_products(Check *k)
{
    const Floats x = random_bf16(N * IN, 1, 1), w = random_bf16(OUT * IN, 2, 1);
    check_forward(k, x, w);
    check_back(k, x, w);
    for (int in : {8, (int)IN, 256, 2048, 2056, 4096 + 24})
        check_one(k, in);
}
