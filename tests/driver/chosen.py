"""chosen.py BURSTC [--seed N] [--count N] [--run N]: what the search chooses is what the language accepts. Small clusters of uneven nodes and
models with open layouts are drawn; the layout printed with a program, put into the model, is taken without a warning and makes the same
program, and the first of those for CPUs train a step (--run). Without --seed it is that of the day.
"""
import argparse
import datetime
import pathlib
import random
import re
import subprocess
import sys
import tempfile

DEVICE = """device core {{ arch cpu; memory {} MiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; attention forward 40 GFLOP/s; attention backward 35 GFLOP/s; }}
nic loop {{ bandwidth 80 Gb/s; latency 5 us; }}
"""
REST = """  link nvlink {{ bandwidth {} GB/s; latency 2 us; }}
}}
host {{ memory 8 GiB; pcie 8 GB/s; cores 2; }}
"""
MOST_RANKS = 12
OPEN = ("data", "context", "heads", "tensor", "partition", "shares", "schedule", "travel", "ranges", "weights", "recompute", "ffn chunks", "token chunks",
        "head chunks", "offload", "update", "fetch", "overlap")
MASKS = ("causal", "full", "window(48)", "window_sink(64, 4)", "document", "block_causal(32)", "dilated(16, 3)")


def cluster(draw, cpus):
    nodes, ranks = "", 0
    for _ in range(draw.choice((1, 1, 2, 3))):
        gpus = draw.randint(1, 6)
        count = min(draw.randint(1, 3), (MOST_RANKS - ranks) // gpus)
        if count:
            ranks += count * gpus
            nodes += f"  nodes {count} {{ gpus {gpus} of {'core' if cpus else draw.choice(('h100', 'h200'))}; nics 1 of {'loop' if cpus else 'ndr'}; }}\n"
    text = f"cluster drawn {{\n{nodes}{REST.format(draw.choice((8, 100, 400)))}"
    return text + (DEVICE.format(draw.choice((1, 2, 3, 4, 8, 1024))) if cpus else ""), ranks


def model(draw, heads, kv):
    layers = draw.randint(1, 4)
    lines = [f"model drawn {{ layers {layers}; hidden {draw.choice((24, 48, 96))}; heads {heads}; kv_heads {kv}; head_dim 32; "
             f"ffn swiglu {draw.choice((96, 192, 288))}; vocab 256; }}", 'import "masks";']
    several = f" layers {layers - 1}: {draw.choice(MASKS)};" if layers > 1 and draw.random() < 0.4 else ""
    lines += [f"attention {{ default {draw.choice(MASKS)};{several} }}", f"sequence {draw.choice((96, 128, 240, 512, 1024))};",
              f"train {{ steps 1; batch {draw.choice((1, 2, 4))}; seed 1; separator 0; }}"]
    return "\n".join(lines) + "\n"


def layout(draw, ranks, heads, kv):
    """Left open, but for tensor ranks, of which the search takes few where they are small."""
    fit = [n for n in (2, 3, 4, 6) if ranks % n == 0 and heads % n == 0 and (kv % n == 0 or n % kv == 0)]
    value = dict.fromkeys(OPEN, "auto")
    if fit and draw.random() < 0.6:
        value["tensor"] = draw.choice(fit)
    return f"layout {{ {' '.join(f'{name} {value[name]};' for name in OPEN if draw.random() < 0.5)} }}\n"


class Case:
    def __init__(self, burstc, folder, seed, number):
        draw = random.Random(f"{seed} {number}")
        self.burstc, self.folder, self.cpus = burstc, folder, draw.random() < 0.85
        topo, self.ranks = cluster(draw, self.cpus)
        kv = draw.choice((1, 2, 3, 4, 6))
        heads = kv * draw.choice((1, 2, 3, 4))
        self.model, self.open = model(draw, heads, kv), layout(draw, self.ranks, heads, kv)
        (folder / "c.topo").write_text(topo)

    def compiled(self, layout_text, name, *options):
        """burstc's end, what it says, and the program."""
        (self.folder / f"{name}.burst").write_text(self.model + layout_text)
        out = self.folder / f"{name}.{'c' if self.cpus else 'cu'}"
        out.unlink(missing_ok=True)
        done = subprocess.run([self.burstc, "c.topo", f"{name}.burst", "-o", out.name, *options], cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stderr, out.read_text() if out.exists() else ""

    def fault(self, train):
        """What is wrong; "" where nothing is, None where no layout works."""
        status, said, text = self.compiled(self.open, "open")
        if status == 1 and "proof 6 (memory)" in said:
            return None
        if status:
            return f"the search ends with {status}: {said}"
        chosen = re.search(r"^ \* (layout \{.*\})$", text, re.M).group(1)
        status, said, again = self.compiled(chosen + "\n", "given", "-Wno-few-tokens") # of the size, not of the layout
        if status or said:
            return f"{chosen}\nis not taken, or with a warning: {said}"
        if plain(text) != plain(again):
            return f"{chosen}\nmakes another program"
        return self.train() if train else ""

    def train(self):
        for command in ([self.burstc, "c.topo", "given.burst", "-o", "given"], ["./given", "--steps", "1"]):
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
            if done.returncode:
                return f"{' '.join(command)} ends with {done.returncode}: {done.stdout}{done.stderr}"
        return "" if "step 1/1" in done.stdout else f"no step: {done.stdout}"


def plain(text):
    """Without what names the files."""
    return re.sub(r"^ \* command: .*$", "", text, flags=re.M).replace("given.burst", "open.burst")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("burstc")
    parser.add_argument("--seed", default=str(datetime.date.today()))
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--run", type=int, default=1, help="programs that train")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    refused = ran = faults = 0
    for number in range(args.count):
        with tempfile.TemporaryDirectory(prefix="burst_test_") as folder:
            case = Case(args.burstc, pathlib.Path(folder), args.seed, number)
            train = case.cpus and ran < args.run
            fault = case.fault(train)
            refused += fault is None
            ran += train and fault is not None
            if fault:
                faults += 1
                print(f"case {number}: {fault}\n{(case.folder / 'c.topo').read_text()}{case.model}{case.open}", flush=True)
    print(f"{args.count} open layouts: {refused} without one that works, {ran} trained, {faults} faults")
    sys.exit(faults > 0 or refused == args.count)


main()
