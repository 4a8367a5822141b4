"""Networks by their torchvision or timm names, and pretrained weights from a local file."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..checks import suggest
from .efficientnet import EfficientNetB0

__all__ = ["NAMES", "Resized", "feature_network", "load_weights", "named"]

NAMES = {
    "resnet18": "torchvision:resnet18",
    "efficientnet-b0": "torchvision:efficientnet_b0",
    "convnext-tiny": "torchvision:convnext_tiny",
    "maxvit-t": "torchvision:maxvit_t",
    "inception-resnet-v2": "timm:inception_resnet_v2",
}
UNUSED = "num_batches_tracked"  # a counter that older files lack and our networks do not use


def named(name: str, classes: int = 10, known: Iterable[str] = ()) -> nn.Module:
    """A network of torchvision or timm, with weights drawn from the global generator.

    Args:
        name: A key of ``NAMES``, which are the paper's networks, or ``"torchvision:NAME"`` or ``"timm:NAME"``.
        classes: Outputs C.
        known: Further names for the error message.

    Returns:
        The network; nothing is downloaded. ``load_weights`` gives it pretrained weights.
    """
    library, _, inner = NAMES.get(name, name).partition(":")
    makers: dict[str, Callable[[str, int], nn.Module]] = {"torchvision": _of_torchvision, "timm": _of_timm}
    if library not in makers or not inner:
        hint = suggest(name, [*known, *NAMES])
        hint += "" if hint.endswith("?") else "."
        raise ValueError(f"unknown network {name!r}; {hint} Others: torchvision:NAME and timm:NAME")
    return makers[library](inner, classes)


def _of_torchvision(name: str, classes: int) -> nn.Module:
    import_torchvision()
    from torchvision import models

    if name not in models.list_models(models):
        raise ValueError(f"torchvision has no network named {name!r}")
    made: nn.Module = models.get_model(name, weights=None, num_classes=classes)
    return made


def _of_timm(name: str, classes: int) -> nn.Module:
    import_torchvision()  # timm imports it
    try:
        import timm
    except ImportError as error:
        raise _missing("timm") from error
    if name not in timm.list_models():
        raise ValueError(f"timm has no network named {name!r}")
    made: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes)
    return made


def _missing(package: str) -> ImportError:
    keeps = f"'torch=={torch.__version__}'"  # or pip would install the newest torchvision with another torch
    return ImportError(f"this network needs {package}: pip install {package} {keeps}, which keeps your torch")


def import_torchvision() -> None:
    """Imports torchvision, even if its compiled part does not match the installed torch.

    In that case two operators are missing. None of our networks uses them, but the import needs their declarations.
    """
    try:
        import torchvision
    except ImportError as error:
        raise _missing("torchvision") from error
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _OPERATORS.append(torch.library.Library("torchvision", "FRAGMENT"))
        _OPERATORS[0].define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS[0].define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

    assert torchvision.__name__


_OPERATORS: list[torch.library.Library] = []  # keeps them registered


def load_weights(model: nn.Module, path: str | Path, strict: bool = True) -> list[str]:
    """Loads a network's weights from a local file; skips tensors of another shape, such as the last layer.

    Args:
        model: Changed in place, or not at all.
        path: A ``.safetensors`` file, or a PyTorch file, which is read with ``weights_only``, so no code in it runs.
        strict: Whether to refuse a file that lacks some of the network's tensors or holds values that are not finite.

    Returns:
        Names of the tensors that were not loaded.

    Raises:
        ValueError: If the file is damaged, if ``strict`` refuses it, or if less than half of the network's tensors are
            in it.

    Example:
        >>> import tempfile, safetensors.torch
        >>> path = tempfile.mkdtemp() + "/weights.safetensors"
        >>> safetensors.torch.save_file(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1000)).state_dict(), path)
        >>> load_weights(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 10)), path)
        ['1.weight', '1.bias']
    """
    path, own = Path(path), model.state_dict()
    held = _read(path)
    fitting = {name: held[name] for name, tensor in own.items() if name in held and held[name].shape == tensor.shape}
    if 2 * len(fitting) < len(own):
        count = f"{len(fitting)} of {len(own)}"
        raise ValueError(f"{path} holds the weights of another network: only {count} tensors of this one fit")
    missing = [name for name in own if name not in held and not name.endswith(UNUSED)]
    broken = [name for name, tensor in fitting.items() if not tensor.isfinite().all()]
    if strict and missing:
        raise ValueError(
            f"{path} lacks {len(missing)} of the network's {len(own)} tensors ({first_of(missing)}), which would stay "
            "random; use a complete file, or --partial-weights (strict=False) to accept it"
        )
    if strict and broken:
        raise ValueError(
            f"{path} cannot be used: {len(broken)} of its tensors hold values that are not finite "
            f"({first_of(broken)}); use a complete file, or --partial-weights (strict=False) to accept it"
        )
    model.load_state_dict(fitting, strict=False)
    return [name for name in own if name not in fitting and not name.endswith(UNUSED)]


def first_of(names: list[str]) -> str:
    """The first three of some names, for a message."""
    return ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        raise FileNotFoundError(f"{path} {what}; --weights needs a local .safetensors or PyTorch file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
            if packed:  # a small file could fill the memory
                raise ValueError("it is compressed, which PyTorch files never are")
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except Exception as error:  # torch raises many kinds of errors, and its message advises trusting the file
        kind = type(error).__name__
        words = f"{path} is damaged or holds more than tensors ({kind}); save the network's state_dict() alone"
        raise ValueError(words) from None
    for word in ("state_dict", "model"):
        held = held[word] if isinstance(held, Mapping) and isinstance(held.get(word), Mapping) else held
    if not isinstance(held, Mapping):
        raise ValueError(f"{path} holds a {type(held).__name__}, not a dict of weights")
    return {str(name): value for name, value in held.items() if isinstance(value, Tensor)}


class Resized(nn.Module):
    """A network whose images are resized to ``size`` x ``size``, on their device.

    Args:
        inner: The network.
        size: Side of the resized images.
    """

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the network for the resized images."""
        return self.inner(nn.functional.interpolate(x, (self.size, self.size), mode="bilinear", align_corners=False))


