"""transformers: `attn_implementation="burst"`, known once this module is imported. docs/python.md.

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="burst")
    plan = burst.hf.compile(model, tokens=131072)          # masks by layer, heads, softcap: from model.config
    model(**burst.hf.shard(plan, batch)).loss.backward()   # batch: of all ranks, alike on each
"""
import zlib

import torch
import torch.distributed as dist
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from .group import gather_bytes
from .ops import attention, refuse
from .plan import compile as compile_plan

NAME = "burst"
IGNORE = -100  # the label of a token that does not count, as transformers has it
ABSENT = object()

# ---- what a model's config says ----

DOCUMENT = "causal and doc[q] == doc[k]"
MASKS = {  # by layer type: the mask, and the setting that it reads
    "full_attention": (DOCUMENT, None),
    "sliding_attention": (DOCUMENT + " and q - k < {}", "sliding_window"),
    "chunked_attention": (DOCUMENT + " and position[q] / {0} == position[k] / {0}", "attention_chunk_size"),
}
# Settings that change which pairs attend, and that no mask above stands for.
REFUSED = ("use_bidirectional_attention", "is_encoder_decoder")


def decoder_config(model):
    """Of a model or a config: that of its text decoder."""
    config = getattr(model, "config", model)
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def layer_types(config):
    """One for each layer. Models without `layer_types` have a window in all layers or in none."""
    types = getattr(config, "layer_types", None)
    if types:
        return list(types)
    one = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
    return [one] * config.num_hidden_layers


def mask_of(config, kind):
    """The mask of a layer type, as burstc reads it."""
    if kind not in MASKS:
        raise ValueError(f"layers of type '{kind}' cannot be trained with attn_implementation=\"{NAME}\": a rank's rows are no run "
                         f"of tokens, and only {', '.join(MASKS)} is attention between ranks")
    text, setting = MASKS[kind]
    size = getattr(config, setting, None) if setting else None
    if setting and not size:
        raise ValueError(f"the config has layers of type '{kind}', but no {setting}")
    return text.format(size)


def check_model(model, config):
    for setting in REFUSED:
        if getattr(config, setting, None):
            raise ValueError(f"{setting} is set in the config: only causal decoders are supported")
    if getattr(config, "attention_dropout", 0):
        raise ValueError(f"attention_dropout is {config.attention_dropout}: there is no dropout in burst's attention; set it to 0")
    if hasattr(model, "_can_set_attn_implementation") and not model._can_set_attn_implementation():
        raise ValueError(f"{type(model).__name__} does not call attention through transformers' AttentionInterface")


def head_sizes(config):
    """heads, kv_heads and head_dim. MLA's config has another head_dim than its attention."""
    heads = config.num_attention_heads
    dim = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None) or config.hidden_size // heads
    return {"heads": heads, "kv_heads": getattr(config, "num_key_value_heads", None) or heads, "head_dim": dim}


def compile(model, *, tokens, group=None, **options):
    """burst.compile for a transformers model, or its config: masks by layer, heads and softcap are the config's. Collective.

    tokens: of a batch, on all ranks together. options: those of burst.compile; heads, kv_heads and head_dim for models whose
    attention has others than their config says.
    """
    config = decoder_config(model)
    check_model(model, config)
    types = layer_types(config)
    masks = {kind: mask_of(config, kind) for kind in dict.fromkeys(types)}
    softcap = getattr(config, "attn_logit_softcapping", None) or 0.0
    plan = compile_plan(masks, tokens=tokens, group=group, softcap=softcap, **{**head_sizes(config), **options})
    plan.softcap, plan.layer_masks = softcap, [plan.mask_index(kind) for kind in types]
    plan.windows = [getattr(config, "sliding_window") if kind == "sliding_attention" else None for kind in types]
    return plan


# ---- attention ----

