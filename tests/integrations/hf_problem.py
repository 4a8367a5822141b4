"""A tiny problem for the trainers of transformers: BERT from a config, 37 sequences, every fifth label wrong."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from torchcurriculum import Method, methods
from torchcurriculum.integrations.transformers import CurriculumTrainer

N, LENGTH, EPOCHS = 37, 6, 3
gc.freeze()  # the trainer collects garbage whenever it starts, and half a second would go into looking at modules


def rows(labels: list[int] | None = None, n: int = N) -> Dataset:
    """Class 1 has more tokens above 10; ``note`` is a column that no model takes."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 20, (n, LENGTH), generator=generator)
    y = ((ids > 10).sum(1) > 3).long()
    y[::5] = 1 - y[::5]
    columns = {"input_ids": ids.tolist(), "labels": labels or y.tolist(), "note": [f"row {row}" for row in range(n)]}
    return Dataset.from_dict(columns)


def bert(dropout: float = 0.0, kind: type = BertForSequenceClassification, **options: Any) -> Any:
    """A BERT of one layer, in float64 so that one process and two, or one batch and four, can agree."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = BertConfig(
            vocab_size=20, max_position_embeddings=8, initializer_range=0.5, **sizes, **dropouts, **options
        )
        return kind(config).double()


def settings(folder: Path, **options: Any) -> TrainingArguments:
    """Plain SGD without clipping, all quiet."""
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_train_epochs": EPOCHS,
        "optim": "sgd",
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1e9,  # clips nothing; transformers 4 knows the norm only where it clips
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 5,
        **options,
    }
    return TrainingArguments(**given)


KNOBS: dict[str, dict[str, Any]] = {"s-apw-e": {"fraction": 0.4}}


def method(name: str, n: int = N) -> Method:
    """A method that is done growing before the last epoch."""
    return methods.build(name, n, EPOCHS, **KNOBS.get(name, {}))


def trainer(name: str, folder: Path, model: Any = None, data: Any = None, more: Any = None, **options: Any) -> Any:
    """A trainer with the method of this name; ``more`` are its own arguments, ``options`` those of its settings."""
    data = rows() if data is None else data
    given = {"train_dataset": data, "method": method(name, len(data)), **(more or {})}
    return CurriculumTrainer(bert() if model is None else model, settings(folder, **options), **given)


def tensors(trained: Any) -> dict[str, Tensor]:
    """Parameters and the method's state."""
    state = {f"net.{name}": value.clone() for name, value in trained.model.state_dict().items()}
    return state | {f"method.{name}": value.clone() for name, value in trained.curriculum.method.state_dict().items()}
