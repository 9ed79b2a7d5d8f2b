"""Loads of experts, against Hugging Face transformers in float64: the balance loss, corrections that move, metrics.

    python3 run_loads.py --toolchain toolchain.json [--only REGEX] [--work FOLDER]

Tiny random models as in run_families.py. The balance loss and all gradients with it are those that transformers adds where config.json has
output_router_logits, on every layout: import takes it over, an export has it, and a model without it does not begin from such a folder; batches
of two sequences have the mean of two. After a step a correction has moved by the counts of the experts that transformers
chose, the export has it, and a run that another number of ranks goes on with has the same losses. Metrics have each layer's largest
load. Logits that overflow are told with their layer. Ends with 77 where torch or transformers is missing.
"""
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import run_families  # noqa: E402
import run_weights  # noqa: E402
import runner  # noqa: E402
from run_families import CASES, LAYOUTS, LOSS, SEQUENCE  # noqa: E402
from runner import require  # noqa: E402

BALANCE, RATE = 0.3, 0.0625  # the rate is exact in fp32
BALANCED = ("qwen3_moe", "mixtral", "gpt_oss", "minimax_m2", "olmoe", "qwen2_moe", "granitemoe", "ernie4_5_moe", "qwen3_5_moe", "qwen3_next",
            "granite4_h_moe")
MOVED = ("deepseek_v3", "glm4_moe", "minimax_m2", "ernie4_5_moe")
CHUNKS = (4, LAYOUTS["tensor"][1].replace("recompute none", "recompute full(2); token chunks 3"))
RANKS = {"one": LAYOUTS["one"], "ring": LAYOUTS["ring"], "ulysses": LAYOUTS["ulysses"], "tensor": LAYOUTS["tensor"], "chunks": CHUNKS,
         "groups": (2, emitted.layout(2, 1, "ring", "keys", "contiguous"))}