HARMLESS = {  # arguments of models and their layers that say nothing about attention's pairs
    "position_ids", "position_embeddings", "cache_position", "num_items_in_batch", "output_hidden_states", "output_router_logits",
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "shift_labels", "logits_to_keep", "deterministic",
}
UNSUPPORTED = {  # and those that would change its results, in their own words
    "output_attentions": "attention weights are never stored",
    "use_cache": "a cache would hold this rank's keys alone; pass use_cache=False, or generate with another attn_implementation",
    "position_bias": "biases of scores are not supported",
    "indices": "indexed keys are not supported",
    "block_indices": "indexed keys are not supported",
}


def fault(module, query, key, attention_mask, dropout, sliding_window, softcap, is_causal, plan, more):
    """Why this call is not what the plan computes, or None."""
    layer = getattr(module, "layer_idx", None)
    if attention_mask is not None:
        return "attention_mask: the masks are the plan's; burst.hf.shard turns padding into documents of their own"
    if dropout:
        return f"dropout={dropout}: there is no dropout in burst's attention; set attention_dropout to 0"
    if is_causal is False or (is_causal is None and getattr(module, "is_causal", True) is False):
        return "is_causal=False: give this part of the model another attention, attn_implementation={\"\": \"sdpa\", " \
               "\"text_config\": \"burst\"}"
    if layer is None or layer >= len(plan.layer_masks):
        return f"layer_idx={layer}: the plan has {len(plan.layer_masks)} layers"
    if query.shape[0] != 1:
        return f"{query.shape[0]} sequences: rows of all of them are one sequence; use what burst.hf.shard returns"
    if key.shape[2] != query.shape[2]:
        return f"{key.shape[2]} keys for {query.shape[2]} queries: caches and cross-attention are not supported"
    if sliding_window is not ABSENT and (sliding_window or None) != plan.windows[layer]:
        return f"sliding_window={sliding_window} in layer {layer}: the plan was compiled with {plan.windows[layer]}"
    if (softcap or 0.0) != plan.softcap:
        return f"softcap={softcap}: the plan was compiled with {plan.softcap}"
    for name, value in more.items():
        if name not in HARMLESS and value is not None and value is not False:
            return f"{name}: {UNSUPPORTED.get(name, 'this argument is not supported')}"
    return None


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=ABSENT, softcap=None,
           is_causal=None, s_aux=None, burst_batch=None, **more):
    """As transformers calls attention: query [1, heads, t, d], key and value [1, kv_heads, t, d]; o [1, t, heads, d]."""
    if burst_batch is None:
        raise ValueError(f"attn_implementation=\"{NAME}\" attends within a batch: call the model with what burst.hf.shard returns")
    plan = burst_batch.plan
    why = fault(module, query, key, attention_mask, dropout, sliding_window, softcap, is_causal, plan, more)
    if why is not None:
        refuse(plan, f"{type(module).__name__}: {why}")
    width = value.shape[-1]
    if width < query.shape[-1]:  # MLA
        value = torch.nn.functional.pad(value, (0, query.shape[-1] - width))
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if torch.is_autocast_enabled(query.device.type):
        q, k, v = (x.to(plan.dtype) for x in (q, k, v))
    sinks = s_aux.float() if s_aux is not None else None
    o = attention(q, k, v, burst_batch, plan.layer_masks[module.layer_idx], sinks=sinks, scale=scaling)
    return o[..., :width].to(query.dtype).unsqueeze(0), None


# ---- masks ----

KNOWN = {  # mask functions of transformers that the plan's masks stand for
    "causal_mask_function", "and_masks", "sliding_window_overlay", "chunked_overlay", "packed_sequence_mask_function",
    "remap_positions_for_packed_sequence", "add_offsets_to_mask_function",
}


def mask_names(function):
    """The names of a mask function of transformers and of those that it is made of."""
    yield function.__qualname__.split(".")[0]
    for cell in function.__closure__ or ():
        inside = cell.cell_contents
        for part in inside if isinstance(inside, tuple) else (inside,):
            if callable(part) and hasattr(part, "__qualname__"):
                yield from mask_names(part)


