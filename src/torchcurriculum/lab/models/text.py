"""BERT-like text classifiers through `transformers`, by name, from a local folder, or from the packaged MiniLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ...clean.text import encoder_place

__all__ = ["text_classifier", "text_tokenizer"]

TOGETHER = 13  # rows of similar length per batch on a CPU; measured on RTE


def text_tokenizer(name: str, download: bool = False) -> Any:
    """The tokenizer of an encoder.

    Args:
        name: As in ``encoder_place``.
        download: Whether ``transformers`` may get it from its hub; otherwise only local files are used.
    """
    return _from("AutoTokenizer", name, download)


def text_classifier(name: str, classes: int = 2, download: bool = False) -> nn.Module:
    """An encoder with a linear layer for ``classes`` on top; it takes a dict of tensors and returns logits.

    Args:
        name: As in ``encoder_place``.
        classes: Outputs C.
        download: Whether ``transformers`` may get it from its hub; otherwise only local files are used.

    Returns:
        The network; the weights of its last layer are drawn from the global generator.
    """
    model = _from("AutoModelForSequenceClassification", name, download, num_labels=classes, use_safetensors=True)
    return TextClassifier(model.float())


class TextClassifier(nn.Module):
    """A model of `transformers` as a function of one input.

    On a CPU padding costs as much as text, so a batch is split into parts of similar length; the logits are the same.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Mapping[str, Tensor]) -> Tensor:
        mask = x["attention_mask"]
        if mask.device.type != "cpu" or len(mask) <= TOGETHER:
            return self.inner(**x).logits
        length = mask.sum(1)
        order = length.argsort(stable=True)
        parts = [
            self.inner(**{name: column[rows, : int(length[rows].max())] for name, column in x.items()}).logits
            for rows in order.split(TOGETHER)
        ]
        return torch.cat(parts)[order.argsort()]


def _from(kind: str, name: str, download: bool, **options: Any) -> Any:
    place = encoder_place(name)
    try:
        import transformers
    except ImportError as error:
        raise ImportError("text encoders need transformers: pip install 'torchcurriculum[text]'") from error
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # hides the warning about the new last layer
    try:
        made = getattr(transformers, kind)
        return made.from_pretrained(place, local_files_only=not download, trust_remote_code=False, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"{name!r} is not a readable encoder: {' '.join(str(error).split())[:200]}. "
            "Pass a folder with config.json and model.safetensors, or 'minilm'"
        ) from error
    finally:
        transformers.logging.set_verbosity(level)
