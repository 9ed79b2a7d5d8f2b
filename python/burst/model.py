"""What burstc reads, of the arguments of burst.compile."""
import re

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TABLE = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)\s*\[")  # of a mask: doc[q]
CPU = """device core {{ arch cpu; memory {gib} GiB; hbm 20 GB/s; matmul fp32 50 GFLOP/s; }}
nic card {{ bandwidth 25 Gb/s; latency 20 us; }}
host {{ memory {host} GiB; pcie 8 GB/s; cores {cores}; }}
"""
STOCK = ["h200", "h100", "a100"]  # of devices.topo


def checked_name(name, what):
    if not NAME.fullmatch(name):
        raise ValueError(f"{what} '{name}' is not a name: letters, digits and _")
    return name


def checked_text(text, what):
    """One expression or value: what would end it belongs to no language of burstc inside of one."""
    if re.search(r"[;{}#\"\n]", text):
        raise ValueError(f"{what} '{text}' has one of ; {{ }} # \" or a line break")
    return text


def model_text(masks, tables, heads, kv_heads, head_dim, value_dim, tokens, schedule, partition, softcap, layout):
    lines = ['import "masks";']
    lines += [f"table {checked_name(t, 'table')} per token;" for t in tables]
    lines += [f"mask {checked_name(n, 'mask')} = {checked_text(e, 'mask')};" for n, e in masks.items()]
    sizes = f"heads {int(heads)}; kv_heads {int(kv_heads)}; head_dim {int(head_dim)}; value_dim {int(value_dim)}"
    lines += [f"model attention {{ {sizes}; layers {len(masks)}; }}"]
    of_layers = "".join(f" layers {i}: {n};" for i, n in enumerate(masks))
    lines += [f"attention {{{of_layers}{f' softcap {float(softcap)!r};' if softcap else ''} }}"]
    chosen = f"schedule {checked_text(schedule, 'schedule')}; partition {checked_text(partition, 'partition')};"
    lines += [f"sequence {int(tokens)};", f"layout {{ {chosen} {checked_text_layout(layout)} }}"]
    return "\n".join(lines) + "\n"


def checked_text_layout(layout):
    """More settings of the layout, as a dictionary: {"travel": "keys"}."""
    return " ".join(f"{checked_text(k, 'setting')} {checked_text(str(v), 'setting')};" for k, v in layout.items())


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
