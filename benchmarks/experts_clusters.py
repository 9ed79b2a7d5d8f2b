#!/usr/bin/env python3
"""The smallest clusters of H100s that train models with experts, as burstc predicts: a table of docs/performance.md.

    experts_clusters.py BURSTC [--only WORD] [--seconds N]

Models are imported from tests/driver/published.json. Nodes have 8 GPUs, NVLink, a card of 400 Gb/s a GPU and 2 TB of host memory; below 8
GPUs a part of one node. For each length sizes are tried from 1 GPU on, ring within a node and usp beyond, zigzag, zero3, gradients in bf16,
everything else chosen by burstc: without offloading, and where that does not fit with activations, the optimizer or both in the host's
memory, of which the fastest counts. A row for the smallest size that fits, and one for twice as many GPUs. `gathered`: two layers' weights
and the sums of two layers' gradients, which each GPU has beside its shard. No GPU is needed; a row takes up to some minutes.
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS, LENGTHS, SIZES = ("Qwen3-30B-A3B", "gpt-oss-120b", "Qwen3-235B-A22B"), ("128Ki", "1Mi"), (1, 2, 4, 8, 16, 32, 64, 128)
OFFLOADS = ("", "offload activations;", "offload optimizer;", "offload activations, optimizer;")


def cluster(gpus):
    nodes, each = max(1, gpus // 8), min(gpus, 8)
    return (f"cluster h100s {{ nodes {nodes} {{ gpus {each} of h100; nics {each} of ndr; }} link nvlink {{ bandwidth 391 GB/s; latency 5 us; }} }}\n"
            f"nic ndr {{ bandwidth 400 Gb/s; latency 5 us; }}\nhost {{ memory {2000 * each // 8} GB; pcie 55 GB/s; cores {12 * each}; }}\n")


class Model:
    def __init__(self, burstc, name, folder, seconds):
        self.burstc, self.name, self.folder, self.seconds = burstc, name, folder, seconds
        config = json.loads((ROOT / "tests/driver/published.json").read_text())[name]
        (folder / "config.json").write_text(json.dumps(config))
        text = subprocess.run([burstc, "import", folder], capture_output=True, text=True, check=True).stdout
        self.text = 'import "masks";\n' + re.sub(r"^(sequence|train) .*\n", "", text, flags=re.M)

    def form(self, form, gpus, length, layout):
        """NULL where no layout fits."""
        (self.folder / "c.topo").write_text(cluster(gpus))
        (self.folder / "m.burst").write_text(f"{self.text}sequence {length};\n{layout}\n")
        try:
            done = subprocess.run([self.burstc, "c.topo", "m.burst", f"--emit={form}"], cwd=self.folder, capture_output=True, text=True,
                                  timeout=self.seconds, check=False)
        except subprocess.TimeoutExpired:
            print(f"# {self.name}, {gpus} GPUs, {length}, {layout}: more than {self.seconds} s", flush=True)
            return None
        return done.stdout if done.returncode == 0 else None

    def best(self, gpus, length):
        """The costs of the fastest, as text."""
        schedule, found = "usp" if gpus > 8 else "ring", []
        alone = "" if gpus == 1 else f"schedule {schedule}; travel keys; partition zigzag; weights zero3; "
        for offload in OFFLOADS:
            text = self.form("cost", gpus, length, f"layout {{ data 1; {alone}gradients bf16; {offload} }}")
            if text:
                found.append((float(re.search(r"^step ([\d.]+) ms", text, re.M)[1]) / 1e3, text))
            if text and not offload:
                break
        return min(found, default=None)

    def row(self, gpus, length, seconds, text):
        layout = re.search(r"^layout .*$", text, re.M)[0]
        memory = self.form("memory", gpus, length, layout) or ""
        sizes = re.findall(r"^ +([\d.]+) ([GM])iB  (?:weight|grad) \[unit\]", memory, re.M)
        gathered = sum(float(size) / (1 if unit == "G" else 1024) for size, unit in sizes)
        held = f"{gathered:.1f}" if gathered else "–"  # where memory is fullest elsewhere
        tokens = int(length[:-2]) << {"Ki": 10, "Mi": 20}[length[-2:]]
        exposed = dict.fromkeys(("gathers and reductions", "host copies"), 0.0)
        for name in exposed:
            line = re.search(rf"^  exposed {name} .* ([\d.,]+)$", text, re.M)
            exposed[name] = float(line[1].replace(",", "")) / 1e3 if line else 0.0
        attention = sum(float(ms.replace(",", "")) for ms in re.findall(r"^  attention .* ([\d.,]+)$", text, re.M)) / 1e3
        short = re.sub(r"layout \{ data 1; | \}$|travel keys; |partition zigzag; |weights zero3; |gradients bf16; |schedule (?=ring|usp)", "", layout)
        need = re.search(r"memory ([\d.]+) GiB a rank", text)[1]
        return (f"| {self.name} | {length} | {gpus} | {short.rstrip('; ')} | {seconds:.1f} s | {tokens / seconds / gpus:.0f} | {need} ({held}) | "
                f"{100 * exposed['gathers and reductions'] / seconds:.1f} % | {100 * exposed['host copies'] / seconds:.1f} % | "
                f"{100 * attention / seconds:.1f} % |")

    def rows(self, length):
        smallest = next((i for i, gpus in enumerate(SIZES) if self.best(gpus, length)), None)
        if smallest is None:
            print(f"| {self.name} | {length} | more than {SIZES[-1]} | | | | | | | |", flush=True)
            return
        for gpus in SIZES[smallest:smallest + 2]:
            found = self.best(gpus, length)
            if found:
                print(self.row(gpus, length, *found), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("burstc", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--only", default="", help="models whose names, with the length, have this word")
    parser.add_argument("--seconds", type=float, default=300, help="that one layout may take; then it counts as none")
    args = parser.parse_args()
    print("| model | tokens | H100s | layout | step | tokens/s/GPU | memory, GiB (gathered) | gathers exposed | host copies exposed | "
          "attention's transfers exposed |\n" + "|---" * 10 + "|")
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            model = Model(args.burstc, name, pathlib.Path(folder), args.seconds)
            for length in LENGTHS:
                if args.only in f"{name} {length}":
                    model.rows(length)


if __name__ == "__main__":
    main()
