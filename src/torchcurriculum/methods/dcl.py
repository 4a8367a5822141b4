"""DCL: data parameters, a temperature per sample and class, learnt with the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..core import Method, Step, checks
from ..functional.optim import momentum_step
from ..functional.temperature import scaled_losses, temperature, temperature_gradient
from .registry import register

__all__ = ["DCL"]

BOUND = 20.0  # the authors keep temperatures between 1/20 and 20
LARGEST = 1e6  # of a knob, to keep scaled logits and steps finite


class DCL(Method):
    r"""Data parameters: the loss is taken at :math:`z_i / \sigma_i` with :math:`\sigma_i = e^{s_i} + e^{c_y}`.

    The log-temperatures s (of samples) and c (of classes) follow the gradient of the average loss by SGD with momentum
    inside the step. Only the entries of the batch move, decay and keep momentum, so a step costs O(B) for any size of
    the set. The temperature of a sample that the model gets wrong rises, so it counts less.

    Args:
        n: Rows of the training set.
        classes: Number of classes C for class temperatures; None has none, which is the paper's setting for wrong
            labels.
        samples: Whether samples have temperatures.
        lr: Learning rate of s. With its momentum, 0.1 is the authors' default.
        lr_class: Learning rate of c.
        init: Temperature :math:`e^s` at the start. With class temperatures the paper's joint runs take 0.001.
        init_class: Temperature :math:`e^c` at the start.
        weight_decay: Decay of s towards 0, a temperature of 1.
        weight_decay_class: Decay of c for each of its rows in the batch: a class with four rows decays four times as
            much, as in the authors' code, whose penalty is a sum over the rows.
        momentum: Of s and c, 0.9 in the authors' code.

    Example:
        >>> from torchcurriculum.core import Batch, Step, Task
        >>> task = Task(lambda model, x: x, lambda z, y: torch.nn.functional.cross_entropy(z, y, reduction="none"))
        >>> logits, y = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
        >>> batch, method = Batch(logits, y, torch.tensor([4, 2]), task=task), DCL(5, lr=1.0)
        >>> _ = method.loss(Step(None, batch, logits, task.losses(None, batch)[1]))
        >>> method.sample_log.exp()      # row 4 is right and cools down, row 2 is wrong and warms up
        tensor([1.0000, 1.0000, 2.4128, 1.0000, 0.8876], dtype=torch.float64)

    Reference:
        Saxena, Tuzel and DeCoste, Data Parameters: A New Family of Parameters for Learning a Differentiable
        Curriculum, NeurIPS 2019.
    """

    sample_log: Tensor
    sample_velocity: Tensor
    class_log: Tensor
    class_velocity: Tensor

    def __init__(
        self,
        n: int,
        classes: int | None = None,
        samples: bool = True,
        lr: float = 0.1,
        lr_class: float = 0.1,
        init: float = 1.0,
        init_class: float = 1.0,
        weight_decay: float = 0.0,
        weight_decay_class: float = 0.0,
        momentum: float = 0.9,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.classes = classes = None if classes is None else checks.whole("classes", classes, 2)
        if not samples and classes is None:
            raise ValueError("samples=False and classes=None leave no temperature to learn; pass classes=C")
        checks.real("momentum", momentum, "[0, 1)")
        for name, value in {"init": init, "init_class": init_class}.items():
            checks.real(name, value, f"[{1 / LARGEST:g}, {LARGEST:g}]", "a temperature")
        rates = {"lr": lr, "lr_class": lr_class, "weight_decay": weight_decay, "weight_decay_class": weight_decay_class}
        for name, value in rates.items():
            checks.real(name, value, f"[0, {LARGEST:g}]")
        self.samples, self.momentum = samples, momentum
        self.lr, self.lr_class = lr, lr_class
        self.weight_decay, self.weight_decay_class = weight_decay, weight_decay_class
        self.bounds = [math.log(min(1 / BOUND, init, init_class)), math.log(max(BOUND, init, init_class))]
        rows = n if samples else 0
        self.add_rows("sample_log", torch.full((rows,), math.log(init), dtype=torch.float64))
        self.add_rows("sample_velocity", torch.zeros(rows, dtype=torch.float64))
        self.register_buffer("class_log", torch.full((classes or 0,), math.log(init_class), dtype=torch.float64))
        self.register_buffer("class_velocity", torch.zeros(classes or 0, dtype=torch.float64))

    def loss(self, step: Step) -> Tensor:
        """The average loss at the scaled logits."""
        losses, logits, sigma, _, _ = self._scaled(step)
        value = scaled_losses(losses, logits, sigma)
        return step.with_(losses=value).reduce(self.weigh(step))

    def weigh(self, step: Step) -> Tensor:
        """The average; the temperatures of the batch take their step."""
        losses, logits, sigma, sample, label = self._scaled(step)
        weights = step.uniform()
        gradient = weights * temperature_gradient(losses, logits, sigma)
        if sample is not None:
            self._step_samples(step.index, gradient * sample.exp())
        if label is not None:
            self._step_classes(step.batch.y[: len(step.index)], gradient * label.exp(), step)
        return weights

    def _scaled(self, step: Step) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor | None, Tensor | None]:
        """The loss of logits, the logits, their temperatures, and the log-temperatures of samples and classes."""
        logits, y = self._check(step)
        sample = self.sample_log[step.index] if self.samples else None
        label = self.class_log[y] if self.classes else None

        def losses(scaled: Tensor) -> Tensor:
            return step.batch.task.loss_fn(scaled, y)  # type: ignore[union-attr]

        return losses, logits, temperature(sample, label), sample, label

    def report(self) -> Mapping[str, Any]:
        """The mean temperature of samples and of classes."""
        logs = {"temperature": self.sample_log, "class_temperature": self.class_log}
        return {name: log.exp().mean() for name, log in logs.items() if len(log)}

    def _step_samples(self, index: Tensor, gradient: Tensor) -> None:
        log = self.sample_log[index]
        gradient = gradient + self.weight_decay * log
        change, velocity = momentum_step(gradient, self.sample_velocity[index], self.lr, self.momentum)
        self.sample_log[index] = (log + change).clamp(*self.bounds)
        self.sample_velocity[index] = velocity

    def _step_classes(self, y: Tensor, gradient: Tensor, step: Step) -> None:
        here = torch.stack([gradient, torch.ones_like(gradient)])
        summed, count = step.total(here.new_zeros(2, len(self.class_log)).index_add_(1, y, here))
        gradient = summed + count * self.weight_decay_class * self.class_log  # the authors' penalty is a sum over rows
        change, velocity = momentum_step(gradient, self.class_velocity, self.lr_class, self.momentum)
        # As for rows, only classes of this batch move, decay and keep momentum.
        self.class_log = torch.where(count > 0, (self.class_log + change).clamp(*self.bounds), self.class_log)
        self.class_velocity = torch.where(count > 0, velocity, self.class_velocity)

    def _check(self, step: Step) -> tuple[Tensor, Any]:
        logits, y = step.logits, step.batch.y
        if step.batch.task is None or step.batch.pair is not None:
            raise ValueError("DCL needs the loss function (Batch.task) and a batch that is not mixed")
        if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
            kind = checks.describe(logits)
            raise TypeError(f"DCL divides logits by temperatures: outputs must be (B, C) logits, but they are {kind}")
        y = y[: len(step.index)]  # padding on a rank without rows
        if step.epoch == 1 and not step.batch.step and y.is_floating_point() and bool(((y < 0) | (y > 1)).any()):
            raise TypeError("DCL divides logits by temperatures, but targets outside [0, 1] do not belong to logits")
        if self.classes and (y.dtype != torch.int64 or y.ndim != 1 or logits.shape[1] != self.classes):
            raise TypeError(
                f"class temperatures need int64 labels (B,) and {self.classes} logits, but labels are {y.dtype} of "
                f"shape {tuple(y.shape)} and there are {logits.shape[1]} logits"
            )
        return logits, y


register(
    "dcl",
    DCL,
    "a temperature per sample and class, learnt with the model",
    when="Classification with some wrong labels and many epochs: a temperature moves only when its row is visited.",
    cost="No extra pass; the loss function a second time on the logits; 17 bytes per sample.",
)
