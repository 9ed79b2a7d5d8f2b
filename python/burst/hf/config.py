"""What a model's config says: masks by layer, heads and softcap of its plan."""
import inspect

from transformers import PreTrainedModel

from ..plan import compile as compile_plan
from .attention import BALANCE
from .longest import config_reads_longest, follow_longest

DOCUMENT = "causal and doc[q] == doc[k]"
MASKS = {  # by layer type: the mask, and the setting that it reads
    "full_attention": (DOCUMENT, None),
    "sliding_attention": (DOCUMENT + " and q - k < {0}", "sliding_window"),
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
        raise ValueError(f"the plan would have layers of type '{kind}': a rank's rows are no run of tokens, "
                         f"and only {', '.join(MASKS)} is attention between ranks")
    text, setting = MASKS[kind]
    size = getattr(config, setting, None) if setting else None
    if setting and not size:
        raise ValueError(f"the config has layers of type '{kind}', but no {setting}")
    return text.format(size)


def check_positions(model):
    """A rank's rows are no run of tokens: their places must come from position_ids."""
    for module in model.modules() if hasattr(model, "modules") else ():
        if isinstance(module, PreTrainedModel):  # the first, which a wrapper may have
            if "position_ids" not in inspect.signature(module.forward).parameters:
                raise ValueError(f"{type(module).__name__} takes no position_ids: it numbers the rows that it is called with")
            break


def check_model(model, config):
    check_positions(model)
    for setting in REFUSED:
        if getattr(config, setting, None):
            raise ValueError(f"{setting} is set in the config: only causal decoders are supported")
    if getattr(config, "output_router_logits", False):
        raise ValueError(f"output_router_logits is set in the config: {BALANCE}")
    if getattr(config, "attn_temperature_tuning", False) and not all(getattr(config, "no_rope_layers", None) or [0]):
        raise ValueError("attn_temperature_tuning is set in the config: layers without RoPE scale queries by the number of a row, "
                         "which is not its position in a plan; set it to False if the model was trained without it")
    if config_reads_longest(config) and not hasattr(model, "modules"):
        raise ValueError("RoPE of this type reads the largest position of a batch: give the model itself, not its config")
    dropout = getattr(config, "attention_dropout", 0)
    if dropout:
        raise ValueError(f"attention_dropout is {dropout}: burst's attention has no dropout; set it to 0")
    if hasattr(model, "_can_set_attn_implementation") and not model._can_set_attn_implementation():
        raise ValueError(f"{type(model).__name__} does not call attention through the AttentionInterface")


def head_sizes(config):
    """heads, kv_heads, head_dim and value_dim. MLA's config has another head_dim than its attention."""
    heads = config.num_attention_heads
    given = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    return {"heads": heads, "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": given or config.hidden_size // heads, "value_dim": getattr(config, "v_head_dim", None)}


def compile(model, *, tokens, group=None, **options):
    """burst.compile for a transformers model, or its config, which has the masks by layer, heads and softcap.

    Collective. tokens: of a batch, on all ranks together. options: those of burst.compile; heads, kv_heads,
    head_dim and value_dim for models whose attention has others than their config says.
    """
    config = decoder_config(model)
    check_model(model, config)
    types = layer_types(config)
    masks = {kind: mask_of(config, kind) for kind in dict.fromkeys(types)}
    softcap = getattr(config, "attn_logit_softcapping", None) or 0.0
    sizes = {**head_sizes(config), **options}
    plan = compile_plan(masks, tokens=tokens, group=group, softcap=softcap, **sizes)
    plan.reads_longest = config_reads_longest(config)
    if plan.reads_longest:
        follow_longest(model)
    windows = {"sliding_attention": getattr(config, "sliding_window", None)}
    plan.softcap = softcap
    plan.layer_masks = [plan.mask_index(kind) for kind in types]
    plan.layer_windows = [windows.get(kind) for kind in types]
    return plan
