"""Imported before fla-core: two configurations a Triton kernel in place of up to 64, whose tuning took over 170 s on an H200.

Of a kernel's own configurations those nearest to 4 warps, 2 to 3 stages and blocks of 64 are kept; states are split into blocks of 32 values, so that
32 heads of 128 fill a Hopper GPU. `only` keeps one of the two (processes that compile side by side); `chosen()` names what was faster.
"""
import math

import triton.runtime.autotuner

WANTED = {"num_warps": 4, "num_stages": math.sqrt(6), "BK": 64, "BV": 64, "BD": 64, "BT": 32, "BS": 32}
NARROW = "kernel_h_blockdim64", "kernel_dhu_blockdim64" # a block goes through the whole sequence
only = None # 0 or 1
tuned = []


def distance(config, name):
    wanted = WANTED | ({"BV": 32} if name.endswith(NARROW) else {})
    numbers = config.kwargs | {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return sum(abs(math.log2(numbers[key] / wanted[key])) for key in wanted.keys() & numbers.keys() if numbers[key])


def name_of(tuner):
    """Heuristics may stand between it and the function."""
    function = tuner.fn
    while hasattr(function, "fn") and not isinstance(getattr(function, "__name__", None), str):
        function = function.fn
    return getattr(function, "__name__", str(function))


def text(config):
    words = [f"{key} {value}" for key, value in config.kwargs.items()]
    return ", ".join(words + [f"{config.num_warps} warps", f"{config.num_stages} stages"])


def prepare_two(self, *args, **more):
    prepare(self, *args, **more)
    nearest = sorted(self.configs, key=lambda config: distance(config, name_of(self)))[:2]
    self.configs = nearest if only is None else [nearest[min(only, len(nearest) - 1)]]
    tuned.append(self)


def chosen():
    """'kernel: BV 32, 4 warps, 2 stages (of that and BV 32, 4 warps, 3 stages)' of each kernel that ran."""
    return [f"{name_of(tuner)}: {text(tuner.best_config)} (of {' | '.join(text(config) for config in tuner.configs)})"
            for tuner in tuned if getattr(tuner, "best_config", None) is not None]


prepare = triton.runtime.autotuner.Autotuner.__init__
triton.runtime.autotuner.Autotuner.__init__ = prepare_two
