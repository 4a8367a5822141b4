"""Per-sample losses for wrong labels and imbalanced classes; each is a ``loss_fn``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import checks
from ..functional import imbalance, robust
from ..functional.robust import estimate_transition

__all__ = [
    "LDAM",
    "Bootstrapped",
    "ClassBalanced",
    "Focal",
    "ForwardCorrected",
    "GeneralisedCrossEntropy",
    "LogitAdjusted",
    "SymmetricCrossEntropy",
    "estimate_transition",
]


class _ClassLoss(nn.Module):
    """Abstract: (B,) losses of logits (B, C) and labels: (B,) whole numbers, or (B, C) probabilities."""

    hard = False  # whether only integer labels are allowed
    reduction = "none"  # as in PyTorch's criteria, so that ``weighted`` accepts it

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) losses.

        Args:
            outputs: (B, C) logits; half precision is computed in float32.
            y: (B,) labels, or (B, C) probabilities.
        """
        name = type(self).__name__
        if not isinstance(outputs, Tensor) or outputs.ndim != 2:
            raise ValueError(f"{name} takes logits of shape (B, C), got {checks.describe(outputs)}")
        logits = checks.at_least_float32(outputs)
        if any(buffer.device != logits.device for buffer in self.buffers()):
            self.to(logits.device)
        for buffer in self.buffers():
            if buffer.shape[-1] != logits.shape[1]:
                held = buffer.shape[-1]
                raise ValueError(f"{name} was made for {held} classes and the model has {logits.shape[1]} outputs")
        whole = isinstance(y, Tensor) and y.shape == logits.shape[:1] and not y.is_floating_point()
        soft = isinstance(y, Tensor) and y.shape == logits.shape and y.is_floating_point()
        if not whole and not (soft and not self.hard):
            wants = "labels (B,) of whole numbers" + ("" if self.hard else " or probabilities (B, C)")
            got = f"{checks.describe(y)} for logits of shape {tuple(logits.shape)}"
            raise ValueError(f"{name} takes {wants}, got {got}")
        if self.hard:
            return self.losses(logits, y.long())
        if whole:
            return self.losses(logits, torch.zeros_like(logits).scatter_(1, y.long()[:, None], 1.0))
        return self.losses(logits, y.to(logits.dtype))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B,) losses of logits (B, C) and targets (B, C); of labels (B,) where ``hard``."""
        raise NotImplementedError


class GeneralisedCrossEntropy(_ClassLoss):
    """L_q between cross-entropy (q -> 0) and the mean absolute error (q = 1), which is robust to wrong labels.

    Args:
        q: In (0, 1]; the authors take 0.7.

    Example:
        >>> GeneralisedCrossEntropy()(torch.zeros(1, 2), torch.tensor([0]))            # (1 - 0.5 ** 0.7) / 0.7
        tensor([0.5492])

    Reference:
        Zhang and Sabuncu, Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, NeurIPS
        2018. The truncated variant is not included; ``small-loss`` drops rows with any loss.
    """

    def __init__(self, q: float = 0.7) -> None:
        super().__init__()
        checks.real("q", q, "(0, 1]", "0.7 is the authors'")
        self.q = q

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """L_q."""
        return robust.generalised_cross_entropy(logits, targets, self.q)


class SymmetricCrossEntropy(_ClassLoss):
    """alpha times cross-entropy plus beta times the reverse one.

    Args:
        alpha: The authors take 0.1 for CIFAR-10 and 6 for CIFAR-100.
        beta: The authors take 1 for CIFAR-10 and 0.1 for CIFAR-100.

    Example:
        >>> SymmetricCrossEntropy()(torch.zeros(1, 2), torch.tensor([0]))              # log(2) / 10 + log(1e4) / 2
        tensor([4.6745])

    Reference:
        Wang et al., Symmetric Cross Entropy for Robust Learning with Noisy Labels, ICCV 2019.
    """

    def __init__(self, alpha: float = 0.1, beta: float = 1.0) -> None:
        super().__init__()
        checks.real("alpha", alpha, "[0, inf)")
        checks.real("beta", beta, "[0, inf)")
        self.alpha, self.beta = alpha, beta

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The weighted sum of the two."""
        return robust.symmetric_cross_entropy(logits, targets, self.alpha, self.beta)


class Bootstrapped(_ClassLoss):
    """Cross-entropy with a target that is partly the network's own prediction.

    Args:
        hard: Whether that part is only the most probable class. False uses the probabilities.
        beta: Trust in the label, in [0, 1]; 1 is cross-entropy. None is the authors' choice: 0.8 if hard, else 0.95.

    Example:
        >>> Bootstrapped(hard=True)(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
        tensor([1.1133])

    Reference:
        Reed et al., Training Deep Neural Networks on Noisy Labels with Bootstrapping, 2014.
    """

    def __init__(self, hard: bool = False, beta: float | None = None) -> None:
        super().__init__()
        beta = (0.8 if hard else 0.95) if beta is None else beta
        checks.real("beta", beta, "[0, 1]", "1 is cross-entropy")
        self.own_argmax, self.beta = bool(hard), beta

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The bootstrapped cross-entropy."""
        return robust.bootstrapped_cross_entropy(logits, targets, self.beta, self.own_argmax)


class Focal(_ClassLoss):
    """Cross-entropy times (1 - p)^gamma: confident rows count less, so wrong labels count more.

    Args:
        gamma: >= 0; 0 is cross-entropy, 2 the authors'.

    Example:
        >>> Focal()(torch.zeros(1, 2), torch.tensor([0]))                # log 2 / 4
        tensor([0.1733])

    Reference:
        Lin et al., Focal Loss for Dense Object Detection, ICCV 2017; here with a softmax over classes.
    """

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        checks.real("gamma", gamma, "[0, inf)", "0 is cross-entropy")
        self.gamma = gamma

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The focal loss."""
        return robust.focal_loss(logits, targets, self.gamma)


