"""Programs that infer against transformers in float64: logits of every token, and greedy tokens.

    python3 run_infer.py --toolchain toolchain.json [--only REGEX] [--work FOLDER]

Each case is a tiny model with random weights (run_families.py), or one that burstc's program trained on a text first (`trained_...`). burstc compiles it with `infer`, on 1, 2 and 4 ranks and in several
layouts, and the program continues prompts of one token, at each length's edge and longer than windows. All logits are compared with one
forward of transformers over the prompt and the tokens that the program chose; these must be transformers' greedy choice, or one whose logit
is as great within the bound. The bound is 1e-5 of the greatest logit. With recurrent layers, whose state carries rounding from token to token,
it is more at tokens that are ill-conditioned: at each token what transformers' own fp32 differs from its float64, or ROUNDINGS times what
its float64 differs after each weight moved by at most half an ulp of fp32, the most of MOVES draws. A run tests some of the families and layouts, by the day; BURST_TEST_ALL=1 all. Ends with 77 where torch or
transformers is missing.
"""
import contextlib
import datetime
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import run_families  # noqa: E402
import runner  # noqa: E402
from runner import require  # noqa: E402

LOGITS = 1e-5  # of the greatest logit, fp32 on the host against float64
ROUNDINGS, MOVES = 8, 4  # an evaluation in fp32 differs by three such moves at the median of tokens
LENGTHS, TOKENS = (8, 64), 64
PROMPTS = (1, 8, 9, 30, 64)  # tokens
LAYOUTS = {  # ranks, layout
    "one": (1, ""),
    "one_chunks": (1, "token chunks 3;"),
    "ring": (4, "context 4; schedule ring; partition zigzag; travel keys;"),
    "two": (2, "context 2; schedule burst; partition striped; travel queries;"),
    "ulysses": (4, "context 1; heads 4; schedule ulysses; partition contiguous;"),
    "usp": (4, "context 2; heads 2; schedule usp; partition zigzag; travel keys;"),
    "gather": (2, "context 2; schedule gather; partition contiguous; travel keys;"),
    "double": (4, "context 2 x 2; schedule double_ring; partition zigzag; travel keys;"),
    "tensor": (4, "context 2; tensor 2; schedule ring; partition zigzag; travel keys;"),
    "tensor_two": (2, "context 1; tensor 2;"),
    "tensor_four": (4, "context 1; tensor 4;"),
    "ring_split": (4, "context 4; schedule ring; partition zigzag; travel keys;"),
    "tensor_split": (4, "context 2; tensor 2; schedule ring; partition zigzag; travel keys;"),
    "queries": (2, "context 2; schedule ring; partition zigzag; travel keys; token chunks 2, attention;"),
}
TRAVELS = "weights zero3;"  # gathered layer by layer
# for the token after a prompt alone; or each rank multiplies those that follow by its slices, and vocabularies, widths and experts do not
# divide by three ranks
LAYOUTS |= {name: (LAYOUTS[of][0], LAYOUTS[of][1] + TRAVELS) for name, of in
            {"gathered": "ring", "tensor_gathered": "tensor", "slices": "ring", "ulysses_slices": "ulysses", "two_slices": "two",
             "gather_slices": "gather", "tensor_slices": "tensor", "tensor_two_slices": "tensor_two", "tensor_four_slices": "tensor_four",
             "queries_slices": "queries"}.items()}
LAYOUTS["three_slices"] = (3, "context 3; schedule ring; partition contiguous; travel keys; weights zero3;")
SEVERAL = [name for name in LAYOUTS if name != "one"]
TRAINED = {"trained_llama31": "llama31", "trained_gemma2": "gemma2"}  # name: what it is before
TRAINED_STEPS = 40
NAMES = ("llama31", "mistral", "qwen2_window", "qwen3", "phi3", "olmo2", "olmo3", "glm4", "gemma2", "gemma3", "stablelm_bias", "starcoder2",
         "cohere2", "phi2", "pythia", "deepseek_v2", "minicpm3", "granite", "smollm3", "qwen3_moe", "mixtral", "granite_code",
         "qwen3_5", "granite4_h", "lfm2", "qwen3_next", "qwen3_5_moe", "nemotron_h", "nemotron_h_bias", "nemotron_h_moe", "olmo_hybrid", "olmo_hybrid_rope", "granite4_h_moe", "gpt_oss", "hunyuan_moe", "hunyuan_dense", "falcon_h1", "falcon_h1_norm", "deepseek_v2_moe", "deepseek_v3", "glm4_moe_lite",
         *TRAINED)
