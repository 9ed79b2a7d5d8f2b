"""What emitted programs train on and how: formats of data, mixes, loss weights, packing, evaluation, learning rates.

    python3 run_data.py --toolchain toolchain.json [--part PART] [--work FOLDER]

Parts: formats      all formats of the same tokens evaluate to the same bits
       alone        an evaluation without training takes its memory alone, with the same bits
       evaluation   loss and perplexity against transformers in float64 on the same rows, with and without loss weights
       training     loss and norm of a weighted step against transformers
       packing      packed documents against each document alone in transformers
       tables       masks over tables of documents and of the file against transformers, and balanced over 2 to 8 ranks
       mix          rows of three files against transformers, by their shares and once an epoch
       order        the same losses on any number of ranks, and where a run is resumed on another number, balanced
       schedules    learning rates against their definitions, also where a run is resumed
       refusals     files and options that are refused

Ends with 77 where torch or transformers is missing.
"""
import json
import math
import pathlib
import struct
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import emitted  # noqa: E402
import runner  # noqa: E402
from runner import require, run  # noqa: E402

SEQUENCE, VOCAB, SEPARATOR = 128, 300, 0
LOSS, NORM = 1e-6, 1e-5  # relative, fp32 on the host against float64
SAME = 1e-5  # losses of other numbers of ranks after some steps
SHAPE = types.SimpleNamespace(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=96, vocab=VOCAB, tied=False, part="")


# ---- files, written by the few lines that their formats take ----

def token_file(path, tokens, width=2, weights=None, weight_width=0, documents=(), tables=()):
    """Version 1, or 2 where there are loss weights, documents (their first tokens) or tables (names and values)."""
    body = b"".join(int(t).to_bytes(width, "little") for t in tokens)
    if not weight_width and not documents and not tables:
        path.write_bytes(b"BURSTTOK" + struct.pack("<IIQ", 1, width, len(tokens)) + body)
        return path
    blob = b"BURSTTOK" + struct.pack("<IIQIIQ", 2, width, len(tokens), weight_width, len(tables), len(documents)) + body
    blob += b"\0" * (-len(blob) % 8)
    if weight_width:
        blob += bytes(weights) if weight_width == 1 else struct.pack(f"<{len(weights)}f", *weights)
        blob += b"\0" * (-len(blob) % 8)
    blob += struct.pack(f"<{len(documents)}Q", *documents)
    for name, values in dict(tables).items():
        blob += name.encode().ljust(32, b"\0") + struct.pack(f"<{len(values)}i", *values)
        blob += b"\0" * (-len(blob) % 8)
    path.write_bytes(blob)
    return path


