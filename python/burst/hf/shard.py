"""From a data collator's batch, which all ranks of a plan have alike, to what each calls its model with."""
import zlib

import torch

from ..given import int32s, positive, whole
from ..group import gather_bytes

IGNORE = -100  # the label of a token that does not count, as transformers has it
TAKEN = {  # inputs that are made anew, or of no use to a rank
    "labels", "shift_labels", "attention_mask", "use_cache", "num_items_in_batch", "cu_seq_lens_q",
    "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx",
}


def starts_of(inputs, rows, length, cu_seqlens):
    """Where documents begin among rows * length tokens; padding is documents of its own."""
    position, ends = inputs.get("position_ids"), inputs.get("cu_seq_lens_q")
    begins = torch.zeros(rows, length, dtype=torch.bool)
    if cu_seqlens is not None:
        begins.view(-1)[given_starts(cu_seqlens, rows * length)] = True
    else:
        begins[:, 0] = True
        if ends is not None:
            begins.view(-1)[given_starts(ends.flatten(), rows * length)] = True
        elif position is not None and position.ndim == 2:
            position = whole_rows(position, rows, length).cpu()
            begins[:, 1:] |= position[:, 1:] != position[:, :-1] + 1
    kept = kept_tokens(inputs, rows, length)
    if kept is not None:
        cut_padding(begins.view(-1), kept.view(-1))
    return begins.view(-1).nonzero().flatten().tolist()


def cut_padding(begins, kept):
    """Documents end where padding begins, and may not go on after it."""
    document = begins.cumsum(0)
    resumed = kept[1:] & ~kept[:-1] & ~begins[1:]
    before = torch.zeros(int(document[-1]) + 1, dtype=torch.long).index_add_(0, document, kept.long())
    seen = kept.cumsum(0) - (before.cumsum(0) - before)[document]  # of the document's tokens, up to this one
    if bool((resumed & (seen[1:] > 1)).any()):
        raise ValueError("attention_mask leaves out tokens inside of a document: no mask of a plan stands for that")
    begins[1:] |= kept[1:] != kept[:-1]


def whole_rows(position, rows, length):
    """position_ids [rows, length], or [1, length] for all rows."""
    if position.shape not in ((rows, length), (1, length)):
        raise ValueError(f"position_ids is {tuple(position.shape)}, not {(rows, length)}")
    return position.expand(rows, length)


def kept_tokens(inputs, rows, length):
    """Which tokens are no padding, or None."""
    kept = inputs.get("attention_mask")
    if kept is None:
        return None
    if kept.shape != (rows, length):
        raise ValueError(f"attention_mask is {tuple(kept.shape)}, not {(rows, length)}: masks are the plan's")
    if bool(((kept != 0) & (kept != 1)).any()):
        raise ValueError("attention_mask has other values than 0 and 1: give documents as cu_seqlens or position_ids")
    return kept.bool().cpu()


def given_starts(cu_seqlens, given):
    cu = int32s(cu_seqlens, "cu_seqlens").long()
    if cu.ndim != 1 or len(cu) < 2 or int(cu[0]) != 0 or bool((cu.diff() < 0).any()):
        raise ValueError("cu_seqlens begins with 0 and never falls")
    if int(cu[-1]) != given:
        raise ValueError(f"cu_seqlens ends with {int(cu[-1])}, but the batch has {given} tokens")
    return cu[cu < given]  # documents of no token begin where the next one does


def checked_labels(inputs, name, rows, length):
    labels = inputs.get(name)
    if labels is None:
        return None
    if labels.shape != (rows, length):
        raise ValueError(f"{name} is {tuple(labels.shape)}, not {(rows, length)}")
    if labels.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} is {labels.dtype}, not torch.int64")
    return labels.long().cpu()


def next_labels(inputs, kept, begins, rows, length, tokens):
    """The label of each token of the batch: the next one; IGNORE at the end of a document and in padding."""
    labels, shifted = (checked_labels(inputs, name, rows, length) for name in ("labels", "shift_labels"))
    labels = labels if shifted is None else shifted
    if labels is None:
        return None
    if kept is not None and shifted is None:
        labels = labels.masked_fill(~kept, IGNORE)
    labels = torch.nn.functional.pad(labels.reshape(-1), (0, tokens - labels.numel()), value=IGNORE)
    if shifted is None:
        labels[torch.tensor(begins)] = IGNORE  # the first token of a document is no one's next
        labels = torch.cat([labels[1:], labels.new_tensor([IGNORE])])
    return labels


def checked_count(count):
    """What the loss is divided by; None: the batch's own."""
    if count is None:
        return None
    return positive(count.item() if torch.is_tensor(count) and count.numel() == 1 else count, "count")