def feature_network(how: str | None = None) -> tuple[nn.Module | None, str]:
    """A pretrained network for features of pictures, or None without weights for one.

    Args:
        how: A file of weights of EfficientNet-B0, or of the torchvision network in its name
            (``resnet50-0676ba61.pth``); or a network's name, with weights in torch's cache; or ``"none"``. By default
            EfficientNet-B0 from the cache, or None. Nothing is downloaded.

    Returns:
        The network in evaluation mode, without its last layer, and a description for the user.
    """
    cached = sorted(Path(torch.hub.get_dir(), "checkpoints").glob("*.*"))
    if how == "none":
        return None, FILTERS
    if how is None:
        path = next((file for file in cached if file.name.startswith("efficientnet_b0_")), None)
        if path is None:
            return None, f"{FILTERS}; a pretrained network is better: --features FILE"
    elif Path(how).is_file():
        path = Path(how)
    else:
        found = [file for file in cached if file.name.startswith(how.replace("-", "_"))]
        if not found:
            raise ValueError(
                f"--features {how} is neither a file nor a network with weights in torch's cache "
                f"({torch.hub.get_dir()}); give a file of weights, or 'none'"
            )
        path = found[0]
    if EfficientNetB0.fits(_read(path)):
        network: nn.Module = EfficientNetB0()
        load_weights(network, path)
    else:
        network = _of_torchvision(path.stem.split("-")[0].split(".")[0], 1000)
        load_weights(network, path)
        last = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)][-1]
        network.set_submodule(last, nn.Identity())
    return network.eval(), f"features of the pretrained network in {path.name}"


FILTERS = "features learnt from these pictures alone"
