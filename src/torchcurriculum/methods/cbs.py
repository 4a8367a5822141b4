"""CBS: blurs the outputs of convolutions, less and less during training."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..core import Batch, Epoch, Method, checks, distributed
from ..functional.smoothing import annealed_sigma, gaussian, smooth
from .registry import register

__all__ = ["CBS"]

NEGLIGIBLE = 2.0**-24  # relative weight of a neighbour that is invisible in float32
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Layers = Literal["spatial", "all"] | Callable[[str, nn.Module], bool]
PAPER_REDUCTIONS = 40  # every 5 of 200 epochs


class CBS(Method):
    r"""Curriculum by smoothing: low-pass feature maps first, all information later.

    The output of a convolution is blurred channel by channel with a Gaussian of
    :math:`\sigma_k = \sigma_0 d^{\lfloor (k-1)/s \rfloor}`, as by a fixed layer after it. Nested and transposed
    convolutions are included. A network without convolutions is refused.

    ``layers`` selects the convolutions. As in the authors' ResNets, 1x1 convolutions (shortcuts) are not blurred: 17 of
    the 20 in a ResNet-18. The authors have no network with 1x1 bottlenecks, and their VGG blurs only the last
    convolution of each of its five blocks; use ``layers=lambda name, module: ...`` for that.

    The blur is a forward hook on the user's network; it is not in the network's ``state_dict``, and a resumed run adds
    it again. It also acts in evaluation mode: as in the paper, the blur is part of the network (the statistics of a
    batch norm are those of blurred maps). Once the neighbours' weights are invisible in float32 (sigma below 0.17), the
    hooks are removed and the network is the plain one; with the default pace that is after 17 of 40 reductions.
    ``release()`` removes them at any time, and so does deleting the method.

    Args:
        interval: Epochs s between reductions; the paper's 5 of 200 epochs. ``for_run`` takes ``epochs / 40``, so that
            a run of any length goes through the same reductions.
        sigma: sigma_0 >= 0, in pixels of each feature map; the paper's 1. Zero is plain training.
        decay: Factor d in (0, 1] of each reduction; the paper's 0.9.
        kernel_size: Taps K of the Gaussian on each axis, odd; the paper's 3. Maps keep their size for every K.
        layers: Which convolutions: ``"spatial"``, those with a kernel larger than one, ``"all"``, or a function of a
            layer's name and module that returns a bool.

    Example:
        >>> method, net = CBS(interval=5), nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.Conv2d(2, 2, 3)))
        >>> method.attach(net)
        2

    Reference:
        Sinha et al., Curriculum by Smoothing, NeurIPS 2020.
    """

    kernel: Tensor
    _net: weakref.ref[nn.Module] | None
    _handles: list[RemovableHandle]

    def __init__(
        self,
        interval: float,
        sigma: float = 1.0,
        decay: float = 0.9,
        kernel_size: int = 3,
        layers: Layers = "spatial",
    ) -> None:
        super().__init__()
        if isinstance(layers, str):
            checks.one_of("layers", layers, ("spatial", "all"))
        checks.real("sigma", sigma, "[0, inf)")
        checks.real("decay", decay, "(0, 1]", "the paper takes 0.9")
        checks.real("interval", interval, "(0, inf]", "a number of epochs")
        if checks.whole("kernel_size", kernel_size) % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that the maps keep their size, got {kernel_size!r}")
        self.start, self.decay, self.interval, self.kernel_size = sigma, decay, interval, kernel_size
        self.layers = layers
        self.sigma = sigma  # on the host, so that a step need not synchronise
        self.blurred = 0
        self.register_buffer("kernel", gaussian(kernel_size, sigma), persistent=False)
        self._without_hooks()

    @classmethod
    def for_run(cls, n: int, epochs: int, interval: float | None = None, **options: Any) -> Self:
        """The paper's 40 reductions over the run."""
        return cls(epochs / PAPER_REDUCTIONS if interval is None else interval, **options)

    @property
    def blurs(self) -> bool:
        """Whether the blur has a visible effect in float32."""
        if not self.sigma > 0 or self.kernel_size == 1:
            return False
        inverse = 1 / self.sigma
        return math.exp(-0.5 * inverse * inverse) >= NEGLIGIBLE  # unlike a power, a product may overflow

    def plan(self, epoch: Epoch) -> None:
        """Reduces sigma and sets the hooks, so that a measuring pass of this epoch is blurred, too."""
        self._set(annealed_sigma(epoch.number, self.start, self.decay, self.interval))
        if epoch.model is not None:
            self.attach(epoch.model)

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The unchanged batch; sets the hooks, since ``plan`` is not called after a resume inside an epoch."""
        self.attach(model)
        return batch

    def attach(self, model: nn.Module) -> int:
        """Adds a blur after the chosen convolutions of ``model``, once, unless the blur is negligible.

        Returns:
            The number of blurred convolutions.
        """
        net = distributed.unwrapped(model)
        if not self.blurs:
            self.release()
        elif self._net is None or self._net() is not net:
            self.release()
            found = self._convolutions(net)
            blur = _Blur(self)
            self._handles += [module.register_forward_hook(blur) for module in found]
            self._net = weakref.ref(net)
        self.blurred = len(self._handles)
        return self.blurred

    def release(self) -> None:
        """Removes the blur from the network."""
        self._take_off()
        self._without_hooks()

    def get_extra_state(self) -> Tensor:
        """This epoch's sigma and the number of blurred convolutions."""
        return torch.tensor([self.sigma, self.blurred], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the state from ``get_extra_state``."""
        self._set(float(state[0]))
        self.blurred = int(state[1])

    def report(self) -> Mapping[str, Any]:
        """sigma and the number of blurred convolutions."""
        return {"sigma": self.sigma, "blurred": self.blurred}

    def _convolutions(self, net: nn.Module) -> list[nn.Module]:
        """The layers to blur; an error if there are none."""
        here = {name: module for name, module in net.named_modules() if isinstance(module, CONVOLUTIONS)}
        if not here:
            raise ValueError(
                f"CBS blurs the outputs of convolutions, but {type(net).__name__} has none: it would train as if "
                "there were no curriculum. Use another method, or pass sigma=0 for plain training."
            )
        chosen: list[nn.Module]
        if callable(self.layers):
            chosen = [module for name, module in here.items() if self.layers(name, module)]
        else:
            chosen = [module for module in here.values() if self.layers == "all" or max(module.kernel_size) > 1]
        if not chosen:
            raise ValueError(
                f"layers={self.layers!r} of CBS chooses none of the {len(here)} convolutions of {type(net).__name__}; "
                'pass layers="all" or a function that chooses some'
            )
        return chosen

    def _set(self, sigma: float) -> None:
        self.sigma = sigma
        self.kernel.copy_(gaussian(self.kernel_size, sigma))

    def _without_hooks(self) -> None:
        self._net, self._handles = None, []
        self._take_off = weakref.finalize(self, _remove, self._handles)
        self._take_off.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the method adds its own hooks; these belong to the original.
        return {**self.__dict__, "_net": None, "_handles": [], "_take_off": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._without_hooks()


class _Blur:
    """The forward hook: blurs with its method's kernel, as long as the method exists.

    A copied network shares it; a pickled network keeps one without a method, which does nothing.
    """

    def __init__(self, method: CBS | None = None) -> None:
        self.method = (lambda: None) if method is None else weakref.ref(method)

    def __call__(self, module: nn.Module, _: Any, output: Tensor) -> Tensor | None:
        method = self.method()
        if method is None or not method.blurs:
            return None
        if method.kernel.device != output.device:
            method.to(output.device)
        return smooth(output, method.kernel, len(module.kernel_size))  # type: ignore[arg-type]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Blur:
        return self

    def __reduce__(self) -> tuple[type[_Blur], tuple[()]]:
        return _Blur, ()


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


register(
    "cbs",
    CBS,
    "blurs the outputs of convolutions, less and less",
    when="Convolutional networks whose early training fits noise in fine detail; other networks are refused.",
    cost="A depthwise convolution after each blurred one in the first 17 of 40 parts of the run; no extra pass.",
)
