"""Attention of long sequences under any mask, over any number of ranks, planned and proved by burstc. docs/python.md."""
import importlib

_home = {"Batch": "batch", "BurstError": "_c", "CompileError": "plan", "Plan": "plan", "attention": "ops", "compile": "plan"}
__all__ = sorted(_home)
__version__ = "0.1.0"


def __getattr__(name):
    """On first use: the command `burst` does not need torch."""
    if name not in _home:
        raise AttributeError(f"module 'burst' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(f".{_home[name]}", __name__), name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})