def no_mask(*, q_length, kv_length, mask_function, attention_mask=None, q_offset=0, kv_offset=0, **_):
    """In place of a dense mask: None, if the plan's masks stand for it."""
    if not torch.compiler.is_compiling():
        unknown = [name for name in mask_names(mask_function) if name not in KNOWN]
        if unknown:
            raise ValueError(f"the model masks by {unknown[0]}, which attn_implementation=\"{NAME}\" has no mask for")
    if kv_length != q_length or isinstance(q_offset, int) and q_offset != 0:
        raise ValueError("a cache holds earlier tokens: pass use_cache=False, or generate with another attn_implementation")
    if attention_mask is not None and (torch.compiler.is_compiling() or not bool(attention_mask.all())):
        raise ValueError("attention_mask has padding: call the model with what burst.hf.shard returns, where it is no longer")
    return None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, no_mask)


# ---- batches ----

def starts_of(inputs, rows, length):
    """Where documents begin among rows * length tokens: each row's, and where positions, or padding, begin anew."""
    position, kept, ends = inputs.get("position_ids"), inputs.get("attention_mask"), inputs.get("cu_seq_lens_q")
    begins = torch.zeros(rows, length, dtype=torch.bool)
    begins[:, 0] = True
    if ends is not None:
        begins.view(-1)[ends.flatten()[:-1].long().cpu()] = True
    elif position is not None and position.ndim == 2:
        position = position.expand(rows, length).cpu()
        begins[:, 1:] |= position[:, 1:] != position[:, :-1] + 1
    if kept is not None:
        if kept.shape != (rows, length):
            raise ValueError(f"attention_mask is {tuple(kept.shape)}, not {(rows, length)}: masks are the plan's")
        kept = kept.bool().cpu()
        begins[:, 1:] |= kept[:, 1:] != kept[:, :-1]
    return begins.view(-1).nonzero().flatten().tolist()


def filled(x, tokens, value):
    """[..., n] tokens at the end of which value stands until there are enough."""
    return torch.nn.functional.pad(x, (0, tokens - x.shape[-1]), value=value)


def check_alike(plan, parts):
    """All ranks have the same batch: not where each has its own from a data loader."""
    if plan.ranks == 1:
        return
    own = 0
    for part in parts:
        own = zlib.crc32(part.detach().cpu().contiguous().numpy().tobytes(), own)
    every = gather_bytes(plan.group, own.to_bytes(4, "little"))
    differ = [r for r in range(plan.ranks) if every[4 * r:4 * r + 4] != every[:4]]
    if differ:
        raise ValueError(f"rank {differ[0]} has another batch than rank 0: the ranks of a plan need the same one")


