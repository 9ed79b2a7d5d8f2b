"""bench_peers.py TOKENS HEADS KV_HEADS HEAD_DIM MASK: PyTorch's attention kernels beside `burstc bench`, which runs this.

MASK is an expression of q and k in the language of .burst, with stock masks spelled out; tables are documents, as in
burst_measure_cuda.cuh. cuDNN and FlashAttention-2 (torch SDPA) where it is `k <= q` or `true`, FlexAttention for any mask without
hash or a pattern file. bf16, random data, medians of CUDA event times. One line each: `peer NAME FORWARD BACKWARD` in seconds, or `none NAME: why`.
"""
import ast
import sys

LENGTHS = [8192, 1024, 512, 12000, 3000, 4096, 3944]
ROUNDS, WARM = 9, 3
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


def median(torch, function):
    for _ in range(WARM):
        function()
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return 1e-3 * sorted(times)[ROUNDS // 2]


def peer(torch, name, data, run):
    try:
        q, k, v = (x.detach().requires_grad_() for x in data[:3])
        out = run(q, k, v)
        forward = median(torch, lambda: run(q, k, v))
        backward = median(torch, lambda: torch.autograd.grad(out, (q, k, v), data[3], retain_graph=True))
        print(f"peer {name} {forward:.9g} {backward:.9g}", flush=True)
    except Exception as problem:  # a peer that cannot do a case is a line, not the end
        print(f"none {name}: {' '.join(str(problem).split())[:100]}", flush=True)


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

    if text in ("k <= q", "true"):
        peer(torch, "cuDNN", data, sdpa(SDPBackend.CUDNN_ATTENTION))
        peer(torch, "FlashAttention-2", data, sdpa(SDPBackend.FLASH_ATTENTION))
    try:
        run = flex(torch, text, n, heads, kv_heads)
    except Exception as problem:
        print(f"none FlexAttention: {' '.join(str(problem).split())[:100]}", flush=True)
        return
    peer(torch, "FlexAttention", data, run)


if __name__ == "__main__":
    main()
