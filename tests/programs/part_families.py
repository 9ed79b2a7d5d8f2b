"""Model families on a GPU: loss and every gradient of emitted programs beside transformers with the same weights and tokens.

The cases are those of tests/training/run_families.py, larger (hidden 256, 4 heads of 64, 512 tokens), with weights rounded to bf16.
`burstc import` writes the model, the program starts from the folder, and its gradients are the first moments after one step. The truth
is transformers in float64 on the CPU; beside it transformers in bf16 on the GPU. Where tokens choose experts, programs record their choices
(choices.cu), both are given them, and nearly all must be those that transformers makes in float64. On several GPUs the layouts that some families alone
have: norms and latents of tensor ranks, latents that travel. BURST_FAMILIES: names of cases.
"""
import array
import contextlib
import os
import pathlib
import re
import sys

import machine
import part_gradients

sys.path.insert(0, str(machine.ROOT / "tests/training"))
sys.path.insert(0, str(machine.ROOT / "tests/lib"))

LOSS_LIMIT, GRADIENT_LIMIT, PEER_LIMIT = 1e-3, 2e-2, 1.25
ALIKE = 0.99 # of the choices of experts
HIDDEN, FFN, HEAD_DIM, SEQUENCE = 256, 512, 64, 512
LATENT = dict(kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
DELTA = dict(linear_key_head_dim=64, linear_value_head_dim=64)
MAMBA = dict(mamba_d_head=64, mamba_d_state=64)  # 8 heads: twice the hidden size
MAMBA_FFN = {"GraniteMoeHybrid": dict(shared_intermediate_size=FFN), "FalconH1": dict(mamba_d_ssm=2 * HIDDEN)}
NAMES = "llama31 mistral qwen3 phi4 gemma2 gemma3 olmo3 smollm3 granite starcoder2 cohere2 glm4 nemotron phi2 pythia minicpm3 qwen3_5 granite4_h lfm2 nemotron_h nemotron_h_moe falcon_h1 olmo_hybrid"
SPLIT = "olmo2 olmo3 minicpm3 deepseek_v2"  # what several GPUs run, each in its layouts for so many


def larger(families, weights):
    """The test's cases with sizes that kernels of GPUs have."""
    import transformers
    families.SEQUENCE = SEQUENCE
    families.SIZES = families.SIZES | dict(hidden_size=HIDDEN, intermediate_size=FFN, max_position_embeddings=SEQUENCE, initializer_range=0.05)
    families.CASES = {name: (kind, {**more, **({"head_dim": HEAD_DIM} if "head_dim" in more else {}),
                                    **({"sliding_window": 128} if more.get("sliding_window") else {}),
                                    **(DELTA if "linear_key_head_dim" in more else {}), **(MAMBA | MAMBA_FFN.get(kind, {}) if "mamba_d_state" in more else {}),
                                    # all blocks, which `gradients` lets programs choose
                                    **({"dense_intermediate_size": FFN, "shared_intermediate_size": FFN, "index_head_dim": HEAD_DIM, "index_topk_blocks": 8} if "index_head_dim" in more else {}),
                                    **({"swiglu_limit": 7.0} if "swiglu_limit" in more else {}),  # the only one of transformers before 5.24
                                    **(dict(mamba_head_dim=64, ssm_state_size=64) if "ssm_state_size" in more else {}),
                                    **({**LATENT, "q_lora_rank": more["q_lora_rank"] and 96} if "kv_lora_rank" in more else {})})
                      for name, (kind, more) in families.CASES.items()}
    shape = weights.Shape
    weights.Shape = lambda layers, hidden, heads, kv_heads, head_dim, ffn, *more: shape(layers, HIDDEN, heads, kv_heads, head_dim, FFN, *more)
    save = transformers.PreTrainedModel.save_pretrained

    def save_rounded(model, *args, **options):
        for weight in model.parameters():
            weight.data = weight.data.bfloat16().float()
        return save(model, *args, **options)
    transformers.PreTrainedModel.save_pretrained = save_rounded


class Programs:
    """What run_families asks of its toolchain, with a bundle's programs for one GPU."""

    def __init__(self, m, folder):
        self.m, self.folder, self.data = m, folder, folder / "text.bin"

    def imported(self, folder):
        return self.m.run([self.m.bundle / "bin/burstc", "import", folder], f"import_{folder.parent.name}", 60)[1]

    def run(self, program, *options):
        metrics, choices = program.with_suffix(".jsonl"), choices_of(program)
        for made in (metrics, choices):
            made.unlink(missing_ok=True)
        self.m.run([program, "--quiet", "--data", self.data, "--metrics", metrics, *options], f"run_{program.name}", 120, {"BURST_CHOICES": str(choices)})
        return [float(x) for x in re.findall(r'"loss": ([0-9.e+-]+)', metrics.read_text())]


def choices_of(program):
    """The file of a program's choices: int32 [layers with experts][tokens][top]."""
    return program.with_suffix(".choices")


class Given:
    """Choices of experts in place of those that transformers makes, and the share of them that are the same."""

    def __init__(self, path, config):
        self.read, self.at, self.same, self.all = array.array("i"), 0, 0, 0
        if path.exists():
            self.read.frombytes(path.read_bytes())
        names = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
        self.experts = next((getattr(config, name) for name in names if getattr(config, name, None)), 0)

    def share(self):
        return self.same / self.all if self.all else 1

    @contextlib.contextmanager
    def used(self):
        """topk over all experts returns them, a layer a call."""
        import torch
        self.at = self.same = self.all = 0
        kept, of_tensor = torch.topk, torch.Tensor.topk

        def given(x, k, *others, **named):
            own = kept(x, k, *others, **named)
            if not self.read or x.dim() != 2 or x.shape[-1] != self.experts:
                return own
            count = x.shape[0] * k
            chosen = torch.tensor(self.read[self.at:self.at + count], device=x.device).view(-1, k).long()
            self.at += count
            self.all += count
            self.same += (chosen[:, :, None] == own[1][:, None, :]).sum().item()
            return torch.return_types.topk((x.gather(-1, chosen), chosen))
        torch.topk = torch.Tensor.topk = given
        try:
            yield
        finally:
            torch.topk, torch.Tensor.topk = kept, of_tensor
        if self.at != len(self.read):
            raise machine.Failed(f"{len(self.read)} choices were recorded, transformers makes {self.at}")


def gradients(families, case, folder, choices, dtype, device):
    """Loss, gradients and choices of transformers with the folder's weights, of the program's choices."""
    import torch
    import transformers
    kind, more = families.CASES[case.name]
    eager = {"attn_implementation": "eager"} if more.get("attn_logit_softcapping") else {}  # others leave it out
    model = getattr(transformers, families.random_exports.model_class(kind)).from_pretrained(folder / "start", dtype=dtype, **eager).to(device).train()
    model.config._experts_implementation = "eager"  # others refuse float64
    token = torch.tensor(list((folder / "text.bin").read_bytes()[:case.sequence + 1]))
    given = Given(choices, model.config)
    with given.used():
        if dtype is torch.float64:
            loss = case.reference().loss(model, folder / "text.bin", case.sequence)
        else:
            logits = model(input_ids=token[None, :-1].to(device)).logits[0].float()
            loss = torch.nn.functional.cross_entropy(logits, token[1:].to(device))
    loss.backward()
    parts = families.joined({part: g.float().cpu().flatten().tolist() for name, w in model.named_parameters() if w.grad is not None
                             for part, g in families.split(kind, name, w.grad, case.shape, model.config)})
    return loss.item(), {t: parts.get(t, g) for t, g in case.gradients.items()}, given


def peer_errors(families, case, folder, choices, loss, right):
    """Transformers in bf16 on the GPU: of the loss, and of each gradient."""
    import run_weights
    import torch
    is_, parts, _ = gradients(families, case, folder, choices, torch.bfloat16, "cuda")
    # corrections of routers are buffers, and weights that choose blocks are frozen: no gradient
    return abs(is_ / loss - 1), {t: run_weights.distance(parts[t], g) for t, g in right.items() if any(g)}


def layouts_of(families, name, gpus):
    """Those in which the case runs on so many GPUs."""
    more = families.CASES[name][1]
    chosen = ["one"] if gpus == 1 else [x for x in families.LAYOUTS if x.startswith(("tensor", "latents"))]
    return [x for x in chosen if families.LAYOUTS[x][0] == gpus and ("kv_lora_rank" in more or not x.startswith("latents"))]


def make(m, families, name):
    """The case and its folder."""
    folder = m.work / name
    folder.mkdir(exist_ok=True)
    case = families.Case(Programs(m, folder), name, folder)
    case.make()
    return case, folder


def build(m, families, case, layout):
    text = case.model_text(families.LAYOUTS[layout][1])
    source = m.emit(f"family_{case.name}_{layout}", machine.gpu_topology(1, m.gpus), text)
    return m.link(source, flags=part_gradients.recorder(m, source) if "moe " in text else ())


def check(m, families, weights, case, folder, layout, program):
    import torch
    out = folder / f"checkpoints_{layout}"
    loss = case.run(program, "--weights", folder / "start", "--steps", 1, "--checkpoint", out)
    sizes = {name: len(g) for name, g in case.gradients.items()}
    kept = weights.read_checkpoint(pathlib.Path(out) / "step-00000001.burst", case.shape, sizes, case.units)
    choices = choices_of(program)
    right_loss, right, alike = case.loss, case.gradients, 1
    if choices.exists():
        right_loss, right, given = gradients(families, case, folder, choices, torch.float64, "cpu")
        alike = given.share()
    distances = {t: weights.distance([x / (1 - weights.BETA1) for x in weights.floats(kept[t][1])], g) for t, g in right.items()}
    worst = max(distances, key=distances.get)
    peer_loss, peers = peer_errors(families, case, folder, choices, right_loss, right)
    apart = abs(loss / right_loss - 1)
    bound = max(GRADIENT_LIMIT, PEER_LIMIT * max(peers.values()))
    m.add("families", f"{case.name}, {layout}", f"loss {loss:.6f}, transformers float64 {right_loss:.6f}: {apart:.1e} (its bf16 {peer_loss:.1e}); worst gradient "
          f"{distances[worst]:.2e} ({worst}; its bf16 {max(peers.values()):.2e}){f'; {alike:.4f} of the choices' if choices.exists() else ''}",
          f"<= {LOSS_LIMIT}, {bound:.2e}", apart <= LOSS_LIMIT and distances[worst] <= bound and alike >= ALIKE)


def run(m):
    import run_families
    import run_weights
    larger(run_families, run_weights)
    made = {}
    for name in os.environ.get("BURST_FAMILIES", NAMES if m.gpus == 1 else SPLIT).split():
        try:
            made[name] = make(m, run_families, name)
        except Exception as reason:  # one family leaves the others
            m.failed("families", name, reason)
    points = [(name, layout) for name in made for layout in layouts_of(run_families, name, m.gpus)]
    for (name, layout), program in m.all(lambda point: build(m, run_families, made[point[0]][0], point[1]), points):
        try:
            if isinstance(program, machine.Failed):
                raise program
            check(m, run_families, run_weights, *made[name], layout, program)
        except Exception as reason:
            m.failed("families", f"{name}, {layout}", reason)
