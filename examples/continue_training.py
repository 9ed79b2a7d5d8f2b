"""Continues training of a Hugging Face model at long context, with attention by burst and weights by FSDP2.

    torchrun --nproc-per-node 8 examples/continue_training.py --model FOLDER --data corpus.tok \\
        --separator 128001 --tokens 1048576 --steps 1000 --save OUT

--data is a token file (docs/runtime.md) with its documents and loss weights of 0 or 1, as `burst tokens`
writes it; where it lists no documents, a separator ends one. Attention and labels stay inside of documents. A step is one sequence of --tokens tokens that all ranks share; with --groups N it is N
of them, each shared by ranks / N. With GPUs it runs in bf16, with weights and gradients in fp32; without, on
CPUs in fp32. Every rank reads the whole model into its host's memory first.
"""
import argparse
import struct

import numpy
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers import AutoConfig, AutoModelForCausalLM

import burst
import burst.hf


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", required=True, help="a folder, or a name of the Hub")
    add("--random", action="store_true", help="draw the weights instead of reading them")
    add("--data", required=True)
    add("--separator", type=int, help="the token that ends a document where --data lists none")
    add("--tokens", type=int, required=True, help="of a sequence")
    add("--groups", type=int, default=1, help="sequences a step")
    add("--steps", type=int, default=100)
    add("--lr", type=float, default=1e-5)
    add("--warmup", type=int, default=20, help="steps until the rate is --lr")
    add("--clip", type=float, default=1.0, help="the norm to which gradients are clipped")
    add("--seed", type=int, default=1)
    add("--recompute", choices=["none", "attention", "all"], default="attention",
        help="in backward: nothing, all of a layer but attention, or all of a layer")
    add("--compile", action="store_true", help="torch.compile of each layer")
    add("--loss-rows", type=int, default=4096,
        help="rows of logits at a time; 0: all, and the model's own loss")
    add("--save", help="the folder of the trained model")
    return parser.parse_args()


class Tokens:
    """The sequences of a token file (docs/runtime.md), in an order that the seed draws anew for each epoch."""
    def __init__(self, path, length, seed):
        with open(path, "rb") as f:
            head, size = f.read(40).ljust(40, b"\0"), f.seek(0, 2)
        magic, version, width, count, weight, _, documents = struct.unpack("<8sIIQIIQ", head)
        if magic != b"BURSTTOK" or version not in (1, 2) or width not in (2, 4):
            raise SystemExit(f"{path} is not a token file: `burst tokens` writes one")
        if version == 1:
            weight = documents = 0
        at = 24 if version == 1 else 40
        types = [(f"<u{width}", count), (f"<{'f' if weight > 1 else 'u'}{weight}", count if weight else 0),
                 ("<u8", documents)]
        columns = []
        for dtype, n in types:
            end = at + numpy.dtype(dtype if n else "u1").itemsize * n
            if end > size:
                raise SystemExit(f"{path} is truncated")
            columns.append(numpy.memmap(path, dtype=dtype, mode="r", offset=at, shape=(n,)) if n else None)
            at = (end + 7) // 8 * 8
        self.tokens, self.weights, self.documents = columns
        self.path, self.length, self.seed, self.sequences = path, length, seed, count // length
        if self.sequences == 0:
            raise SystemExit(f"{path} has {count} tokens, fewer than a sequence of {length}")

    def part(self, index):
        epoch, at = divmod(index, self.sequences)
        begin = self.length * int(numpy.random.default_rng([self.seed, epoch]).permutation(self.sequences)[at])
        return slice(begin, begin + self.length)

    def __getitem__(self, index):
        return torch.from_numpy(self.tokens[self.part(index)].astype(numpy.int64))

    def labels(self, index):
        """The tokens that count in the loss."""
        labels = self[index]
        if self.weights is not None:
            weights = torch.from_numpy(self.weights[self.part(index)].astype(numpy.float32))
            if not ((weights == 0) | (weights == 1)).all():
                raise SystemExit(f"{self.path} has loss weights other than 0 and 1")
            labels[weights == 0] = burst.hf.IGNORE
        return labels

    def ends(self, index, separator):
        """[0, ..., length]: where documents end."""
        part = self.part(index)
        if self.documents is not None:
            first = self.documents[numpy.searchsorted(self.documents, part.start, "right"):
                                   numpy.searchsorted(self.documents, part.stop)]
            ends = [int(n) - part.start for n in first]
        else:
            ends = ((self[index] == separator).nonzero().flatten() + 1).tolist() if separator is not None else []
        return [0, *(end for end in ends if end < self.length), self.length]