class Loads(run_families.Case):
    def watch(self, text):
        """[(layers, experts, top) choices] of what transformers chooses for each sequence of a text, and the model's balance loss of it."""
        import torch
        experts, top, chosen, kept = *self.sizes(), [], torch.topk
        method = torch.Tensor.topk

        def watched(x, k, *more, **named):
            found = kept(x, k, *more, **named)
            if x.shape[-1] == experts and k == top:
                chosen.append(found[1].reshape(-1, top))
            return found
        torch.topk, torch.Tensor.topk = watched, watched
        try:
            self.model64(input_ids=text)
        finally:
            torch.topk, torch.Tensor.topk = kept, method
        return chosen

    def sizes(self):
        text = self.model64.config
        names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
        experts = next(getattr(text, name) for name in names if getattr(text, name, None))
        return experts, getattr(text, "num_experts_per_tok", None) or text.moe_k

    def tokens(self):
        import torch
        token = torch.tensor(list((self.folder / "text.bin").read_bytes()))
        return [token[at:at + SEQUENCE + 1] for at in range(0, len(token) - SEQUENCE, SEQUENCE)]

    def double(self, sequences, balance=None):
        """The random model in float64, and a text of so many sequences. balance: what its config.json multiplies the loss by."""
        import torch
        model, self.config = self.draw_apart(*self.case)
        if balance:
            model.config.output_router_logits, model.config.router_aux_loss_coef = True, balance
        model.save_pretrained(self.folder / "start")
        self.model64 = model.double().train()
        (self.folder / "text.bin").write_bytes(bytes(torch.randint(0, 256, (sequences * SEQUENCE + 1,), generator=torch.Generator().manual_seed(1)).tolist()))

    def balance_of(self, token):
        """Cross entropy and balance loss of a sequence, by transformers."""
        import torch
        with self.reference().in_float64():
            out = self.model64(input_ids=token[None, :-1])
        return torch.nn.functional.cross_entropy(out.logits[0], token[1:]), out.aux_loss

    def program(self, name, moe, batch):
        ranks, layout = RANKS[name]
        text = self.model_text(layout).replace("batch 1;", f"batch {batch};")
        text = (text.replace("correction yes;", "") if "correction" in moe else text).replace("  moe {", "  moe { " + moe)
        require(not moe or "balance" not in text, f"{self.name}: import writes a balance loss that config.json lacks")
        tools = self.programs.tools
        return tools.link(tools.emit(self.folder, re.sub("\\W+", "_", moe) + name + str(batch), emitted.topology(1, ranks), text))

    def lines(self, program, *options):
        """Metrics by step."""
        path = self.folder / "metrics.jsonl"
        path.unlink(missing_ok=True)
        runner.run([program, "--quiet", "--data", self.folder / "text.bin", "--metrics", path, *options], 300, self.programs.environment)
        return [json.loads(line) for line in path.read_text().splitlines()]

    def check_balance(self):
        for sequences in (1, 2):
            self.double(sequences, BALANCE)
            parts = [self.balance_of(token) for token in self.tokens()]
            loss, balance = (sum(x) / sequences for x in zip(*parts))
            self.model64.zero_grad()
            (loss + BALANCE * balance).backward()
            part = run_weights.BIAS if any("q_proj.bias" in n for n, _ in self.model64.named_parameters()) else ""
            head_dim = getattr(self.config, "head_dim", None) or 16
            self.shape = run_weights.Shape(4, 64, 4, getattr(self.config, "num_key_value_heads", 4), head_dim, 96, 256,
                                            self.config.tie_word_embeddings, part)
            self.gradients = {part: g.float().flatten().tolist() for n, w in self.model64.named_parameters() if w.grad is not None
                              for part, g in run_families.split(self.case[0], n, w.grad, self.shape, self.config)}
            self.gradients |= {run_families.corrected(n): [0.0] * x.numel() for n, x in run_families.corrections(self.model64)}
            order = run_families.MAMBA_LAYER if hasattr(self.config, "mamba_d_state") else run_families.LAYER
            layers = [[n for part in order if (n := f"model.layers.{i}.{part}") in self.gradients] for i in range(4)]
            self.units = [["model.embed_tokens.weight"], *layers, [n for n in ("model.norm.weight", "lm_head.weight") if n in self.gradients]]
            for name in RANKS:
                if (name == "groups") <= (sequences == 2):
                    self.compare_balance(name, sequences, loss.item(), balance.item())

    def check_told(self):
        """Without the loss, or with another, a model does not begin from the folder."""
        text, tools = self.model_text(RANKS["one"][1]), self.programs.tools
        for there, said in (("", "none"), ("balance 0.25;", "balance 0.25")):
            program = tools.link(tools.emit(self.folder, "told" + there[8:9], emitted.topology(1, 1), text.replace(f"balance {BALANCE};", there)))
            told = runner.run([program, "--quiet", "--data", self.folder / "text.bin", "--weights", self.folder / "start", "--steps", 1], 60,
                              self.programs.environment, check=False)
            wanted = (f"output_router_logits is true, so that transformers adds {BALANCE} times the balance loss; the model has {said}: write "
                      f"`balance {BALANCE};` in `moe {{ ... }}`, or set the field to false")
            require(told.returncode == 2 and wanted in told.stderr, f"{self.name}: said of another balance: {told.returncode}, {told.stderr}")

    def compare_balance(self, name, sequences, loss, balance):
        checkpoints = self.folder / f"ck_{name}{sequences}"
        line, = self.lines(self.program(name, "", sequences), "--weights", self.folder / "start", "--steps", 1, "--checkpoint", checkpoints,
                           "--export", checkpoints / "export")
        left = json.loads((checkpoints / "export/config.json").read_text())
        require((left["output_router_logits"], left["router_aux_loss_coef"]) == (True, BALANCE), f"{self.name}, {name}: the export lacks its loss")
        kept = run_weights.read_checkpoint(checkpoints / "step-00000001.burst", self.shape, {n: len(g) for n, g in self.gradients.items()}, self.units)
        apart = {t: run_weights.distance([m / (1 - run_weights.BETA1) for m in run_weights.floats(kept[t][1])], g) for t, g in self.gradients.items()}
        worst, off = max(apart, key=apart.get), abs(line["balance"] / balance - 1)
        print(f"{self.name}, {name}, {sequences} sequences: balance {line['balance']:.7f}, relative difference {off:.1e}; loss "
              f"{abs(line['loss'] / loss - 1):.1e}; worst gradient {worst}, {apart[worst]:.1e}", flush=True)
        require(off <= LOSS and abs(line["loss"] / loss - 1) <= LOSS, f"{self.name}, {name}: balance {line['balance']}, {balance} in transformers")
        require(apart[worst] <= run_families.GRADIENT, f"{self.name}, {name}: the gradient of {worst} differs by {apart[worst]:.2e}")

    def check_corrections(self):
        """One step, each expert's correction: as it was, one rate up, or one down."""
        import torch
        self.double(2)
        experts, top = self.sizes()
        count = sum(torch.stack([torch.bincount(layer.flatten(), minlength=experts) for layer in self.watch(token[None, :-1])])
                    for token in self.tokens())
        start = {run_families.corrected(n): x.float() for n, x in run_families.corrections(self.model64)}
        moved = {name: x.flatten() + RATE * torch.sign(c.float().mean() - c) for (name, x), c in zip(start.items(), count)}
        loads = [(c.max() / c.double().mean()).item() for c in count]
        for name in RANKS:
            after = self.folder / f"moved_{name}"
            program = self.program(name, f"correction {RATE};", 2)
            line, = self.lines(program, "--weights", self.folder / "start", "--steps", 1, "--export", after, "--export-dtype", "f32")
            there = {run_families.corrected(n): x.float().flatten() for n, x in run_families.run_weights_tensors(after).items() if n.endswith("correction_bias")}
            require(there.keys() == moved.keys() and all(torch.equal(there[n], moved[n]) for n in moved), f"{self.name}, {name}: corrections are {there}, not {moved}")
            is_ = [load for load in line["expert_loads"] if load is not None]  # layers without experts have none
            require(len(line["expert_loads"]) == 4 and len(is_) == len(loads) and all(abs(a / b - 1) < 1e-3 for a, b in zip(is_, loads)),
                    f"{self.name}, {name}: loads are {line['expert_loads']}, not {loads}")
            print(f"{self.name}, {name}: {len(moved)} corrections moved by the counts of transformers' choices; loads {line['expert_loads']}", flush=True)

    def check_resumed(self):
        """Twelve steps, and the last eight of them by other ranks."""
        programs = {name: self.program(name, f"correction {RATE};", 2) for name in ("ring", "one", "tensor")}
        ck, start = self.folder / "resumed", ("--weights", self.folder / "start")
        right = self.lines(programs["ring"], *start, "--steps", 12)
        stays = self.lines(self.program("ring", "correction yes;", 2), *start, "--steps", 12)
        require(abs(stays[-1]["loss"] / right[-1]["loss"] - 1) > 1e-5, f"{self.name}: corrections that move make no difference")
        self.lines(programs["ring"], *start, "--steps", 4, "--checkpoint", ck)
        for name, program in programs.items():
            shutil.copytree(ck, self.folder / f"resumed_{name}")
            is_ = self.lines(program, "--steps", 12, "--resume", "--checkpoint", self.folder / f"resumed_{name}")
            apart = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(is_, right[4:]))
            print(f"{self.name}, resumed by {name}: losses differ by {apart:.1e}", flush=True)
            require(len(is_) == 8 and apart <= (0 if name == "ring" else 1e-5), f"{self.name}: resumed by {name}, losses differ by {apart:.2e}")

    def check_infinite(self):
        """A router whose logits overflow."""
        import safetensors.torch
        broken = self.folder / "broken"
        broken.mkdir()
        tensors = run_families.run_weights_tensors(self.folder / "start")
        router = tensors[next(n for n in tensors if ".2." in n and n.endswith("gate.weight"))]
        router[0] = 3e38  # finite, and its products are not
        safetensors.torch.save_file(tensors, broken / "model.safetensors", {"format": "pt"})
        (broken / "config.json").write_text((self.folder / "start/config.json").read_text())
        told = runner.run([self.program("ring", f"correction {RATE};", 2), "--quiet", "--data", self.folder / "text.bin", "--weights", broken, "--steps", 1],
                          60, self.programs.environment, check=False)
        require(told.returncode == 1 and "logits of the router in layer 2 are not finite" in told.stderr, f"logits that overflow are told as: {told.stderr}")


def main():
    args = runner.options(__doc__, "--toolchain").parse_args()
    with runner.folder(args.work) as folder:
        try:
            import torch  # noqa: F401
            import transformers
            transformers.logging.disable_progress_bar()
        except ImportError as error:
            print(f"not tested: {error}")
            sys.exit(77)
        programs = run_families.Programs(args, folder)
        for part, names, turns in (("balance", BALANCED, 5), ("corrections", MOVED, 2)):
            for name in names if args.all or args.only else runner.of_the_day(list(names), False, turns):
                if args.only and not all(re.search(word, f"{part} {name}") for word in args.only):
                    continue
                place = folder / f"{part}_{name}"
                place.mkdir()
                case = Loads(programs, name, place)
                getattr(case, f"check_{part}")()
                if name == BALANCED[0]:
                    case.check_told()
                if name == MOVED[0]:
                    case.check_resumed()
                    case.check_infinite()
    require(set(BALANCED) | set(MOVED) <= set(CASES), "a family is none of run_families.py")


if __name__ == "__main__":
    runner.end(main)
