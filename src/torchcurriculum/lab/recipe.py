"""A recipe: the complete, frozen description of a set of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal

from ..thresholds import Noise

__all__ = ["Recipe", "base_name", "later_settings", "options_of", "settings"]

KEPT = ("digest", "from", "asked")  # what else a folder's ``recipe.json`` holds
WORDS = ("methods", "seeds", "summary", "options", "audit")  # fields that do not change the result of a run


@dataclass(frozen=True)
class Recipe:
    """Everything that a set of runs depends on, except the code.

    Args:
        name: Its name on the command line.
        summary: What it shows, one line.
        data: Name of the data set.
        model: Name of the network; for text also a folder or hub name of an encoder.
        methods: Names for ``methods.build``; ``vanilla`` first. A variant is a method's name, ``@`` and another word,
            such as ``apw-e@pd``; ``options`` say how it differs.
        seeds: Split, label noise, initial weights and order all change with the seed.
        epochs: Epochs of each run.
        batch_size: Rows in a batch.
        lr: Learning rate.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of every parameter.
        lr_min: Where the cosine schedule ends.
        optimizer: ``"sgd"``, ``"adam"`` or ``"adamw"``.
        schedule: ``"cosine"``, ``"constant"``, or ``"step"``: a tenth after half of the epochs.
        clip: Largest norm of a gradient; None clips nothing.
        size: Side to which images are resized for the network; None keeps their size.
        weights: File of pretrained weights to start from, or None.
        partial_weights: Whether that file may lack tensors or hold values that are not finite.
        label: Column with the classes, for the user's own table; this and the next four are as in ``read_table``.
        id: Column that names the rows.
        drop: Columns to leave out.
        sep: Separator of the cells.
        encoding: Encoding of the file.
        noise_rate: Share of wrong training labels; it sets the paper's threshold.
        noise: ``"synthetic"`` flips that share of the labels; ``"inherent"`` means that the data came with them.
        one_set: The set that selects the best epoch also reports, because the protocol has no test labels.
        threshold: The error threshold e of APW: a number, or ``"paper"`` for the rule of the paper at ``noise_rate``.
        measure: Where the losses come from: ``"pass"`` or ``"running"``.
        precision: ``"float32"``, or ``"bfloat16"`` for mixed precision.
        compile: Whether training steps go through ``torch.compile``.
        audit: Whether to collect predictions for the audit, with passes over the training set in many epochs.
        options: Further options for a method or variant, by its name. Besides the method's own: ``threshold: "pd"``
            is the paper's parameter-dissimilarity estimate from the vanilla run of the same seed, and ``q_epochs: r``
            makes q r times the number of epochs; ``loss: "gce"`` is one of ``lab.given.LOSSES``; ``meta: "valid"`` are
            the validation rows, ``groups: "labels"`` the training labels, and ``irreducible: "valid"`` is a network
            trained on the validation rows.
    """

    name: str
    summary: str
    data: str
    model: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    lr_min: float = 1e-6
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    schedule: Literal["cosine", "constant", "step"] = "cosine"
    clip: float | None = None
    size: int | None = None
    weights: str | None = None
    partial_weights: bool = False
    label: str | None = None
    id: str | None = None
    drop: tuple[str, ...] | None = None
    sep: str | None = None
    encoding: str | None = None
    noise_rate: float = 0.0
    noise: Noise = "synthetic"
    one_set: bool = False
    threshold: float | Literal["paper", "auto"] = "paper"
    measure: Literal["pass", "running"] = "pass"
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    audit: bool = True
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def with_(self, **changes: Any) -> Recipe:
        """A copy with some fields replaced; the number of epochs in the summary is updated."""
        if "epochs" in changes and "summary" not in changes:
            changes["summary"] = self.summary.replace(f"{self.epochs} epochs", f"{changes['epochs']} epochs")
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def base_name(name: str) -> str:
    """The method's name of a variant such as ``apw-e@pd``."""
    return name.partition("@")[0]


def options_of(options: Any, name: str) -> dict[str, Any]:
    """A recipe's options for a method or variant; ``options`` may come from foreign JSON."""
    parts = [options.get(key) for key in (base_name(name), name)] if isinstance(options, Mapping) else []
    return {key: value for part in parts if isinstance(part, Mapping) for key, value in part.items()}


def settings(held: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe in JSON, also of an earlier version, that decide the result of a run of any method.

    Methods and seeds only select the runs, and options belong to methods.
    """
    known = {one.name: held.get(one.name, one.default) for one in fields(Recipe)}
    return {key: value for key, value in {**known, **held}.items() if key not in WORDS and value is not MISSING}


def later_settings(held: Mapping[str, Any]) -> str:
    """The settings in a folder's ``recipe.json`` that only a later version knows, separated by commas."""
    known = {*KEPT, *(one.name for one in fields(Recipe))}
    return ", ".join(str(key) for key, value in held.items() if key not in known and value is not None)