class Loss(torch.nn.Module):
    """A rank's part of the loss, with a few rows of logits at a time: all may be the most of a step."""
    def __init__(self, model, rows):
        super().__init__()
        self.model, self.rows = model, rows
        scaled = [
            s for s in ("final_logit_softcapping", "logits_scaling", "logit_scale")
            if getattr(model.config, s, None)
        ]
        if rows and scaled:
            raise SystemExit(f"{scaled[0]} is set in the model's config: use --loss-rows 0")

    def of_rows(self, hidden, labels):
        logits = self.model.get_output_embeddings()(hidden).float()
        return torch.nn.functional.cross_entropy(logits, labels, ignore_index=burst.hf.IGNORE,
                                                 reduction="sum")

    def forward(self, inputs):
        if not self.rows:
            return self.model(**inputs).loss
        inputs = dict(inputs)
        labels, count = inputs.pop("shift_labels")[0], inputs.pop("num_items_in_batch")
        del inputs["labels"]
        hidden = self.model.get_decoder()(**inputs).last_hidden_state[0]
        parts = zip(hidden.split(self.rows), labels.split(self.rows))
        return sum(checkpoint(self.of_rows, h, l, use_reentrant=False) for h, l in parts) / count


def saving_attention(saved=None):
    """Selective checkpointing by operator name: o and lse are saved, and attention's transfers with them."""
    saved = saved or torch.ops.burst.attention.default

    def policy(context, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op == saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpoint_layers(model, more):
    """Earlier releases of transformers call it gradient checkpointing."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False, **more})


def build(o, device, mesh):
    """The model, its plan and what FSDP2 shards: layers one by one over all ranks, and the rest."""
    torch.manual_seed(o.seed)
    if o.random:
        config = AutoConfig.from_pretrained(o.model)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="burst", dtype=torch.float32)
    else:
        model = AutoModelForCausalLM.from_pretrained(o.model, attn_implementation="burst",
                                                     dtype=torch.float32)
    model = model.to(device).train()
    if o.recompute != "none":
        more = {"context_fn": saving_attention} if o.recompute == "attention" else {}
        checkpoint_layers(model, more)
    plan = burst.hf.compile(model, tokens=o.tokens, group=mesh["cp"])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    sharding = {"mesh": mesh["group", "cp"]._flatten("all")
                } | ({"mp_policy": policy} if device.type == "cuda" else {})
    for layer in model.get_decoder().layers:
        if o.compile:
            layer.compile(fullgraph=True)
        fully_shard(layer, **sharding)
    return model, plan, fully_shard(Loss(model, o.loss_rows), **sharding)


def step_of(o, plan, loss, data, index):
    """Forward and backward of this rank's rows; the mean of all groups' counted tokens."""
    cu, labels = data.ends(index, o.separator), data.labels(index)
    counts = labels != burst.hf.IGNORE
    counts[cu[:-1]] = False  # nothing comes before a document's first token
    counted = torch.tensor(float(counts.sum()), device=plan.device)
    dist.all_reduce(counted)  # of all groups, as often as a group has ranks
    count = max(float(counted), 1.0) / dist.get_world_size()  # where no token counts, the loss is 0
    inputs = burst.hf.shard(plan, {"input_ids": data[index][None], "labels": labels[None]}, cu_seqlens=cu,
                            count=count)
    part = loss(inputs)
    part.backward()
    total = part.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def save(o, model):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        model.save_pretrained(o.save, state_dict=state)


def main():
    o = options()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if ranks % o.groups:
        raise SystemExit(f"{o.groups} groups do not divide {ranks} ranks")
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (o.groups, ranks // o.groups), mesh_dim_names=("group", "cp"))
    model, plan, loss = build(o, device, mesh)
    optimizer = torch.optim.AdamW(loss.parameters(), lr=o.lr, betas=(0.9, 0.95), weight_decay=0.1)
    data = Tokens(o.data, o.tokens, o.seed)
    if rank == 0:
        print(f"{plan.layout}\nmasks: {', '.join(plan.masks)}", flush=True)
    for step in range(o.steps):
        for group in optimizer.param_groups:
            group["lr"] = o.lr * min(1, (step + 1) / o.warmup)
        mean = step_of(o, plan, loss, data, step * o.groups + mesh.get_local_rank("group"))
        norm = torch.nn.utils.clip_grad_norm_(loss.parameters(), o.clip).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}: loss {mean:.6f}, gradient norm {float(norm):.6f}", flush=True)
    if o.save:
        save(o, model)
    plan.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
