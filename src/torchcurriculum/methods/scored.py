"""`Scored`: any method, with per-sample scores collected from its steps."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks
from ..functional.scores import error_norms, gradient_norms, margins
from ._base.classes import check_classes
from ._base.wrapper import Wrapper

__all__ = ["Scored"]

Score = Literal["aum", "el2n", "forgetting", "grand"]
SEEN, MARGIN, ERROR, FORGOTTEN, RIGHT, LEARNT, EPOCH = range(7)
CHUNK = 16  # gradients at a time


class Scored(Wrapper):
    r"""Trains like the method inside and collects scores for each row from its steps, without an extra pass.

    - ``aum``, area under the margin: the mean over the epochs of the label's logit minus the largest other one. Low for
      wrong labels.
    - ``el2n``: :math:`\lVert softmax(z) - y \rVert_2` in the last epoch of the first ``early``.
    - ``forgetting``: how often a row went from right to wrong between two visits; rows never right count as
      forgotten at every visit, as in the authors' code.
    - ``grand``, with an epoch for it: the norm of the row's gradient at its start. This costs a pass with a gradient
      for every row.

    All are from one run, with outputs in training mode. The papers of EL2N and GraNd average over several runs, which
    is up to you; VoG needs snapshots of the model (``functional.scores.variance_of_gradients``).

    Args:
        method: The method to train with.
        n: Rows of the training set.
        early: Epochs after which EL2N is fixed; the paper's 10 to 20 of 200.
        grand: The epoch at whose start GraNd is measured; None disables it.

    Example:
        >>> from torchcurriculum import Vanilla
        >>> scored = Scored(Vanilla(), n=2)
        >>> for epoch, z in enumerate(([[2.0, 0.0], [1.0, 0.0]], [[3.0, 0.0], [0.0, 4.0]]), 1):
        ...     batch = Batch(None, torch.tensor([0, 0]), torch.arange(2), epoch=epoch)
        ...     _ = scored.loss(Step(None, batch, torch.tensor(z), torch.zeros(2)))
        >>> scored.arrays()["aum"], scored.arrays()["forgetting"]
        (array([ 2.5, -1.5], dtype=float32), array([0., 1.], dtype=float32))

    Reference:
        Pleiss et al., Identifying Mislabeled Data using the Area Under the Margin Ranking, NeurIPS 2020 (AUM).
        Paul, Ganguli and Dziugaite, Deep Learning on a Data Diet, NeurIPS 2021 (EL2N, GraNd).
        Toneva et al., An Empirical Study of Example Forgetting during Deep Neural Network Learning, ICLR 2019.
    """

    needs_classes = True
    method: Method
    notes: Tensor
    norms: Tensor

    def __init__(self, method: Method, n: int, early: int = 10, grand: int | None = None) -> None:
        super().__init__(method=method)
        rows = getattr(self, "n", n)
        self.n = checks.whole("n", n, what="the number of training rows")
        if rows != n:
            raise ValueError(f"n of Scored is {n}, but the method inside was made for {rows} rows; pass n={rows}")
        self.early = checks.whole("early", early, what="a number of epochs")
        self.grand = None if grand is None else checks.whole("grand", grand, what="the number of an epoch")
        self.add_rows("notes", torch.zeros(n, 7))
        self.register_buffer("norms", torch.full((0 if grand is None else n,), torch.nan))

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The inner method's; also measures GraNd if requested."""
        if epoch.number == self.grand:
            self.norms.copy_(epoch.measure(_norms))
        return self.method.plan(epoch)

    def loss(self, step: Step) -> Tensor:
        """The inner method's; batches of mixtures are not scored."""
        loss = self.method.loss(step)
        if step.batch.pair is None:
            self._note(step)
        return loss

    def arrays(self) -> dict[str, np.ndarray]:
        """For ``record.set_array``: (N,) float32 by the name of the score; NaN for rows never seen."""
        notes = self.notes.cpu()
        seen, never = notes[:, SEEN], notes[:, SEEN] == 0
        found = {
            "aum": notes[:, MARGIN] / seen,
            "el2n": notes[:, ERROR],
            "forgetting": torch.where(notes[:, LEARNT] > 0, notes[:, FORGOTTEN], seen),
            "grand": self.norms.cpu(),
        }
        found = {name: values.masked_fill(never, torch.nan) for name, values in found.items() if len(values)}
        return {name: values.numpy() for name, values in found.items()}

    def difficulty(self, score: Score) -> Tensor:
        """(N,) a score as ``scores=`` of a paced method: larger is harder, and rows never seen are hardest."""
        arrays = self.arrays()
        checks.one_of("score", score, list(arrays))
        values = torch.from_numpy(-arrays[score] if score == "aum" else arrays[score])
        return values.nan_to_num(torch.inf)

    @torch.no_grad()
    def _note(self, step: Step) -> None:
        """Updates each row once per epoch; a repeated step changes nothing."""
        logits, labels = check_classes(getattr(step.logits, "logits", step.logits), step.batch.y, "Scored")
        logits, before = checks.at_least_float32(logits.detach()), self.notes[step.index]
        right = (logits.argmax(1) == labels).float()
        now = torch.stack(
            [
                before[:, SEEN] + 1,
                before[:, MARGIN] + margins(logits, labels),
                error_norms(logits, labels).float() if step.epoch <= self.early else before[:, ERROR],
                before[:, FORGOTTEN] + (before[:, RIGHT] > right),
                right,
                before[:, LEARNT].maximum(right),
                torch.full_like(right, step.epoch),
            ],
            1,
        )
        fresh = before[:, EPOCH, None] < step.epoch
        self.notes.index_copy_(0, step.index, torch.where(fresh, now.float(), before))


def _norms(model: nn.Module, batch: Batch) -> Tensor:
    assert batch.task is not None
    return gradient_norms(model, batch.x, batch.y, batch.task.loss_fn, batch.task.forward, CHUNK).float()