LEAST_RECURRENT = 32  # tokens of a recurrent model's shortest length: pieces of four ranks have the rows of a convolution
TURNS = 4  # runs until every family was tested


def tokens_of(layout):
    return 1 if "gathered" in layout else TOKENS


def is_recurrent(name):
    more = run_families.CASES[TRAINED.get(name, name)][1]
    return any(word in more for word in ("linear_key_head_dim", "mamba_d_state", "ssm_state_size", "conv_L_cache"))


def has_layout(name, layout):
    """Recurrent layers have no runs of striped tokens to scan, and key heads that tensor ranks do not divide are not split."""
    kind, more = run_families.CASES[TRAINED.get(name, name)]
    heads = more.get("linear_num_key_heads", more.get("mamba_n_groups", more.get("n_groups", 1)))
    tensor = int((re.search(r"tensor (\d+)", layout) or "11")[1])
    return not is_recurrent(name) or ("striped" not in layout and (heads % tensor == 0 or kind == "Lfm2"))


class Case(run_families.Case):
    trained = False

    @property
    def lengths(self):
        return [max(n, LEAST_RECURRENT) if is_recurrent(self.name) else n for n in LENGTHS]

    def make(self):
        import torch
        kind, more = self.case
        model, _ = self.draw(kind, more, sum(map(ord, self.name)))
        model.save_pretrained(self.folder / "start")
        if self.described:
            import described_code
            described_code.write(kind, self.folder / "start")
        self.reference_model = model.double().eval()
        self.prompts = [torch.randint(0, 256, (n,)).tolist() for n in sorted({*PROMPTS, self.lengths[0], self.lengths[0] + 1})]

    def train(self):
        """The start becomes what a program makes of it in some steps on a text of bytes."""
        data, start, trained = self.folder / "text", self.folder / "start", self.folder / "trained"
        data.write_bytes(pathlib.Path(__file__).read_bytes())
        text = re.sub(r"steps \d+;", f"steps {TRAINED_STEPS};", self.programs.imported(start))
        program = self.programs.tools.link(self.programs.tools.emit(self.folder, "train", emitted.topology(1, 2), text))
        runner.run([program, "--quiet", "--weights", start, "--data", data, "--bytes", "--steps", TRAINED_STEPS, "--export", trained,
                    "--export-dtype", "f32"], 300, self.programs.environment, cwd=self.folder)
        for file in trained.glob("*"):
            file.replace(start / file.name)
        model = type(self.reference_model).from_pretrained(start, torch_dtype="float32")
        model.config._attn_implementation = self.reference_model.config._attn_implementation
        self.reference_model = model.double().eval()
        self.prompts = [list(data.read_bytes()[100 * n:101 * n]) for n in map(len, self.prompts)]

    def text(self, name):
        text = self.programs.imported(self.folder / "start")
        text = re.sub(r"sequence \S+;.*\n", "", text[:text.index("train {")])
        lengths = ", ".join(map(str, self.lengths))
        return text + f'layout {{ {LAYOUTS[name][1]} }}\ninfer {{ weights "{self.folder / "start"}"; lengths {lengths}; tokens {tokens_of(name)};{" products split;" * ("split" in name)} }}\n'

    def wanted(self, tokens):
        """[len(tokens)][vocab] in float64."""
        import torch
        with torch.no_grad(), self.reference().in_float64() if is_recurrent(self.name) else contextlib.nullcontext():
            return self.reference_model(input_ids=torch.tensor([tokens], device=self.reference_model.device)).logits[0].cpu()

    def single(self, tokens):
        """The same in fp32."""
        import copy
        import torch
        model = copy.deepcopy(self.reference_model).float()
        with torch.no_grad():
            return model(input_ids=torch.tensor([tokens], device=model.device)).logits[0].double().cpu()

    def moved(self, tokens):
        """The same in float64, MOVES times, with each weight moved at random by at most half an ulp of fp32."""
        import copy
        import torch
        draws = torch.Generator().manual_seed(len(tokens))
        for _ in range(MOVES):
            model = copy.deepcopy(self.reference_model)
            with torch.no_grad(), self.reference().in_float64():
                for weight in model.parameters():
                    by = 2 * torch.rand(weight.shape, generator=draws, dtype=torch.float64) - 1
                    weight.mul_(1 + 2 ** -24 * by.to(weight.device))
                yield model(input_ids=torch.tensor([tokens], device=model.device)).logits[0].cpu()

    def rounding(self, tokens, first, wanted):
        """[tokens from `first` on] what rounding to fp32 alone changes, of the greatest logit."""
        import torch
        def apart(logits):
            return (logits[first:] - wanted).abs().max(-1).values / wanted.abs().max(-1).values
        moved = [ROUNDINGS * apart(logits) for logits in self.moved(tokens)]
        return torch.stack([apart(self.single(tokens)), *moved]).max(0).values

    def compare(self, prompt, lines, layout):
        import torch
        chosen, last = lines[:-1], lines[-1]
        count = tokens_of(layout)
        require(len(chosen) == count and last["tokens"] == count, f"{self.name}, {layout}: {last}, expected {count} tokens")
        require(last["length"] == min(n for n in self.lengths if n >= len(prompt)), f"{self.name}, {layout}: a prompt of {len(prompt)} tokens: {last}")
        tokens = [line["token"] for line in chosen]
        wanted = self.wanted(prompt + tokens[:-1])[len(prompt) - 1:]
        apart = (torch.tensor([line["logits"] for line in chosen], dtype=torch.float64) - wanted).abs().max(-1).values / wanted.abs().max(-1).values
        behind = (wanted.max(-1).values - wanted[range(count), tokens]) / wanted.abs().max(-1).values
        over = apart / LOGITS
        if over.max() > 1 and is_recurrent(self.name):
            rounding = self.rounding(prompt + tokens[:-1], len(prompt) - 1, wanted)
            over = apart / rounding.clamp(min=LOGITS)
            print(f"{self.name}, {layout}, prompt of {len(prompt)}: logits differ by {apart.max():.2e}, {over.max():.2f} of what rounding may change")
        require(over.max() <= 1, f"{self.name}, {layout}, prompt of {len(prompt)}: logits differ by {apart[over.argmax()]:.2e} at token "
                                 f"{over.argmax()}; first {apart[0]:.2e}")
        require(behind.max() <= LOGITS, f"{self.name}, {layout}, prompt of {len(prompt)}: token {behind.argmax()} is {behind.max():.2e} behind")
        return apart.max().item(), int((behind > 0).sum())

    def check(self, layouts):
        self.make()
        if self.trained:
            self.train()
        for name in layouts:
            ranks, _ = LAYOUTS[name]
            tools = self.programs.tools
            program = tools.link(tools.emit(self.folder, f"i_{name}", emitted.topology(1, ranks), self.text(name)))
            asked = "".join(json.dumps({"prompt": prompt, "logits": True}) + "\n" for prompt in self.prompts)
            (self.folder / "prompts").write_text(asked)
            done = runner.run([program, "--prompts", self.folder / "prompts"], 300, self.programs.environment)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            found = [self.compare(prompt, [line for line in lines if line["prompt"] == i], name) for i, prompt in enumerate(self.prompts)]
            print(f"{self.name}, {name}: logits of {len(self.prompts)} prompts differ by at most {max(f[0] for f in found):.1e}, "
                  f"{sum(f[1] for f in found)} tokens another of two equal ones", flush=True)