def megatron(folder, name, tokens, lengths, code, width, documents=None):
    """NAME.bin and NAME.idx; lengths: of the sequences; documents: the first sequence of each and the end, one sequence each otherwise."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    documents = range(len(lengths) + 1) if documents is None else documents
    (folder / f"{name}.bin").write_bytes(b"".join(int(t).to_bytes(width, "little", signed=t < 0) for t in tokens))
    (folder / f"{name}.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents)) + struct.pack(f"<{len(lengths)}i", *lengths)
        + struct.pack(f"<{len(lengths)}q", *(width * s for s in starts)) + struct.pack(f"<{len(documents)}q", *documents))
    return folder / f"{name}.bin"


class Data:
    def __init__(self, args, folder):
        import numpy
        import torch
        import reference_transformers as reference
        self.np, self.torch, self.folder = numpy, torch, folder
        self.tools = emitted.Toolchain(args.toolchain)
        self.environment = emitted.quiet_environment()
        self.random = numpy.random.default_rng(3)
        torch.manual_seed(5)
        model = reference.transformers.LlamaForCausalLM(reference.config_of(SHAPE, SEQUENCE))
        self.start = folder / "start"
        model.save_pretrained(self.start)
        self.model = model.double()

    def build(self, name, ranks=1, data=1, train="", mask="causal", steps=6, optimizer="lr 1e-3;", batch=2,
              layout="", partition="zigzag", masks="", sequence=SEQUENCE):
        s = SHAPE
        block = emitted.layout(data, ranks // data, "ring", "keys", partition if ranks > data else "contiguous")
        if "recompute" in layout:
            block = block.replace(" recompute none;", "")
        text = (f"{masks}model test {{ layers {s.layers}; hidden {s.hidden}; heads {s.heads}; kv_heads {s.kv_heads}; head_dim {s.head_dim}; "
                f"ffn swiglu {s.ffn}; rope 500000; vocab {s.vocab}; }}\nattention {{ default {mask}; }}\nsequence {sequence};\n"
                + block.replace(" }\n", f" {layout} }}\n")
                + f"train {{ steps {steps}; batch {batch}; {train} optimizer adamw {{ {optimizer} }} }}\n")
        return self.tools.link(self.tools.emit(self.folder, name, emitted.topology(1, ranks), text))

    def run(self, program, *options, keep=False):
        """Lines of the metrics."""
        metrics = self.folder / "metrics.jsonl"
        if not keep:
            metrics.unlink(missing_ok=True)
        run([program, "--quiet", "--metrics", metrics, *options], 300, self.environment, cwd=self.folder)
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def evaluate(self, program, path, *options):
        (line,) = self.run(program, "--steps", 0, "--weights", self.start, "--evaluate", path, *options)
        require(abs(line["perplexity"] / math.exp(line["evaluation_loss"]) - 1) < 1e-12, f"perplexity {line}")
        return line

    def tokens(self, n):
        return [int(t) for t in self.random.integers(1, VOCAB, n)]

    def losses(self, row, keep=None):
        """[len(row) - 1] in float64: of each token after the first, from those before it, or those that a mask keeps."""
        token = self.torch.tensor(row)
        mask = None
        if keep is not None:
            mask = self.torch.zeros(1, 1, *keep.shape, dtype=self.torch.float64).masked_fill(~keep, -math.inf)
        logits = self.model(input_ids=token[None, :-1], attention_mask=mask).logits[0]
        return self.torch.nn.functional.cross_entropy(logits, token[1:], reduction="none")

    def mean(self, tokens, weights=None, windows=None):
        """Over windows of SEQUENCE tokens, each with the label of its last token, weighted by the labels' weights."""
        weights = weights or [1] * len(tokens)
        total = count = 0
        for w in range((len(tokens) - 1) // SEQUENCE if windows is None else windows):
            part = slice(w * SEQUENCE, w * SEQUENCE + SEQUENCE + 1)
            weight = self.torch.tensor(weights[part][1:], dtype=self.torch.float64)
            total = total + (self.losses(tokens[part]) * weight).sum()
            count += weight.sum()
        return total / count, float(count)

    # ---- parts ----

    def formats(self):
        np, folder = self.np, self.folder
        program = self.build("formats")
        lengths = [60, 1, 199, 300, 80]
        tokens = self.tokens(sum(lengths))
        ids = np.array(tokens)
        of = {"token file of 2 bytes": [token_file(folder / "two.tok", tokens)], "of 4": [token_file(folder / "four.tok", tokens, 4)],
              "version 2": [token_file(folder / "v2.tok", tokens, 4, [1] * len(tokens), 1)]}
        for dtype in ("<u2", "<i2", "<u4", "<i4", "<u8", "<i8"):
            np.save(folder / f"{dtype[1:]}.npy", ids.astype(dtype))
            of[f"npy {dtype}"] = [folder / f"{dtype[1:]}.npy"]
        np.save(folder / "rows.npy", ids.reshape(20, 32).astype("<u2"))
        of["npy of rows"] = [folder / "rows.npy"]
        with open(folder / "v3.npy", "wb") as file:
            np.lib.format.write_array(file, ids.astype("<u2"), version=(3, 0))
        of["npy of version 3"] = [folder / "v3.npy"]
        with_documents = {"version 2 with documents": [token_file(folder / "v2d.tok", tokens, 2, documents=[0, 60, 61, 260, 560])]}
        for code, width in ((8, 2), (3, 2), (4, 4), (5, 8)):
            with_documents[f"Megatron-LM, type {code}"] = [megatron(folder, f"m{code}", tokens, lengths, code, width)]
        with_documents["Megatron-LM by its index"] = [folder / "m8.idx"]
        halves = [30, 30, 1, 199, 300, 80]
        with_documents["Megatron-LM, a document of two sequences"] = [megatron(folder, "m2", tokens, halves, 8, 2, [0, 2, 3, 4, 5, 6])]
        with_documents["Megatron-LM, an empty document"] = [megatron(folder, "m0", tokens, lengths, 8, 2, [0, 1, 1, 2, 3, 4, 5])]
        for width in (2, 4):
            (folder / f"raw{width}").write_bytes(ids.astype(f"<u{width}").tobytes())
            of[f"raw {width}"] = [folder / f"raw{width}", "--raw", width]
        ends = [int(i in (60, 61, 260, 560)) for i in range(len(tokens))]
        for group, weights in ((of, None), (with_documents, [1 - e for e in ends])):  # no label is of the next document
            found = {name: self.evaluate(program, *options) for name, options in group.items()}
            mean, count = self.mean(tokens, weights)
            first = next(iter(found.values()))
            for name, line in found.items():
                require(line["evaluation_loss"] == first["evaluation_loss"] and line["evaluation_tokens"] == count, f"{name}: {line}, expected {first}")
            apart = abs(first["evaluation_loss"] / mean.item() - 1)
            print(f"{len(group)} formats agree in every bit; from transformers they differ by {apart:.1e}")
            require(apart <= LOSS, f"the loss is {first}, in transformers {mean}")

    def evaluation(self):
        tokens = self.tokens(7 * SEQUENCE + 40)
        zero_one = [int(w) for w in self.random.integers(0, 2, len(tokens))]
        real = [float(self.np.float32(w)) for w in 3 * self.random.random(len(tokens))]
        files = {"plain": (token_file(self.folder / "plain.tok", tokens), None),
                 "weights of a byte": (token_file(self.folder / "w1.tok", tokens, 2, zero_one, 1), zero_one),
                 "weights of 4 bytes": (token_file(self.folder / "w4.tok", tokens, 4, real, 4), real)}
        for ranks, data in ((1, 1), (2, 1), (2, 2), (4, 2)):
            program = self.build(f"evaluation{ranks}_{data}", ranks, data)
            for name, (path, weights) in files.items():
                for windows, options in ((None, ()), (4, ("--evaluate-steps", 2))):
                    line = self.evaluate(program, path, *options)
                    mean, count = self.mean(tokens, weights, windows)
                    apart = abs(line["evaluation_loss"] / mean.item() - 1)
                    print(f"{ranks} ranks in {data} groups, {name}, {windows or 'all'} rows: relative difference {apart:.1e}")
                    require(apart <= LOSS and abs(line["evaluation_tokens"] - count) <= 1e-6 * count,
                            f"{name}: {line}, in transformers {mean.item()} of {count}")
        plain = files["plain"][0]
        program = self.build("every", 2, train=f'data "{plain}"; evaluate "{plain}" every 2 steps 2;', steps=5, optimizer="lr 1e-2;")
        lines = [line for line in self.run(program) if "evaluation_loss" in line]
        require([line["step"] for line in lines] == [2, 4, 5], f"evaluations: {lines}")
        require(lines[2]["evaluation_loss"] < lines[0]["evaluation_loss"], f"the loss does not fall: {lines}")
        kept = [line["loss"] for line in self.run(self.build("none", 2, train=f'data "{plain}";', steps=5, optimizer="lr 1e-2;"))]
        for i, layout in enumerate(("", "weights zero1;", "weights zero2;", "weights zero3_no_sync;", "gradients bf16;",
                                    "offload optimizer; update host;", "offload optimizer; update device;",
                                    "offload optimizer; update host; gradients bf16;", "offload activations;")):
            both = [[line["loss"] for line in self.run(self.build(f"layout{i}_{evaluates}", 2, 1, train, steps=4, optimizer="lr 1e-2;",
                                                                  batch=3, layout=layout)) if "loss" in line]
                    for evaluates, train in enumerate((f'data "{plain}";', f'data "{plain}"; evaluate "{plain}" every 1 steps 1;'))]
            require(both[0] == both[1], f"{layout}: an evaluation changes the training that follows: {both}")
        require(kept == [line["loss"] for line in self.run(program) if "loss" in line], "an evaluation changes the training that follows")

    def alone(self):
        """`--steps 0 --evaluate` takes the memory that is predicted for it, less than training's, and computes the
        same bits as an evaluation before the first step of a training run."""
        path = token_file(self.folder / "alone.tok", self.tokens(5 * SEQUENCE))
        layouts = ((1, 1, "", "causal"), (2, 1, "weights zero1;", "causal"), (2, 1, "weights zero2;", "window(64)"), (4, 2, "", "causal"),
                   (2, 1, "offload optimizer; update host;", "causal"), (2, 1, "offload optimizer; update device;", "causal"),
                   (2, 1, "offload activations;", "causal"), (4, 1, "recompute full; ffn chunks 2;", "window_sink(64, 4)"),
                   (2, 1, "recompute full; token chunks 2;", "causal"), (2, 1, "recompute full; token chunks 4, attention;", "causal"),
                   (2, 1, "recompute tail(0.5);", "causal"))
        for i, (ranks, data, layout, mask) in enumerate(layouts):
            program = self.build(f"alone{i}", ranks, data, f'data "{path}";', mask, steps=1, layout=layout)
            options = ("--weights", self.start, "--evaluate", path)
            (alone,) = self.run(program, "--steps", 0, *options)
            first, step, _ = self.run(program, "--steps", 1, *options, "--checkpoint", self.folder / f"alone{i}.ckpt")
            print(f"{ranks} ranks, {layout or 'weights zero3;'} {mask}: {alone['memory_bytes']:.0f} bytes, in training {step['memory_bytes']:.0f}")
            require(alone["evaluation_loss"] == first["evaluation_loss"], f"{layout}: {alone}, before training {first}")
            # a batch of a file is read into memory outside of the arena
            unused = [x["predicted_memory_bytes"] - x["memory_bytes"] for x in (alone, step)]
            require(0 <= unused[0] == unused[1] <= 3 * 4 * SEQUENCE, f"{layout}: unused {unused}: {alone}, in training {step}")
            require(alone["memory_bytes"] < step["memory_bytes"], f"{layout}: {alone}, in training {step}")
            last = self.run(program, "--steps", 0, "--resume", "--checkpoint", self.folder / f"alone{i}.ckpt", "--evaluate", path)[-1]
            after = self.run(program, "--steps", 1, *options)[-1]
            require(last["evaluation_loss"] == after["evaluation_loss"], f"{layout}: {last} of the checkpoint, {after} after training")

    def training(self):
        tokens = self.tokens(2 * SEQUENCE + 1)
        weights = [float(w > 0.4) for w in self.random.random(len(tokens))]
        path = token_file(self.folder / "step.tok", tokens, 2, [int(w) for w in weights], 1)
        mean, count = self.mean(tokens, weights)
        self.model.zero_grad()
        mean.backward()
        norm = math.sqrt(sum(float((w.grad ** 2).sum()) for w in self.model.parameters()))
        for ranks, data in ((1, 1), (2, 1), (2, 2)):
            program = self.build(f"training{ranks}_{data}", ranks, data)
            (line,) = self.run(program, "--steps", 1, "--weights", self.start, "--data", path)
            apart = abs(line["loss"] / mean.item() - 1), abs(line["norm"] / norm - 1)
            print(f"{ranks} ranks in {data} groups: relative differences of loss and norm {apart[0]:.1e} {apart[1]:.1e}")
            require(apart[0] <= LOSS and apart[1] <= NORM and line["tokens"] == count, f"{line}, in transformers {mean.item()}, {norm}")

    def packing(self):
        """Lengths that fill sequences, so that no document is cut."""
        whole, lengths = SEQUENCE, []
        for a in (whole, 96, 70, 1, 33, 64, 40):
            lengths += [a, whole - a] if a < whole else [a]
        lengths += [3 * whole, 20]  # one that fills three sequences, and what is not full
        order = [int(i) for i in self.random.permutation(len(lengths))]
        lengths = [lengths[i] for i in order]
        documents = [self.tokens(n - 1) + [SEPARATOR] for n in lengths]
        tokens = sum(documents, [])
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        total = count = 0
        for d in documents:
            for at in range(0, len(d), whole):  # the label of a cut's last token is the next piece's first
                row = d[at:at + whole + 1]
                if len(row) > 1:
                    total += self.losses(row).sum().item()
                    count += len(row) - 1
        files = {"separators": [token_file(self.folder / "pack.tok", tokens)],
                 "documents of the file": [token_file(self.folder / "documents.tok", [t or 7 for t in tokens], documents=starts)],
                 "Megatron-LM": [megatron(self.folder, "pack", tokens, lengths, 8, 2)]}
        for ranks, data in ((1, 1), (2, 1), (2, 2)):
            program = self.build(f"packing{ranks}_{data}", ranks, data, f"separator {SEPARATOR}; packed yes;", "document")
            for name, options in files.items():
                if name.startswith("documents"):  # other tokens: as many of them
                    line = self.evaluate(program, *options)
                    require(line["evaluation_tokens"] == count, f"{line}, expected {count} tokens")
                    continue
                line = self.evaluate(program, *options)
                apart = abs(line["evaluation_loss"] / (total / count) - 1)
                print(f"{ranks} ranks in {data} groups, {name}: relative difference {apart:.1e}")
                require(apart <= LOSS and line["evaluation_tokens"] == count, f"{name}: {line}, in transformers {total / count} of {count}")

    def subtrees(self, begin, end, after):
        """Fills in how many tokens of its subtree follow each token: runs of tokens, and subtrees side by side below them."""
        while begin < end:
            last = begin + 1 + int(self.random.integers(0, end - begin))
            run = begin + 1 + int(self.random.integers(0, last - begin))
            after[begin:run] = [last - 1 - i for i in range(begin, run)]
            self.subtrees(run, last, after)
            begin = last

    def tables(self):
        """Windows cut documents; what masks keep is written out here, from the file's own arrays."""
        torch, sequence = self.torch, 8 * 64  # runs of balanced partitions are tiles of 64
        n = 2 * sequence + 1
        tokens = self.tokens(n)
        documents = sorted({0, *(int(i) for i in self.random.integers(1, n, 24))})
        begin = [max(d for d in documents if d <= i) for i in range(n)]
        subtree, kind = [0] * n, [int(k) for k in self.random.integers(-2, 3, n)]
        for first, end in zip(documents, [*documents[1:], n]):
            self.subtrees(first, end, subtree)
        path = token_file(self.folder / "tables.tok", tokens, documents=documents, tables={"subtree": subtree, "kind": kind})
        weights = [float(i not in documents) for i in range(n)]
        masks = ("table kind per token;\nmask kinds = document and (kind[k] <= kind[q] or q == k);\n"
                 "mask document_window(w) = document and q - k < w;\n")
        same = [[begin[q] == begin[k] and k <= q for k in range(n)] for q in range(n)]
        # documents alone on as many ranks: run_training.py, part balanced
        kept = {"document_window(70)": (lambda q, k, at: q - k < 70, (1, 2, 4, 8)),
                "document_sink(9, 3)": (lambda q, k, at: q - k < 9 or k - max(begin[q], at) < 3, (1, 2, 4, 8)),
                "prefix_tree": (lambda q, k, at: k + subtree[k] >= q, (1, 2, 4, 8)),
                "kinds": (lambda q, k, at: kind[k] <= kind[q] or q == k, (1, 4))}
        for mask, (keeps, worlds) in kept.items():
            total = count = 0
            for at in range(0, n - 1, sequence):
                inside = range(at, at + sequence)
                keep = torch.tensor([[same[q][k] and keeps(q, k, at) for k in inside] for q in inside])
                weight = torch.tensor(weights[at + 1:at + sequence + 1], dtype=torch.float64)
                total += (self.losses(tokens[at:at + sequence + 1], keep) * weight).sum().item()
                count += weight.sum().item()
            found = []
            for ranks in worlds:
                program = self.build(f"tables_{mask.partition('(')[0]}_{ranks}", ranks, train=f'data "{path}";', mask=mask, steps=20,
                                     batch=1, partition="balanced(64)", masks=masks, sequence=sequence)
                line = self.evaluate(program, path)
                apart = abs(line["evaluation_loss"] / (total / count) - 1)
                require(apart <= LOSS and line["evaluation_tokens"] == count, f"{mask}: {line}, in transformers {total / count} of {count}")
                found.append([line["loss"] for line in self.run(program)])
            other = max(abs(a / b - 1) for losses in found for a, b in zip(losses, found[0]))
            print(f"{mask}: from transformers by {apart:.1e}; 20 losses on {', '.join(map(str, worlds))} ranks differ by {other:.1e}")
            require(all(len(losses) == 20 for losses in found) and other <= SAME, f"{mask}: {found}")
        none = self.build("no_table", mask="kinds", masks=masks.replace("kind", "colour").replace("colours", "kinds"), sequence=sequence)
        good = token_file(self.folder / "no_tables.tok", tokens)
        blob = path.read_bytes()
        (self.folder / "cut.tok").write_bytes(blob[:-4 * n])
        (self.folder / "name.tok").write_bytes(blob.replace(b"subtree", b"sub\xfftr\0"))
        (self.folder / "twice.tok").write_bytes(blob.replace(b"subtree\0", b"kind\0\0\0\0"))
        (self.folder / "many.tok").write_bytes(blob[:28] + b"\5" + blob[29:])
        cases = [([path], "a mask reads the table 'colour', which '"), ([good], "which '"), ([self.folder / "cut.tok"], "values of a table"),
                 ([self.folder / "name.tok"], "the name of table 0"), ([self.folder / "twice.tok"], "two tables are named 'kind'"),
                 ([self.folder / "many.tok"], "a token file of 5 tables, expected at most 4")]
        for options, text in cases:
            done = run([none, "--quiet", "--steps", 0, "--evaluate", *options], 60, self.environment, check=False)
            require(done.returncode == 1 and text in done.stderr, f"{options}: {done.returncode}, {done.stderr}, expected {text}")
        done = run([none, "--quiet", "--steps", 1], 60, self.environment, check=False)
        require(done.returncode == 1 and "which random tokens do not have" in done.stderr, f"{done.returncode}, {done.stderr}")

    def order(self):
        """One epoch and more of a mix of three files, packed or not."""
        lengths = [int(n) for n in self.random.integers(1, 2 * SEQUENCE, 40)]
        documents = [self.tokens(n - 1) + [SEPARATOR] for n in lengths]
        token_file(self.folder / "a.tok", sum(documents, []))
        self.np.save(self.folder / "b.npy", self.np.array(self.tokens(900), dtype="<u2"))
        (self.folder / "c.raw").write_bytes(self.np.array(self.tokens(700), dtype="<u2").tobytes())
        for packed in ("", "packed yes;"):
            train = f'data "a.tok" 0.5, "b.npy" 0.3, "c.raw" raw 2 0.2; separator {SEPARATOR}; {packed}'
            name = "packed" if packed else "mixed"
            programs = [self.build(f"{name}{ranks}_{data}", ranks, data, train, "document", 12, partition="balanced(64)")
                        for ranks, data in ((1, 1), (2, 2), (4, 2))]
            found = [[line["loss"] for line in self.run(p)] for p in programs]
            checkpoints = self.folder / f"{name}_ck"
            self.run(programs[1], "--steps", 5, "--checkpoint", checkpoints)
            resumed = self.run(programs[2], "--checkpoint", checkpoints, "--resume", keep=True)
            found.append([line["loss"] for line in resumed])
            apart = max(abs(a / b - 1) for losses in found for a, b in zip(losses, found[0]))
            print(f"{name}: losses on 1, 2 and 4 ranks, and resumed on 4, differ by {apart:.1e}")
            require(all(len(losses) == 12 for losses in found) and apart <= SAME, f"{name}: {found}")

    def mix(self):
        """Weights that do not change, one sequence a step: its loss says which row of which file it was."""
        lengths, shares = (6, 4, 3), (0.5, 0.3, 0.2)
        a, b, c = (self.tokens(n * SEQUENCE + 1) for n in lengths)
        masked = [int(w) for w in self.random.integers(0, 2, len(a))]
        token_file(self.folder / "mix_a.tok", a, 2, masked, 1)
        self.np.save(self.folder / "mix_b.npy", self.np.array(b, dtype="<u4"))
        (self.folder / "mix_c.raw").write_bytes(self.np.array(c, dtype="<u2").tobytes())
        wanted = {}
        for name, tokens, weights in (("a", a, masked), ("b", b, None), ("c", c, None)):
            for w in range((len(tokens) - 1) // SEQUENCE):
                row = slice(w * SEQUENCE, (w + 1) * SEQUENCE + 1)
                mean, count = self.mean(tokens[row], weights and weights[row])
                wanted[name, w] = (mean.item(), count)
        train = f'data "mix_a.tok" {shares[0]}, "mix_b.npy" {shares[1]}, "mix_c.raw" raw 2 {shares[2]}; weights "{self.start}";'
        for ranks in (1, 2):
            program = self.build(f"mix{ranks}", ranks, 1, train, steps=40, batch=1, optimizer="lr 1e-12; decay 0;")
            rows, most = [], 0
            for n, line in enumerate(self.run(program), 1):
                near = [row for row, (loss, count) in wanted.items() if abs(line["loss"] / loss - 1) <= LOSS and count == line["tokens"]]
                require(len(near) == 1, f"step {n} has the loss of rows {near}: {line}")
                rows += near
                most = max(most, abs(line["loss"] / wanted[near[0]][0] - 1))
                for name, share in zip("abc", shares):
                    of = sum(row[0] == name for row in rows)
                    require(abs(of - share * n) <= 1, f"{of} of {n} sequences are of {name}, whose share is {share}")
            for name, length in zip("abc", lengths):
                of = [row for row in rows if row[0] == name]
                epochs = [of[i:i + length] for i in range(0, len(of), length)]
                require(all(len(set(epoch)) == len(epoch) for epoch in epochs), f"a row of {name} comes twice in an epoch: {epochs}")
            print(f"{ranks} ranks: 40 rows of three files, from transformers by {most:.1e}")

    def schedules(self):
        lr, end, steps, warm = 3e-3, 1e-4, 20, 4
        half = {"cosine": lambda x: (1 + math.cos(math.pi * x)) / 2, "linear": lambda x: 1 - x}

        def wanted(kind, s):
            if s < warm:
                return lr * s / warm
            top = steps - 6 if kind == "wsd" else warm
            if kind == "constant" or s <= top:
                return lr
            return end + (lr - end) * half.get(kind, half["linear"])((s - top) / (steps - top))

        path = token_file(self.folder / "lr.tok", self.tokens(600))
        for kind in ("constant", "cosine", "linear", "wsd"):
            text = {"constant": "constant;", "wsd": f"wsd 0.3 to {end};"}.get(kind, f"{kind} to {end};")
            program = self.build(kind, 1, train=f'data "{path}";', steps=steps, optimizer=f"lr {lr}; warmup {warm}; {text}")
            is_ = [line["lr"] for line in self.run(program)]
            for s, value in enumerate(is_, 1):
                require(abs(value / wanted(kind, s) - 1) < 1e-7, f"{kind}: lr {value} of step {s}, expected {wanted(kind, s)}")
            self.run(program, "--steps", 16, "--checkpoint", self.folder / f"{kind}_ck")
            resumed = [line["lr"] for line in self.run(program, "--checkpoint", self.folder / f"{kind}_ck", "--resume")]
            require(resumed == is_[16:], f"{kind}: {resumed} after resuming, expected {is_[16:]}")

    def refusals(self):
        np, folder = self.np, self.folder
        program = self.build("refusals")
        tokens = self.tokens(400)
        good = token_file(folder / "good.tok", tokens)
        np.save(folder / "float.npy", np.zeros(400, dtype="<f4"))
        np.save(folder / "big.npy", np.zeros(400, dtype=">u2"))
        np.save(folder / "fortran.npy", np.asfortranarray(np.zeros((20, 20), dtype="<u2")))
        np.save(folder / "cut.npy", np.zeros(400, dtype="<u2"))
        cut = folder / "cut.npy"
        cut.write_bytes(cut.read_bytes()[:-2])
        megatron(folder, "good", tokens, [400], 8, 2)
        megatron(folder, "short", tokens[:-1], [400], 8, 2)
        megatron(folder, "float", tokens, [400], 7, 2)
        megatron(folder, "hostile", tokens, [400], 8, 2)
        blob = (folder / "hostile.idx").read_bytes()
        (folder / "hostile.idx").write_bytes(blob[:18] + b"\xff" * 8 + blob[26:])
        megatron(folder, "shuffled", tokens, [200, 200], 8, 2)
        blob = bytearray((folder / "shuffled.idx").read_bytes())
        blob[42:50], blob[50:58] = blob[50:58], blob[42:50]
        (folder / "shuffled.idx").write_bytes(blob)
        (folder / "odd").write_bytes(bytes(801))
        np.save(folder / "long.npy", np.zeros(400, dtype="<u2"))
        longer = [folder / "long.npy", megatron(folder, "long", tokens, [400], 8, 2), folder / "long.idx", token_file(folder / "long1.tok", tokens),
                  token_file(folder / "long2.tok", tokens, 2, [1] * 400, 1, [0, 5])]
        indexes = {"early": ([0, 1], "entry 1 of its documents is sequence 1 of 2, expected the end after sequence 1"),
                   "none": ([0], "entry 0 of its documents is sequence 0 of 2, expected the end after sequence 1"),
                   "late": ([1, 2], "entry 0 of its documents is sequence 1 of 2, expected sequence 0"),
                   "overlap": ([0, 2, 1, 2], "entry 2 of its documents is sequence 1 of 2, expected at least 2"),
                   "beyond": ([0, 1, 3], "entry 2 of its documents is sequence 3 of 2, expected at most 2")}
        cases = [
            ([folder / "float.npy"], "of another type"), ([folder / "big.npy"], "of another type"), ([folder / "fortran.npy"], "in Fortran's order"),
            ([cut], "gives 400 tokens, found 399"),
            ([folder / "short.bin"], "gives 400 tokens, found 399"), ([folder / "float.bin"], "no whole number"),
            ([folder / "hostile.bin"], "is truncated"), ([folder / "shuffled.bin"], "in their order"),
            ([folder / "odd", "--raw", 2], "not a multiple of the 2 bytes"), ([good, "--raw", 2], "is a token file, but is to be read as"),
            ([token_file(folder / "w.tok", tokens, 2, [2] * 400, 1)], "the loss weight of token 1 is 2, expected 0 or 1"),
            ([token_file(folder / "nan.tok", tokens, 2, [math.nan] * 400, 4)], "the loss weight of token 1 is nan"),
            ([token_file(folder / "none.tok", tokens, 2, [0] * 400, 1)], "no token of"),
            ([token_file(folder / "d.tok", tokens, documents=[0, 5, 5])], "document 2 begins at token 5"),
            ([token_file(folder / "d0.tok", tokens, documents=[3, 5])], "document 0 begins at token 3"),
        ]
        cases += [([megatron(folder, name, tokens, [200, 200], 8, 2, documents)], text) for name, (documents, text) in indexes.items()]
        for code, dtype in ((2, "i1"), (3, "<i2"), (4, "<i4"), (5, "<i8")):
            least = int(np.iinfo(dtype).min)
            ids = [*tokens[:3], -1, *[0] * 396] if code > 2 else [1, 1, 1, -1, *[0] * 396]
            np.save(folder / f"negative{code}.npy", np.array(ids, dtype=dtype))
            np.save(folder / f"least{code}.npy", np.full(400, least, dtype=dtype))
            cases += [([folder / f"negative{code}.npy"], "token 3 is -1, but the vocabulary has 300"),
                      ([folder / f"least{code}.npy"], f"token 0 is {least}, but"),
                      ([megatron(folder, f"negative{code}", ids, [400], code, np.dtype(dtype).itemsize)], "token 3 is -1, but")]
        whole = token_file(folder / "whole.tok", tokens, 2, [1.0] * 400, 4, [0, 5]).read_bytes()
        for n, text in ((100, "gives 400 tokens"), (900, "gives 400 loss weights"), (len(whole) - 1, "gives 2 documents"), (30, "unsupported")):
            (folder / f"cut{n}.tok").write_bytes(whole[:n])
            cases.append(([folder / f"cut{n}.tok"], text))
        for options, text in cases:
            done = run([program, "--quiet", "--steps", 0, "--evaluate", *options], 60, self.environment, check=False)
            require(done.returncode == 1 and text in done.stderr, f"{options}: {done.returncode}, {done.stderr}, expected {text}")
        for path in longer:
            path.write_bytes(path.read_bytes() + bytes(9))
            option = path.with_suffix(".bin") if path.suffix == ".idx" else path
            done = run([program, "--quiet", "--steps", 0, "--evaluate", option], 60, self.environment, check=False)
            size = path.stat().st_size
            require(done.returncode == 1 and f"has {size} bytes, but its header or index describes only" in done.stderr, f"{path}: {done.stderr}")
            path.write_bytes(path.read_bytes()[:-9])
        for option in ("--data", "--evaluate"):
            done = run([program, "--quiet", "--steps", 1, "--checkpoint", folder / "checkpoints", option, folder / "absent"], 60, self.environment, check=False)
            require(done.returncode == 1 and "opening the data" in done.stderr and "checkpoint" not in done.stderr, done.stderr)
        done = run([program, "--quiet", "--steps", 3, "--data", folder / "none.tok"], 60, self.environment)
        require(done.stderr.count("no token of the batch of step 1 counts in the loss") == 1 and done.stderr.count("no token") == 1, done.stderr)
        for options, text in ((["--evaluate"], "--evaluate requires a FILE"), (["--evaluate-every", 3], "--evaluate-every requires --evaluate FILE"),
                              (["--raw", 2], "--raw requires --data FILE"), (["--raw", 3, "--data", good], "expected 2|4"),
                              (["--raw", 2, "--bytes", "--data", good], "cannot be combined"),
                              (["--data", good, "--data", good], "--data was given twice"), (["--data", good, "--metrics", good], "is the same file as --data")):
            done = run([program, "--quiet", "--steps", 1, *options], 60, self.environment, check=False)
            require(done.returncode == 2 and text in done.stderr, f"{options}: {done.returncode}, {done.stderr}, expected {text}")


PARTS = ("formats", "evaluation", "alone", "training", "packing", "tables", "mix", "order", "schedules", "refusals")


def main():
    args = runner.options(__doc__, "--toolchain", parts=PARTS).parse_args()
    with runner.folder(args.work) as folder:
        data = Data(args, folder)
        return 1 if runner.run_parts({part: getattr(data, part) for part in args.part or PARTS}) else 0


if __name__ == "__main__":
    runner.end(main)