class ClassBalanced(_ClassLoss):
    """Cross-entropy weighted by the inverse effective number of the label's class; the class weights have mean one.

    Args:
        counts: (C,) rows of each class: ``torch.bincount(labels)``.
        beta: In [0, 1); 0 is cross-entropy, 0.9999 the authors' for CIFAR.

    Example:
        >>> ClassBalanced([1, 2], beta=0.5)(torch.zeros(2, 2), torch.tensor([0, 1]))   # 1.2 and 0.8 times log 2
        tensor([0.8318, 0.5545])

    Reference:
        Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019.
    """

    weights: Tensor

    def __init__(self, counts: Tensor | Sequence[int], beta: float = 0.9999) -> None:
        super().__init__()
        checks.real("beta", beta, "[0, 1)", "0 is cross-entropy")
        self.register_buffer(
            "weights", imbalance.effective_weights(checks.class_counts(counts), beta), persistent=False
        )

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The weighted cross-entropy."""
        return -(targets * self.weights.to(logits) * F.log_softmax(logits, 1)).sum(1)


class LogitAdjusted(_ClassLoss):
    """Cross-entropy of the logits plus tau times the log share of each class, so that rare classes need larger logits.

    Args:
        counts: (C,) rows of each class: ``torch.bincount(labels)``.
        tau: >= 0; 0 is cross-entropy, 1 the authors'.

    Example:
        >>> LogitAdjusted([3, 1])(torch.zeros(2, 2), torch.tensor([0, 1]))             # -log 3/4 and -log 1/4
        tensor([0.2877, 1.3863])

    Reference:
        Menon et al., Long-Tail Learning via Logit Adjustment, ICLR 2021.
    """

    shift: Tensor

    def __init__(self, counts: Tensor | Sequence[int], tau: float = 1.0) -> None:
        super().__init__()
        checks.real("tau", tau, "[0, inf)", "0 is cross-entropy")
        self.register_buffer("shift", tau * imbalance.log_priors(checks.class_counts(counts)), persistent=False)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of the adjusted logits."""
        return F.cross_entropy(logits + self.shift.to(logits), targets, reduction="none")


class LDAM(_ClassLoss):
    """Cross-entropy with a margin that is larger for rare classes. The method ``drw`` adds the deferred re-weighting.

    Args:
        counts: (C,) rows of each class: ``torch.bincount(labels)``.
        margin: The margin of the rarest class; 0.5 is the authors'.
        scale: Factor of the logits. The authors' 30 is for cosine outputs, from a last layer with unit weights and
            features; ordinary logits need about 1.

    Example:
        >>> LDAM([16, 1], scale=1.0)(torch.tensor([[0.25, 0.0]]), torch.tensor([0]))   # the margin is 1/4: level
        tensor([0.6931])

    Reference:
        Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.
    """

    hard = True
    margins: Tensor

    def __init__(self, counts: Tensor | Sequence[int], margin: float = 0.5, scale: float = 30.0) -> None:
        super().__init__()
        checks.real("margin", margin, "[0, inf)", "0 is cross-entropy")
        checks.real("scale", scale, "(0, inf)")
        self.scale = scale
        self.register_buffer("margins", imbalance.class_margins(checks.class_counts(counts), margin), persistent=False)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy with margins; ``targets`` are labels (B,)."""
        return imbalance.margin_loss(logits, targets, self.margins, self.scale)


class ForwardCorrected(_ClassLoss):
    """Cross-entropy of the predictions as a transition matrix would corrupt them, so that the network learns the truth.

    Args:
        transition: (C, C) T, the probability that a row of class i is given label j, known or from
            ``estimate_transition``.

    Example:
        >>> T = torch.tensor([[0.8, 0.2], [0.0, 1.0]])
        >>> ForwardCorrected(T)(torch.zeros(1, 2), torch.tensor([0]))    # -log 0.4
        tensor([0.9163])

    Reference:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: A Loss Correction Approach, CVPR 2017.
    """

    transition: Tensor

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        known = transition.detach().double() if isinstance(transition, Tensor) else torch.empty(0)
        square = known.ndim == 2 and known.shape[0] == known.shape[1]
        if not square or not bool((known >= 0).all()) or not bool(((known.sum(1) - 1).abs() < 1e-3).all()):
            got = checks.describe(transition)
            raise ValueError(f"transition must be a tensor (C, C) >= 0 whose rows sum to one, got {got}")
        if bool((known.sum(0) == 0).any()):
            never = (known.sum(0) == 0).nonzero().flatten().tolist()
            raise ValueError(f"the columns {never[:8]} of transition are zero; these labels would never be given")
        self.register_buffer("transition", known.clone(), persistent=False)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The corrected cross-entropy."""
        return robust.forward_corrected(logits, targets, self.transition)
