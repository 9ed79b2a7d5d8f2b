#!/usr/bin/env python3
"""published.py BURSTC [REGEX]: published models (published.json: the fields of their config.json, but for versions, dtypes, initial values and
parts for images) are imported, and planned for 8 H100s at 128Ki tokens with tensor, recompute and offload open (of more than 20e9 weights, given).
What import refuses is a row of docs/models.md with how its one line begins; so is what the compiler refuses."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import runner  # noqa: E402
from runner import require  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TOPO = """cluster h100x8 { nodes 1 { gpus 8 of h100; } link nvlink { bandwidth 391 GB/s; latency 5 us; } }
host { memory 2 TB; pcie 55 GB/s; cores 96; }
"""
LAYOUT = "layout { data 1; schedule ring; travel keys; partition zigzag; tensor auto; recompute auto; offload auto; }\n"
FIXED = LAYOUT.replace("tensor auto; recompute auto; offload auto", "tensor 1; recompute full; offload optimizer, activations")
LARGE = 2e10  # weights of layers from which on the open search takes minutes
PAGE = (HERE.parent.parent / "docs/models.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| (import|plan) \| `([^|]+)` \|$", re.M)
REFUSED = {name: (who, line) for names, who, line in ROW.findall(PAGE) for name in names.split(", ")}


class Model:
    def __init__(self, burstc, name, config, folder):
        self.burstc, self.name, self.config, self.folder = burstc, name, config, folder / name
        self.refused, self.line = REFUSED.get(name, (None, None))

    def __str__(self):
        return self.name

    def layout(self):
        c = {**self.config, **self.config.get("text_config", {})}
        layers = c.get("num_hidden_layers", c.get("num_layers"))
        width = c.get("intermediate_size") or c["num_experts"] * c["moe_intermediate_size"]
        return FIXED if layers * c["hidden_size"] * (c["hidden_size"] * 2 + width * 3) > LARGE else LAYOUT

    def run(self, *words):
        return runner.run([self.burstc, *words], 60, cwd=self.folder, check=False)

    def check(self):
        (self.folder / "weights").mkdir(parents=True)
        (self.folder / "weights/config.json").write_text(json.dumps(self.config))
        (self.folder / "c.topo").write_text(TOPO)
        done = self.run("import", "weights")
        if self.refused == "import":
            told = re.findall("error: 'weights' cannot be imported: (.*)", done.stderr)
            require(done.returncode == 1 and len(told) == 1 and told[0].startswith(self.line), f"import says {done.stderr}")
            return "refused by import"
        require(done.returncode == 0, f"import says {done.stderr}")
        (self.folder / "m.burst").write_text(re.sub(r"sequence \S+;", "sequence 128Ki;", done.stdout) + self.layout())
        done = self.run("c.topo", "m.burst", "--emit=plan", "-Wno-missing-weights")
        if self.refused:
            require(done.returncode == 1 and self.line in done.stderr, f"the compiler says {done.stdout}{done.stderr}")
            return "refused"
        require(done.returncode == 0, f"the compiler says {done.stderr}")
        return re.search(r"^layout.*", done.stdout, re.M)[0]


def main():
    burstc = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="burst_test_") as folder:
        published = json.loads((HERE / "published.json").read_text())
        models = [Model(burstc, name, config, pathlib.Path(folder)) for name, config in published.items()
                  if re.search(sys.argv[2] if sys.argv[2:] else "", name)]
        found, failures = runner.check_all(Model.check, models)
    for model, what in found:
        print(f"{model}: {what}")
    require(all(model.name in PAGE for model in models), "docs/models.md does not name all of them")
    require(set(REFUSED) <= set(published), f"docs/models.md has rows of {sorted(set(REFUSED) - set(published))}")
    require(not failures, f"{failures} of {len(models)} models fail")


main()