def chosen(args):
    """[(case, layouts)]: a quarter of the families, each on one rank and in two more layouts."""
    for i, name in enumerate(NAMES):
        several = [layout for layout in SEVERAL if has_layout(name, LAYOUTS[layout][1]) and re.search(args.layouts, layout)]
        if args.all or args.only:
            if all(re.search(word, name) for word in args.only):
                yield name, ["one", *several]
        elif i % TURNS == args.turn % TURNS:
            at = i // TURNS + args.turn
            yield name, ["one", *(several[(2 * at + k) % len(several)] for k in range(2))]


def case_of(programs, name, folder):
    case = Case(programs, TRAINED.get(name, name), folder)
    case.trained = name in TRAINED
    return case


def main():
    options = runner.options(__doc__, "--toolchain")
    options.add_argument("--turn", type=int, default=datetime.date.today().toordinal(), help="which families, and which layouts")
    options.add_argument("--layouts", default="", help="with --only: those whose names match, and one rank")
    args = options.parse_args()
    print(f"turn {args.turn}", flush=True)
    with runner.folder(args.work) as folder:
        try:
            import torch  # noqa: F401
            import transformers
            transformers.logging.disable_progress_bar()
        except ImportError as error:
            print(f"not tested: {error}")
            sys.exit(77)
        programs = run_families.Programs(args, folder)
        for name, layouts in chosen(args):
            (folder / name).mkdir(exist_ok=True)
            case_of(programs, name, folder / name).check(layouts)


if __name__ == "__main__":
    runner.end(main)