def shard(plan, inputs, *, cu_seqlens=None, averaged=True, count=None, pad=0, tables=None):
    """What a rank calls its model with: of a batch that all ranks of the plan have alike, its rows. Collective.

    inputs: input_ids or inputs_embeds [rows, length, ...] as a data collator returns them, labels, position_ids, attention_mask,
    cu_seq_lens_q, and other tensors [rows, length, ...]. Documents: cu_seqlens over all rows one after the other; else the
    inputs' own; else where position_ids begin anew; else each row. Padding is a document without labels. Less than the plan's
    tokens are filled up by tokens `pad`.

    The loss of the model is this rank's part. averaged: gradients are averaged over ranks afterwards, as FSDP and DDP do; False:
    they are added up. count: what the loss is divided by, instead of the batch's counted tokens.
    """
    inputs = dict(inputs)
    ids = inputs.get("input_ids", inputs.get("inputs_embeds"))
    if ids is None or ids.ndim < 2:
        raise ValueError("a batch needs input_ids [rows, length], or inputs_embeds")
    rows, length = ids.shape[:2]
    given = rows * length
    if given > plan.tokens:
        raise ValueError(f"the batch has {given} tokens, more than the plan's {plan.tokens}")
    kept = inputs.get("attention_mask")
    if cu_seqlens is not None:
        begins = [int(x) for x in cu_seqlens][:-1]
        if int(cu_seqlens[-1]) != given:
            raise ValueError(f"cu_seqlens ends with {int(cu_seqlens[-1])}, but the batch has {given} tokens")
    else:
        begins = starts_of(inputs, rows, length)
    cu = begins + ([given] if given < plan.tokens else []) + [plan.tokens]
    labels = whole_labels(inputs, kept, begins, plan.tokens)
    check_alike(plan, [ids, torch.tensor(cu)] + ([labels] if labels is not None else []))
    batch = plan.batch(cu, tables_of(plan, cu, tables))
    out = {"burst_batch": batch, "use_cache": False}
    if "position_ids" not in inputs:
        out["position_ids"] = batch.positions.unsqueeze(0)
    for name, x in inputs.items():
        if name not in TAKEN:
            out[name] = local_rows(batch, name, x, rows, length, pad if name == "input_ids" else 0)
    if labels is not None:
        local = labels.to(plan.device)[batch.rows].unsqueeze(0)
        total = (labels != IGNORE).sum() if count is None else count
        out |= {"labels": local, "shift_labels": local}
        out["num_items_in_batch"] = max(float(total), 1.0) / (plan.ranks if averaged else 1)  # no tensor: FSDP2 rounds those
    return out


TAKEN = {"labels", "shift_labels", "attention_mask", "use_cache", "num_items_in_batch", "cu_seq_lens_q", "cu_seq_lens_k",
         "max_length_q", "max_length_k", "seq_idx", "cu_seq_lens", "max_length"}


def whole_labels(inputs, kept, begins, tokens):
    """The next token of each token of the batch, IGNORE at the end of a document and where there is padding; or None."""
    shifted = inputs.get("shift_labels")
    labels = inputs.get("labels") if shifted is None else shifted
    if labels is None:
        return None
    labels = labels.cpu()
    if kept is not None and shifted is None:
        labels = labels.masked_fill(~kept.bool().cpu(), IGNORE)
    labels = filled(labels.reshape(-1), tokens, IGNORE)
    if shifted is None:
        labels[torch.tensor(begins)] = IGNORE  # the first token of a document is no one's next
        labels = torch.cat([labels[1:], labels.new_tensor([IGNORE])])
    return labels


def tables_of(plan, cu, given):
    """Values by token: the caller's, and positions within documents for masks that read them."""
    tables = dict(given or {})
    if "position" in plan.tables and "position" not in tables:
        cu = torch.tensor(cu)
        tables["position"] = torch.arange(plan.tokens) - cu[:-1].repeat_interleave(cu.diff())
    return tables


def local_rows(batch, name, x, rows, length, fill):
    """This rank's rows of [rows, length, ...], or of positions of several kinds, [kinds, rows, length]."""
    if not torch.is_tensor(x):
        return x
    plan, tokens, at = batch.plan, batch.plan.tokens, batch.rows
    if name == "position_ids" and x.ndim == 2:
        x = x.expand(rows, length)
    if x.shape[:2] == (rows, length):
        flat = x.reshape(rows * length, *x.shape[2:])
        if len(flat) < tokens:
            more = flat.new_full((tokens - len(flat), *flat.shape[1:]), fill)
            if name == "position_ids":
                more = torch.arange(len(more), device=flat.device, dtype=flat.dtype)
            flat = torch.cat([flat, more])
        return flat.to(plan.device)[at].unsqueeze(0)
    if name == "position_ids" and x.shape[-2:] == (rows, length):
        return filled(x.reshape(x.shape[0], -1), tokens, 0).to(plan.device)[:, at].unsqueeze(1)
    raise ValueError(f"{name} is {tuple(x.shape)}: burst.hf.shard cuts tensors [{rows}, {length}, ...]; take it out of the batch")


