"""bench_peers.py TOKENS HEADS KV_HEADS HEAD_DIM MASK: PyTorch's attention kernels beside `burstc bench`, which runs this.

MASK is an expression of q and k in the language of .burst, with stock masks spelled out; tables are documents, as in
burst_measure_cuda.cuh. cuDNN and FlashAttention-2 (torch SDPA) where it is `k <= q` or `true`, FlexAttention for any mask without
hash or a pattern file. bf16, random data, medians of CUDA event times; as there all run in turn, round by round, after the products of a layer and
without a rest: a chip that is held by its power gives each less than alone. One line each: `peer NAME FORWARD BACKWARD` in seconds, or
`none NAME: why`.
"""
import ast
import sys
import time

LENGTHS = [8192, 1024, 512, 12000, 3000, 4096, 3944]
SECONDS, LEAST_ROUNDS, SHORT = 4, 9, 4e-3 # of all rounds; what takes less than SHORT is timed several times at once
PRODUCTS, TOKENS = ((4096, 4096), (4096, 28672), (14336, 4096)), 16384 # in burst_measure_cuda.cuh: MEASURE_N, measure_shapes
FUNCTIONS = {"abs": "absolute", "min": "lowest", "max": "highest"} # of the language, and here


def absolute(x):
    return x.abs()


def lowest(x, *more):
    import torch
    for y in more:
        x = torch.where(x < y, x, y)
    return x


def highest(x, *more):
    import torch
    for y in more:
        x = torch.where(x > y, x, y)
    return x


class ToTensors(ast.NodeTransformer):
    """and, or and not of Python as those of tensors; every table is `table`. What is no mask is refused."""

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        result = node.values[0]
        for value in node.values[1:]:
            result = ast.BinOp(result, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), value)
        return result

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        return ast.UnaryOp(ast.Invert(), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Subscript(self, node):
        return ast.Subscript(ast.Name("table", ast.Load()), self.visit(node.slice), ast.Load())

    def visit_Attribute(self, node):
        raise ValueError("no mask")

    def visit_Name(self, node):
        if node.id not in ("q", "k", *FUNCTIONS):
            raise ValueError(f"{node.id} is not known here")
        return ast.Name(FUNCTIONS.get(node.id, node.id), ast.Load())


def expression(text):
    """Source of the mask as an expression on tensors q, k and table."""
    words = text.replace("/", "//").replace(" mod ", " % ").replace("true", "(q == q)").replace("false", "(q != q)")
    return ast.unparse(ast.fix_missing_locations(ToTensors().visit(ast.parse(words, mode="eval"))))


def products(torch):
    """Those of a layer, forward, to x and to the weight, as a function."""
    made = [(torch.randn(TOKENS, i, device="cuda").bfloat16(), torch.randn(i, o, device="cuda").bfloat16(),
             torch.randn(TOKENS, o, device="cuda").bfloat16()) for i, o in PRODUCTS]

    def run():
        for x, w, y in made:
            x @ w, y @ w.T, x.T @ y
    return run


def queued(torch, function, times):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        function()
    end.record()
    return begin, end


def seconds(span, times):
    return 1e-3 * span[0].elapsed_time(span[1]) / times


def medians(torch, functions):
    product, times = products(torch), []
    product()
    for one in functions:
        one()
        span = queued(torch, one, 1)
        torch.cuda.synchronize()
        times.append(1 + int(SHORT / seconds(span, 1)))
    rounds, until = [], time.monotonic() + SECONDS
    while len(rounds) < LEAST_ROUNDS or time.monotonic() < until:
        spans = []
        for one, n in zip(functions, times):
            product()
            spans.append(queued(torch, one, n))
        torch.cuda.synchronize()
        rounds.append([seconds(span, n) for span, n in zip(spans, times)])
    return [sorted(column)[len(rounds) // 2] for column in zip(*rounds)]


def none(name, problem):
    print(f"none {name}: {' '.join(str(problem).split())[:100]}", flush=True)


def prepared(torch, name, data, make):
    """Forward and backward as functions, run once; nothing where the peer cannot do the case, which is a line, not the end."""
    try:
        run = make()
        q, k, v = (x.detach().requires_grad_() for x in data[:3])
        out = run(q, k, v)
        pair = lambda: run(q, k, v), lambda: torch.autograd.grad(out, (q, k, v), data[3], retain_graph=True)
        pair[1]()
        return [(name, pair)]
    except Exception as problem:
        none(name, problem)
        return []


def flex(torch, text, n, heads, kv_heads):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    lengths = torch.tensor((LENGTHS * (n // sum(LENGTHS) + 1)))
    table = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:n].cuda()
    rule = eval("lambda table: lambda b, h, q, k: " + expression(text), globals())(table)  # a compiler of torch reads no eval in it
    blocks = create_block_mask(rule, None, None, n, n, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=blocks, enable_gqa=heads != kv_heads)


def main():
    n, heads, kv_heads, d = map(int, sys.argv[1:5])
    text = sys.argv[5]
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    torch.manual_seed(0)
    data = [torch.randn(1, h, n, d, device="cuda").bfloat16() for h in (heads, kv_heads, kv_heads, heads)]

    def sdpa(backend):
        def run(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=text == "k <= q", enable_gqa=heads != kv_heads)
        return run

    peers = []
    if text in ("k <= q", "true"):
        peers += prepared(torch, "cuDNN", data, lambda: sdpa(SDPBackend.CUDNN_ATTENTION))
        peers += prepared(torch, "FlashAttention-2", data, lambda: sdpa(SDPBackend.FLASH_ATTENTION))
    peers += prepared(torch, "FlexAttention", data, lambda: flex(torch, text, n, heads, kv_heads))
    try:
        took = medians(torch, [one for _, pair in peers for one in pair])
    except Exception as problem:
        for name, _ in peers:
            none(name, problem)
        return
    for i, (name, _) in enumerate(peers):
        print(f"peer {name} {took[2 * i]:.9g} {took[2 * i + 1]:.9g}", flush=True)


if __name__ == "__main__":
    main()
