"""trl: supervised fine-tuning, DPO and reward models with a weight per sequence or pair of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import LossFunction, distributed
from .sequences import IGNORED, ROWS, mean_of_tokens
from .transformers import CurriculumMixin

try:
    from datasets import Dataset
    from trl import DPOTrainer, RewardTrainer, SFTTrainer, pack_dataset
except ImportError as error:
    raise ImportError("this needs trl 1.16 or newer: pip install 'torchcurriculum[trl]'") from error

__all__ = ["CurriculumDPOTrainer", "CurriculumRewardTrainer", "CurriculumSFTTrainer"]

MIXTURE = "the auxiliary loss of a mixture of experts belongs to no row; set router_aux_loss_coef=0.0"


class CurriculumSFTTrainer(CurriculumMixin, SFTTrainer):
    """``trl.SFTTrainer`` with a method: the only new argument is ``method=``; see ``CurriculumMixin``.

    The loss of a sequence is the mean over the tokens that trl trains on: of the completion where there are prompts,
    of the assistant's turns with ``assistant_only_loss``. Uses trl's fused head, so no logits are kept. Rows are those
    of ``trainer.train_dataset``, after trl has tokenised it and dropped rows that are too long. With ``packing`` they
    stay single rows, and a batch has ``per_device_train_batch_size`` of trl's packs.
    """

    replaced_loss = SFTTrainer.compute_loss

    def _prepare_dataset(
        self, dataset: Any, processing_class: Any, args: Any, packing: bool, formatting_func: Any, dataset_name: str
    ) -> Any:
        joined = packing and dataset_name != "train"  # training rows are packed by number, in _begin_anew
        return super()._prepare_dataset(dataset, processing_class, args, joined, formatting_func, dataset_name)

    def _begin_anew(self, **changes: Any) -> None:
        if self.args.packing:
            self._packs = _packs(self.train_dataset, self.args.max_length)
        super()._begin_anew(**changes)
        if self.args.packing:
            self.curriculum.pack(self._packs)

    def _epochs(self, n: int) -> int:
        return super()._epochs(int(self._packs.max()) + 1 if self.args.packing else n)

    def default_loss(self) -> LossFunction:
        """The mean over a sequence's tokens."""
        return lambda losses, labels: mean_of_tokens(losses, labels[:, labels.shape[1] > losses.shape[1] :])

    def default_forward(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """The loss of each next token, (B, T - 1)."""
        outputs = model(**(_joined(inputs) if self.padding_free else inputs), use_cache=False, fused_lm_head=True)
        if self._stepping:
            self._note_metrics(outputs, inputs)
        return -(_apart(outputs.log_probs, inputs) if self.padding_free else outputs.log_probs)

    def unpack(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """All inputs, since the fused head needs the labels, and the labels."""
        return {name: value for name, value in inputs.items() if name != ROWS}, inputs["labels"]

    def training_collator(self) -> Any:
        """The trainer's own, but never joining rows: with ``padding_free`` they are joined after the method."""
        collate: Any = self.data_collator
        return dataclasses.replace(collate, padding_free=False) if self.padding_free else collate

    def refusals(self, loss_fn: LossFunction | None) -> dict[str, bool]:
        """Further settings that would join rows or change the loss of a token."""
        args: Any = self.args
        return super().refusals(loss_fn) | {
            f"packing_strategy={args.packing_strategy!r} cuts rows into pieces, but each row has its own weight; use "
            "'bfd'": args.packing and args.packing_strategy != "bfd",
            "the rows of train_dataset are packed already, but each row has its own weight; pass them unpacked": (
                "seq_lengths" in (getattr(self.train_dataset, "column_names", None) or ())
            ),
            "loss_type must be 'nll': the method weights the negative log-likelihood": args.loss_type != "nll",
            "trl's fused head does not support label_smoothing_factor": self.label_smoother is not None,
            MIXTURE: self.aux_loss_enabled,
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


class PairMixin(CurriculumMixin):
    """For trainers whose rows are pairs of a chosen and a rejected answer; see ``CurriculumMixin``.

    A pair is a row of two classes, and its label is 0: the outputs are (B, 2) rewards, the chosen one's first, and
    their cross-entropy is the usual loss, -log sigmoid(chosen - rejected). So class 1 as the suggested label means that
    a pair looks swapped.
    """

    noted: Mapping[str, str]  # trl's names for the numbers of a batch
    _metrics: Any
    _total_train_tokens: int

    def default_loss(self) -> LossFunction:
        """-log sigmoid(chosen - rejected)."""
        return lambda rewards, first: F.cross_entropy(rewards, first, reduction="none")

    def unpack(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """(B, 2, ...) inputs from trl's stacked ones, the chosen half first; and B zeros."""
        ids = inputs["input_ids"]
        pairs = len(ids) // 2
        x = {name: value for name, value in inputs.items() if name != ROWS}
        for name in [name for name, value in x.items() if len(value) == 2 * pairs]:
            x[name] = x[name].unflatten(0, (2, pairs)).transpose(0, 1)
        return x, ids.new_zeros(pairs)

    def default_forward(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """(B, 2) rewards of the chosen and the rejected answer."""
        flat = {key: value.transpose(0, 1).flatten(0, 1) if value.ndim == 3 else value for key, value in inputs.items()}
        rewards = self.rewards(model, flat)
        if self._stepping:
            self._note_metrics(rewards.detach().double(), inputs["attention_mask"])
        return rewards

    def rewards(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """(B, 2) rewards from inputs in trl's form."""
        raise NotImplementedError

    def _note_metrics(self, rewards: Tensor, mask: Tensor) -> None:
        """What trl logs in training, over all ranks."""
        chosen, rejected = rewards.unbind(1)
        one = torch.ones_like(chosen)
        sums = [chosen.sum(), rejected.sum(), (chosen > rejected).sum(), one.sum(), mask.sum()]
        chosen_sum, rejected_sum, right, pairs, tokens = distributed.total(
            torch.stack([x.double() for x in sums])
        ).tolist()
        numbers = {"chosen": chosen_sum, "rejected": rejected_sum, "right": right, "margin": chosen_sum - rejected_sum}
        self._total_train_tokens += int(tokens)
        for name, told in self.noted.items():
            self._metrics["train"][told].append(numbers[name] / pairs)
        self._metrics["train"]["num_tokens"] = [self._total_train_tokens]


class CurriculumDPOTrainer(PairMixin, DPOTrainer):
    """``trl.DPOTrainer`` with a method: the only new argument is ``method=``.

    The rewards of a pair are beta (log pi - log pi_ref) of its answers. The loss is that of ``loss_type="sigmoid"``, or
    any ``loss_fn(rewards, zeros) -> (B,)`` of the (B, 2) rewards.
    """

    replaced_loss = DPOTrainer.compute_loss
    noted = {  # noqa: RUF012
        "chosen": "rewards/chosen",
        "rejected": "rewards/rejected",
        "right": "rewards/accuracies",
        "margin": "rewards/margins",
    }

    def rewards(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """beta times the log-ratios to the reference model, computed here unless trl did so in advance."""
        known = [inputs.pop(name, None) for name in ("ref_chosen_logps", "ref_rejected_logps")]
        if known[0] is None:
            known = self.compute_ref_log_probs(self.ref_model or self.model, inputs)
        counted = inputs.pop("completion_mask")
        labels = inputs["input_ids"].masked_fill(counted == 0, IGNORED)
        outputs = model(**inputs, labels=labels, use_cache=False, fused_lm_head=True)
        logs = outputs.log_probs[:, 1 - labels.shape[1] :].sum(1)  # without a tuned prompt at the front
        return self.beta * (torch.stack(logs.chunk(2), 1) - torch.stack(list(known), 1))

    def refusals(self, loss_fn: LossFunction | None) -> dict[str, bool]:
        """Further settings: other losses, and terms that do not belong to one pair."""
        plain = not self.use_weighting and self.ld_alpha is None and self.f_divergence_type == "reverse_kl"
        return super().refusals(loss_fn) | {
            "loss_type must be 'sigmoid'; for another loss pass loss_fn(rewards, zeros), one value per pair": (
                self.loss_types != ["sigmoid"] or self.loss_weights != [1.0]
            ),
            "use_weighting, ld_alpha and f_divergence_type change the loss of a pair; leave them unset": not plain,
            "pairs with images are not supported": self._is_vision_dataset,
            MIXTURE: self.aux_loss_enabled,
        }


class CurriculumRewardTrainer(PairMixin, RewardTrainer):
    """``trl.RewardTrainer`` with a method: the only new argument is ``method=``.

    A column ``margin`` is subtracted from the chosen reward, as in trl.
    """

    replaced_loss = RewardTrainer.compute_loss
    noted = {"right": "accuracy", "margin": "margin"}  # noqa: RUF012

    def rewards(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """The model's rewards, with the margin subtracted from the chosen one."""
        margin = inputs.pop("margin", 0.0)
        chosen, rejected = model(**inputs, use_cache=False).logits.squeeze(-1).chunk(2)
        return torch.stack([chosen - margin, rejected], 1)

    def refusals(self, loss_fn: LossFunction | None) -> dict[str, bool]:
        """Further settings: a term that the usual loss does not have."""
        words = "center_rewards_coefficient adds a term to the loss; add it in loss_fn(rewards, zeros) instead"
        return super().refusals(loss_fn) | {words: self.args.center_rewards_coefficient is not None}


def _packs(data: Any, length: int) -> Tensor:
    """(N,) the number of the pack that trl puts each row into.

    Example:
        >>> _packs(Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9], [3], [4]]}), 4)
        tensor([0, 1, 0, 1])
    """
    rows = [[row] * len(ids) for row, ids in enumerate(data["input_ids"])]
    packed = pack_dataset(Dataset.from_dict({"rows": rows}), length, "bfd")["rows"]
    numbers = torch.empty(len(rows), dtype=torch.int64)
    for number, held in enumerate(packed):
        numbers[list(set(held))] = number
    return numbers


def _joined(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of a padded batch as one sequence without padding; positions restart at each row.

    Example:
        >>> mask, ids = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([[5, 6, 0], [7, 8, 9]])
        >>> joined = _joined({"input_ids": ids, "labels": ids, "attention_mask": mask})
        >>> {name: value.tolist() for name, value in joined.items()}
        {'input_ids': [[5, 6, 7, 8, 9]], 'labels': [[-100, 6, -100, 8, 9]], 'position_ids': [[0, 1, 0, 1, 2]]}
    """
    own = inputs["attention_mask"].bool()
    positions = (own.cumsum(1) - 1)[own][None]
    labels = inputs["labels"][own][None].masked_fill(positions == 0, IGNORED)
    return {"input_ids": inputs["input_ids"][own][None], "labels": labels, "position_ids": positions}


def _apart(values: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """(B, T - 1) the next-token values of a joined batch, split into rows again."""
    own = inputs["attention_mask"].bool()
    rows = values.new_zeros(own.shape)
    rows[own] = F.pad(values[0], (1, 0))
    return rows[:, 1:]
