"""Numbers that callers give: taken as they are, or refused by name. None is cut or rounded to another one.

The command `burst` reads its numbers here, so torch, whose import takes seconds, is imported with the first list of them."""
import numbers
import operator
from typing import NamedTuple


class Limits(NamedTuple):
    """Of a type; as torch.iinfo and torch.finfo have them."""
    min: float
    max: float
    tiny: float = 0


INT32 = Limits(-2**31, 2**31 - 1)
FP32 = Limits(-(2 - 2**-23) * 2.0**127, (2 - 2**-23) * 2.0**127, 2.0**-126)


def whole(value, what, least=0, most=INT32.max):
    """A whole number from one limit to another."""
    try:
        if isinstance(value, bool) or str(getattr(value, "dtype", None)) == "torch.bool":
            raise TypeError
        number = operator.index(value)
    except (TypeError, RuntimeError):
        raise ValueError(f"{what} is {value!r}, not a whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is {number}; it must be {least} to {most}")
    return number


def positive(value, what):
    """A finite number above 0, also in fp32."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{what} is {value!r}, not a number")
    number = float(value)
    if not FP32.tiny <= number <= FP32.max:
        raise ValueError(f"{what} is {number!r}; it must be a finite number above 0, also in fp32")
    return number


def int32s(values, what):
    """A tensor of whole numbers on the host. bool: 0 and 1."""
    import torch
    try:
        given = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{what} is no list of numbers: {error}") from None
    if given.is_floating_point() or given.is_complex():
        raise ValueError(f"{what} is {given.dtype}; it must have whole numbers: round them, or give each value a number of its own")
    given = given.detach().cpu()
    wide = given.long()
    least = INT32.min if given.dtype.is_signed else 0  # of uint64, long() makes large numbers negative
    outside = (wide < least) | (wide > INT32.max)
    if bool(outside.any()):
        place = tuple(outside.nonzero()[0].tolist())
        raise ValueError(f"{what}{list(place)} is {given[place].item()}, outside of int32 ({INT32.min} to {INT32.max})")
    return wide.int().contiguous()
