"""Attention of long sequences under any mask, over any number of ranks, planned and proved by burstc. docs/python.md."""
from ._c import BurstError
from .batch import Batch
from .ops import attention
from .plan import CompileError, Plan, compile

__all__ = ["Batch", "BurstError", "CompileError", "Plan", "attention", "compile"]
__version__ = "0.1.0"