def longest_of(inputs, begins, length, given, cu_seqlens):
    """The largest position that the model would see on one rank."""
    if inputs.get("position_ids") is not None:
        return int(inputs["position_ids"].max())
    if cu_seqlens is None and inputs.get("cu_seq_lens_q") is None:
        return length - 1
    return max(b - a for a, b in zip(begins, [*begins[1:], given])) - 1


def check_alike(plan, parts):
    """All ranks have the same batch, and not each its own from a data loader."""
    if plan.ranks == 1:
        return
    own = 0
    for part in parts:
        own = zlib.crc32(part.detach().cpu().contiguous().numpy().tobytes(), own)
    every = gather_bytes(plan.group, own.to_bytes(4, "little"))
    differ = [r for r in range(plan.ranks) if every[4 * r:4 * r + 4] != every[:4]]
    if differ:
        raise ValueError(f"rank {differ[0]} has another batch than rank 0: a plan's ranks need the same one")


def local_rows(batch, name, x, rows, length, pad):
    """This rank's rows of [rows, length, ...], or of positions of several kinds, [kinds, rows, length]."""
    plan, missing = batch.plan, batch.plan.tokens - rows * length
    if not torch.is_tensor(x):
        return x
    if name == "position_ids" and x.ndim == 2:
        x = whole_rows(x, rows, length)
    if name == "position_ids" and x.ndim == 3 and x.shape[1:] == (rows, length):
        flat = torch.nn.functional.pad(x.reshape(len(x), -1), (0, missing))
        return flat.to(plan.device)[:, batch.rows].unsqueeze(1)
    if x.shape[:2] != (rows, length):
        raise ValueError(f"{name} is {tuple(x.shape)}: burst.hf.shard cuts tensors [{rows}, {length}, ...]; "
                         "take it out of the batch")
    flat = x.reshape(rows * length, *x.shape[2:])
    fill = flat.new_full((missing, *flat.shape[1:]), pad)
    if name == "position_ids":
        fill = torch.arange(missing, device=flat.device, dtype=flat.dtype)
    return torch.cat([flat, fill]).to(plan.device)[batch.rows].unsqueeze(0)


def shard(plan, inputs, *, cu_seqlens=None, averaged=True, count=None, pad=0):
    """What a rank calls its model with: its rows of a batch that all ranks of the plan have alike.

    Collective. inputs: input_ids or inputs_embeds [rows, length, ...] as a data collator returns them,
    labels, position_ids, attention_mask, cu_seq_lens_q, and other tensors [rows, length, ...]. Documents:
    cu_seqlens over all rows one after the other; else the inputs' own; else where position_ids begin anew;
    else each row. Padding is a document without labels. Less than the plan's tokens are filled up by `pad`.

    The loss of the model is this rank's part. averaged: gradients are averaged over ranks afterwards, as FSDP
    and DDP do; False: they are added up. count: what the loss is divided by, instead of the counted tokens.
    """
    ids = inputs.get("input_ids", inputs.get("inputs_embeds"))
    if ids is None or ids.ndim < 2:
        raise ValueError("a batch needs input_ids [rows, length], or inputs_embeds")
    rows, length = ids.shape[:2]
    given = rows * length
    if not given:
        raise ValueError(f"the batch is {tuple(ids.shape)}: it has no tokens")
    if given > plan.tokens:
        raise ValueError(f"the batch has {given} tokens, more than the plan's {plan.tokens}")
    pad, count = whole(pad, "pad"), checked_count(count)
    begins = starts_of(inputs, rows, length, cu_seqlens)
    cu = begins + ([given] if given < plan.tokens else []) + [plan.tokens]
    labels = next_labels(inputs, kept_tokens(inputs, rows, length), begins, rows, length, plan.tokens)
    own = [torch.tensor(cu), torch.tensor([count or 0.0, averaged], dtype=torch.float64), *(x for x in (ids, labels, inputs.get("position_ids")) if x is not None)]
    check_alike(plan, own)
    batch = plan.batch(cu)
    batch.longest, batch.told_longest = longest_of(inputs, begins, length, given, cu_seqlens), False
    out = {"burst_batch": batch, "use_cache": False, "position_ids": batch.positions.unsqueeze(0)}
    for name, x in inputs.items():
        if name not in TAKEN:
            out[name] = local_rows(batch, name, x, rows, length, pad if name == "input_ids" else 0)
    if labels is not None:
        local = labels.to(plan.device)[batch.rows].unsqueeze(0)
        total = float((labels != IGNORE).sum()) if count is None else count
        out |= {"labels": local, "shift_labels": local}
        # A number, not a tensor, which FSDP2 would round to bf16.
        out["num_items_in_batch"] = (total or 1.0) / (plan.ranks if averaged else 1)
    return out