# ---- transformers' Trainer ----

class Repeated(torch.utils.data.Sampler):
    """A sampler whose batches of `size` come `times` times each, one after the other: one for each rank that shares it.

    A random order is the seed's and the epoch's, so that all ranks draw the same.
    """

    def __init__(self, sampler, size, times, seed):
        self.sampler, self.size, self.times, self.seed, self.epoch = sampler, size, times, seed, 0

    def __len__(self):
        return len(self.sampler) // self.size * self.size * self.times

    def __iter__(self):
        batch = []
        if getattr(self.sampler, "generator", self) is None:
            self.sampler.generator = torch.Generator()
        if isinstance(self.sampler, torch.utils.data.RandomSampler):
            self.sampler.generator.manual_seed(self.seed + self.epoch)
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.size:
                yield from batch * self.times
                batch = []

    def set_epoch(self, epoch):
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)


def check_group(plan):
    """transformers deals batches out by rank, so ranks that share one must follow each other."""
    own = dist.get_process_group_ranks(plan.group) if plan.ranks > 1 else [0]
    if own != list(range(own[0], own[0] + plan.ranks)) or own[0] % plan.ranks:
        raise ValueError(f"the plan's group has the ranks {own}: for the Trainer they must follow each other, from a multiple of "
                         f"{plan.ranks} on: make the mesh's last dimension theirs")


def trainer(plan, base=None):
    """A subclass of transformers.Trainer (or of `base`, a subclass of it) whose batches are shared by the plan's ranks.

    Its data collator returns a whole batch of at most plan.tokens tokens; each group of the plan's ranks takes the same one.
    """
    if base is None:
        from transformers import Trainer as base
    check_group(plan)

    class Sharded(base):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            faults = {"train_sampling_strategy": self.args.train_sampling_strategy == "batch_rebalance",
                      "average_tokens_across_devices": not self.args.average_tokens_across_devices,
                      "label_smoothing_factor": self.args.label_smoothing_factor != 0, "n_gpu": self.args.n_gpu > 1,
                      "compute_loss_func": self.compute_loss_func is not None}
            for name, there in faults.items():
                if there:
                    raise ValueError(f"{name}={getattr(self.args, name, None)} is not supported: the ranks of a plan share batches, "
                                     "and the loss of a rank's rows is its part of their sum")

        def _repeated(self, sampler, size, data):
            if not hasattr(data, "__len__"):
                raise ValueError(f"{type(data).__name__} has no length: give the Trainer a dataset with one")
            if len(data) % size and not self.args.dataloader_drop_last:
                raise ValueError(f"{len(data)} rows are no multiple of the batch of {size}: set dataloader_drop_last, or a batch of 1")
            seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
            return Repeated(sampler or torch.utils.data.SequentialSampler(data), size, plan.ranks, seed)

        def _get_train_sampler(self, train_dataset=None):
            data = train_dataset if train_dataset is not None else self.train_dataset
            return self._repeated(super()._get_train_sampler(data), self._train_batch_size, data)

        def _get_eval_sampler(self, eval_dataset):
            sampler = self._repeated(super()._get_eval_sampler(eval_dataset), self.args.eval_batch_size, eval_dataset)
            if len(sampler) // self.args.eval_batch_size % self.args.world_size:
                raise ValueError(f"{len(eval_dataset)} rows in batches of {self.args.eval_batch_size} do not divide among "
                                 f"{self.args.world_size // plan.ranks} groups: some would count twice")
            return sampler

        def get_batch_samples(self, epoch_iterator, num_batches, device):
            samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
            samples = [shard(plan, sample) for sample in samples]
            return samples, self._get_num_items_in_batch(samples, device)

        def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
            self.gather_function = self.accelerator.gather  # accelerate's other one drops what it takes for repeated rows
            return super().prediction_step(model, shard(plan, inputs), prediction_loss_only, ignore_keys)

    return Sharded
