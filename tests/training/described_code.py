"""Code of a folder's own, by which transformers loads the models of reference_described.py, as it loads published ones of these kinds."""
import pathlib

# {0}: a kind, {1}: its model_type
CONFIGURATION = """from transformers import PretrainedConfig


class {0}Config(PretrainedConfig):
    model_type = "{1}"

    def __init__(self, **fields):
        super().__init__(auto_map=fields.get("auto_map"))
        self.fields = {{name: value for name, value in fields.items() if "name_or_path" not in name}}
"""
MODELING = """import torch
from transformers import PreTrainedModel

from .configuration_{1} import {0}Config
from .described import Model


class {0}ForCausalLM(PreTrainedModel):
    config_class = {0}Config

    def __init__(self, config):
        super().__init__(config)
        self.fields = dict(config.fields)
        for name, weight in Model("{0}", self.fields).named_parameters():
            at = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(at, part):
                    at.add_module(part, torch.nn.Module())
                at = getattr(at, part)
            at.register_parameter(last, torch.nn.Parameter(weight.detach()))
        self.post_init()

    def forward(self, input_ids, **more):
        model = Model("{0}", self.fields)
        model.weight = dict(self.named_parameters())
        return model(input_ids)
"""


def write(kind, folder):
    """Files that the folder's auto_map names, and what they import."""
    for name, text in (("configuration", CONFIGURATION), ("modeling", MODELING)):
        (folder / f"{name}_{kind.lower()}.py").write_text(text.format(kind, kind.lower()))
    (folder / "described.py").write_bytes((pathlib.Path(__file__).parent / "reference_described.py").read_bytes())
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
