"""A nested state as JSON and named tensors, and back: every type that PyTorch's state dicts hold, and no pickle.

Values that JSON lacks become an object with a single key that begins with "$": ``{"$tuple": [1, 2]}``. A dict with such
keys, or with keys that are not strings, becomes a list of pairs.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["decode", "encode"]


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """``value`` as JSON; its tensors go into ``tensors`` under their paths, as they are (not copied).

    Args:
        value: Tensors, numbers, strings, None, numpy arrays, and lists, tuples and dicts of them.
        path: The name of the value.
        tensors: Receives the tensors.

    Returns:
        What ``json.dumps`` takes.

    Raises:
        TypeError: If it holds anything else; the message says where.

    Example:
        >>> tensors = {}
        >>> encode({"betas": (0.9, math.inf), "state": {0: torch.ones(2)}}, "adam", tensors)
        {'betas': {'$tuple': [0.9, {'$float': 'inf'}]}, 'state': {'$dict': [[0, {'$tensor': 'adam/state/0'}]]}}
        >>> tensors
        {'adam/state/0': tensor([1., 1.])}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, Tensor):
        return _encode_tensor(value, path, tensors)
    if type(value).__module__ == "numpy":  # a scalar, or an array such as a generator's state
        return value.item() if value.ndim == 0 else {"$array": encode(torch.from_numpy(value.copy()), path, tensors)}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{path}/{number}", tensors) for number, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, tensors)
    raise TypeError(
        f"{path} is a {type(value).__name__}, but a state can hold only tensors, numbers, strings, lists and dicts; "
        "give the part a state_dict that omits or converts it"
    )


def decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of ``encode``.

    Example:
        >>> decode({"$dict": [[0, {"$tuple": [1, {"$tensor": "x"}]}]]}, {"x": torch.ones(1)})
        {0: (1, tensor([1.]))}
    """
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(item, tensors) for key, item in value.items()}
    return DECODERS[tag](value[tag], tensors)


def _encode_tensor(value: Tensor, path: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
        raise TypeError(f"{path} is a sparse, quantized or meta tensor; a state can hold only dense ones")
    if value.is_complex():
        return {"$complex": _encode_tensor(torch.view_as_real(value.detach().resolve_conj()), path, tensors)}
    name = path
    while name in tensors:  # {"a/b": x} and {"a": {"b": y}} have the same path
        name += "'"
    tensors[name] = value.detach()
    return {"$tensor": name}


def _encode_mapping(value: Mapping[Any, Any], path: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    pairs = [(key, encode(item, f"{path}/{key}", tensors)) for key, item in value.items()]
    if isinstance(value, Counter):
        return {"$counter": [[encode(key, path, tensors), item] for key, item in pairs]}
    if hasattr(value, "_metadata"):  # a module's, with the version of every submodule's state
        return {"$module": [dict(pairs), encode(dict(value._metadata), path, tensors)]}
    if all(type(key) is str and not key.startswith("$") for key, _ in pairs):
        return dict(pairs)
    return {"$dict": [[encode(key, path, tensors), item] for key, item in pairs]}


def _decode_pairs(value: Any, tensors: Mapping[str, Tensor]) -> dict[Any, Any]:
    return {decode(key, tensors): decode(item, tensors) for key, item in value}


def _decode_module(value: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    state = OrderedDict((key, decode(item, tensors)) for key, item in value[0].items())
    state._metadata = OrderedDict(decode(value[1], tensors))  # type: ignore[attr-defined]
    return state


DECODERS: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    "$float": lambda value, tensors: float(value),
    "$tensor": lambda value, tensors: tensors[value],
    "$complex": lambda value, tensors: torch.view_as_complex(decode(value, tensors)),
    "$array": lambda value, tensors: decode(value, tensors).numpy(),
    "$tuple": lambda value, tensors: tuple(decode(value, tensors)),
    "$dict": _decode_pairs,
    "$counter": lambda value, tensors: Counter(_decode_pairs(value, tensors)),
    "$module": _decode_module,
}
