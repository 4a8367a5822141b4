"""trl: `CurriculumSFTTrainer`, supervised fine-tuning in which each sequence has a weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import LossFunction, distributed
from .sequences import ROWS, mean_of_tokens
from .transformers import CurriculumMixin

try:
    from trl import SFTTrainer
except ImportError as error:
    raise ImportError("this needs trl 1.16 or newer: pip install 'torchcurriculum[trl]'") from error

__all__ = ["CurriculumSFTTrainer"]


class CurriculumSFTTrainer(CurriculumMixin, SFTTrainer):
    """``trl.SFTTrainer`` with a method: the only new argument is ``method=``; see ``CurriculumMixin``.

    The loss of a sequence is the mean over the tokens that trl trains on: of the completion where there are prompts,
    of the assistant's turns with ``assistant_only_loss``. The fused head of trl is used, so no logits are kept. Rows
    are those of ``trainer.train_dataset``, which trl has tokenised and from which it has dropped what is too long.
    """

    def default_loss(self) -> LossFunction:
        """The mean over a sequence's own tokens."""
        return lambda losses, labels: mean_of_tokens(losses, labels[:, labels.shape[1] > losses.shape[1] :])

    def default_forward(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """The loss of each next token, (B, T - 1)."""
        outputs = model(**inputs, use_cache=False, fused_lm_head=True)
        if self._stepping:
            self._note_metrics(outputs, inputs)
        return -outputs.log_probs

    def unpack(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Everything, since the fused head needs the labels, and the labels."""
        return {name: value for name, value in inputs.items() if name != ROWS}, inputs["labels"]

    def refusals(self, loss_fn: LossFunction | None) -> dict[str, bool]:
        """Beside those of any trainer, what would join several rows into one or change the loss of a token."""
        args: Any = self.args
        return super().refusals(loss_fn) | {
            "packing and padding_free put several rows into one sequence, and each row has a weight of its own": (
                args.packing or self.padding_free
            ),
            "loss_type must be 'nll': the method weighs the negative log-likelihood": args.loss_type != "nll",
            "label_smoothing_factor is not known to trl's fused head": self.label_smoother is not None,
            "the auxiliary loss of a mixture of experts is of no row; set router_aux_loss_coef=0.0": (
                self.aux_loss_enabled
            ),
        }

    def _note_metrics(self, outputs: Any, inputs: dict[str, Any]) -> None:
        """What trl logs in training, over all ranks."""
        sums = [outputs.label_mask.sum(), outputs.entropy.sum(), outputs.is_top1.sum(), inputs["attention_mask"].sum()]
        valid, entropy, right, tokens = distributed.total(torch.stack([x.detach().double() for x in sums])).tolist()
        self._total_train_tokens += int(tokens)
        metrics = self._metrics["train"]
        metrics["entropy"].append(entropy / max(valid, 1))
        metrics["mean_token_accuracy"].append(right / max(valid, 1))
        metrics["num_tokens"] = [self._total_train_tokens]
