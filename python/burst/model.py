"""What burstc reads, of the arguments of burst.compile."""
import collections
import pathlib
import re

from .given import positive, whole

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SELECTION = re.compile(r"\s*top\b")  # in place of an expression: top 8 of k / 64 by ...
TABLE = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)\s*\[")  # of a mask: doc[q]
FILE = re.compile(r'\bfile\s*"([^"\n]*)"')  # of a mask: file "pattern.txt" at (q / 64, k / 64)
CPU = """device core {{ arch cpu; memory {gib} GiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; }}
nic card {{ bandwidth 25 Gb/s; latency 20 us; }}
host {{ memory {host} GiB; pcie 8 GB/s; cores {cores}; }}
"""
STOCK = ["h200", "h100", "a100"]  # of devices.topo


Pattern = collections.namedtuple("Pattern", "path text")


def checked_name(name, what):
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"{what} '{name}' is not a name: letters, digits and _")
    return name


def checked_text(text, what):
    """One expression or value: what would end it belongs to no language of burstc inside of one."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is {text!r}, not a text")
    if re.search(r"[;{}#\"\n]", FILE.sub("", text)):
        raise ValueError(f"{what} '{text}' has one of ; {{ }} # \" or a line break; the only text in quotes is a file's name, as in "
                         "`file \"pattern.txt\" at (q / 64, k / 64)`")
    return text


def with_patterns(masks):
    """The masks with files named as they are beside the model, and these: by name, where they were, what is in them."""
    names, patterns = {}, {}

    def name_of(found):
        path = found.group(1)
        if path not in names:
            names[path] = f"pattern{len(names)}.txt"
            patterns[names[path]] = Pattern(path, pathlib.Path(path).read_bytes())
        return f'file "{names[path]}"'

    return {mask: FILE.sub(name_of, checked_text(text, f"mask {mask}")) for mask, text in masks.items()}, patterns


def tables_of(masks):
    return sorted({name for mask in masks.values() for name in TABLE.findall(FILE.sub("", mask))})


def model_text(masks, tables, heads, head_dim, tokens, kv_heads, value_dim, schedule, partition, softcap, layout):
    if not masks:
        raise ValueError("masks is empty: give one mask at least")
    if isinstance(tables, str):
        raise ValueError(f"tables is '{tables}'; it is a list of names")
    kv_heads, value_dim = heads if kv_heads is None else kv_heads, head_dim if value_dim is None else value_dim
    counts = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "value_dim": value_dim}
    sizes = "; ".join(f"{name} {whole(n, name, 1)}" for name, n in counts.items())
    lines = ['import "masks";']
    lines += [f"table {checked_name(t, 'table')} per token;" for t in tables]
    lines += [f"{'select' if SELECTION.match(e) else 'mask'} {checked_name(n, 'mask')} = {checked_text(e, f'mask {n}')};" for n, e in masks.items()]
    lines += [f"model attention {{ {sizes}; layers {len(masks)}; }}"]
    of_layers = "".join(f" layers {i}: {n};" for i, n in enumerate(masks))
    none = softcap is None or not isinstance(softcap, bool) and softcap == 0
    cap = "" if none else f" softcap {positive(softcap, 'softcap')!r};"
    lines += [f"attention {{{of_layers}{cap} }}"]
    chosen = f"schedule {checked_text(schedule, 'schedule')}; partition {checked_text(partition, 'partition')};"
    lines += [f"sequence {whole(tokens, 'tokens', 1)};", f"layout {{ {chosen} {checked_text_layout(layout)} }}"]
    return "\n".join(lines) + "\n"


def checked_text_layout(layout):
    """More settings of the layout, as a dictionary: {"travel": "keys"}."""
    return " ".join(f"{checked_text(k, 'setting')} {checked_text(str(v), f'setting {k}')};" for k, v in layout.items())


def cluster_text(sizes, device_name=None):
    """Of ranks by host; device_name: of the GPU, None: CPUs."""
    several = len(sizes) > 1
    if device_name is None:
        device, rest = "core", CPU.format(gib=4096, host=4096 * max(sizes), cores=max(sizes))
        nics = " nics 1 of card;" if several else ""
    else:
        found = [d for d in STOCK if d in device_name.lower()]
        if not found:
            raise ValueError(f"no figures are known for '{device_name}': give cluster=, a file that `burstc probe gpus` writes")
        device, rest, nics = found[0], "", " nics 1 of card;" if several else ""
        rest = "nic card { bandwidth 400 Gb/s; latency 10 us; }\n" if several else ""
    nodes = " ".join(f"nodes 1 {{ gpus {n} of {device};{nics} }}" for n in sizes)
    if len(set(sizes)) == 1:
        nodes = f"nodes {len(sizes)} {{ gpus {sizes[0]} of {device};{nics} }}"
    link = "bandwidth 10 GB/s; latency 2 us" if device_name is None else "bandwidth 450 GB/s; latency 2 us"
    return f"cluster here {{ {nodes} link nvlink {{ {link}; }} }}\n{rest}"
