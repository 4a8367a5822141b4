"""``shuffle=False``: rows arrive at the model in the order of the training set, in every loop and after a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchcurriculum import Curriculum
from torchcurriculum.integrations.transformers import ONE_LOOP

from ..contract.problem import N, data, model
from . import hf_problem, lightning_problem

ORDER = list(range(N))


def watched(net: nn.Module, key: Callable[[Any, dict[str, Any]], torch.Tensor], known: torch.Tensor) -> list[int]:
    """The rows that the network is trained on from now on, told by what it is given."""
    table = {tuple(row): number for number, row in enumerate(known.flatten(1).tolist())}
    assert len(table) == len(known)
    seen: list[int] = []

    def note(net: nn.Module, given: Any, named: dict[str, Any]) -> None:
        if net.training:
            seen.extend(table[tuple(row)] for row in key(given, named).flatten(1).tolist())

    net.register_forward_pre_hook(note, with_kwargs=True)
    return seen


def images(net: nn.Module) -> list[int]:
    return watched(net, lambda given, named: given[0], data().x)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [2, 5])  # inside an epoch, and behind its last batch
def test_in_a_plain_loop(workers: int, stop: int) -> None:
    def loop(curriculum: Curriculum, net: nn.Module, epochs: int, stop: int = 99) -> None:
        for _ in range(epochs):
            for batch in curriculum.epoch(net):
                curriculum.loss(net, batch)
                if curriculum.steps_done == stop:
                    return

    options: dict[str, Any] = {"batch_size": 8, "shuffle": False, "workers": workers, "epochs": 2}
    net = model()
    seen = images(net)
    first = Curriculum("vanilla", lightning_problem.rows(), **options)
    loop(first, net, 1, stop)
    again = Curriculum("vanilla", lightning_problem.rows(), **options)
    again.load_state_dict(first.state_dict())
    loop(again, net, 2)
    assert seen == ORDER + ORDER


def test_a_plan_keeps_its_order() -> None:
    options = {"scores": [-row for row in ORDER], "buckets": 2}
    curriculum = Curriculum(
        "baby-step", lightning_problem.rows(), epochs=4, batch_size=8, shuffle=False, method_options=options
    )
    curriculum.start(model())
    assert torch.cat(curriculum.batches()).tolist() == ORDER[N - N // 2 :]


def test_a_state_of_another_order_is_refused_inside_an_epoch() -> None:
    curriculum, net = Curriculum("vanilla", lightning_problem.rows(), epochs=1, batch_size=8, shuffle=False), model()
    next(batches := curriculum.epoch(net))
    next(batches)
    other = Curriculum("vanilla", lightning_problem.rows(), epochs=1, batch_size=8)
    with pytest.raises(ValueError, match="with seed 0, batch_size 8, shuffle False; with .* shuffle True it cannot"):
        other.load_state_dict(curriculum.state_dict())
    old = {name: value for name, value in curriculum.state_dict().items() if name != "shuffle"}
    other.load_state_dict(old)  # of a version that always shuffled


@pytest.mark.filterwarnings(
    "ignore:.*(does not have many workers|treespec, LeafSpec|have no `val_dataloader`|callbacks used to).*"
)
@pytest.mark.filterwarnings("ignore:.*(smaller than the logging interval|shuffling|exists and is not empty|sampler).*")
@pytest.mark.parametrize("workers", [0, 2])
def test_in_lightning(workers: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"accumulate_grad_batches": 2, "max_epochs": 2, "default_root_dir": tmp_path / "root"}
    loader = lightning_problem.loader(shuffle=False, num_workers=workers)
    package = lightning_problem.PACKAGES[0]

    def fit(*callbacks: Any, **given: Any) -> list[int]:
        net = lightning_problem.module()
        seen = images(net.net)
        made = lightning_problem.trainer(package, lightning_problem.callback("vanilla"), *callbacks, **options)
        made.fit(net, loader, **given)
        return seen

    options["enable_checkpointing"] = True
    assert fit(lightning_problem.saving(tmp_path, every_n_train_steps=1)) == ORDER + ORDER
    assert fit(ckpt_path=tmp_path / "epoch=0-step=1.ckpt") == ORDER[16:] + ORDER


OPTIONS: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
OPTIONS |= {"save_strategy": "steps", "save_steps": 1, "train_sampling_strategy": "sequential"}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.skipif(not hasattr(torch, "accelerator"), reason="transformers itself resumes with torch 2.6 and up")
@pytest.mark.skipif(ONE_LOOP, reason="transformers 4 has no train_sampling_strategy")
def test_in_transformers(workers: int, tmp_path: Path) -> None:
    def run(resume: Any = None) -> list[int]:
        net = hf_problem.bert()
        seen = watched(net, lambda given, named: named["input_ids"], torch.tensor(hf_problem.rows()["input_ids"][:]))
        made = hf_problem.trainer("vanilla", tmp_path, net, dataloader_num_workers=workers, **OPTIONS)
        made.train(resume_from_checkpoint=resume)
        return seen

    assert run() == ORDER + ORDER
    assert run(str(tmp_path / "checkpoint-2")) == ORDER[16:] + ORDER


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.skipif(ONE_LOOP, reason="transformers 4 has no train_sampling_strategy")
def test_in_trl(workers: int, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from . import test_trl

    def run(resume: Any = None) -> list[int]:
        net = test_trl.llama()
        known = [tuple(item["input_ids"]) for item in made_data]
        seen: list[int] = []

        def note(net: nn.Module, given: Any, named: dict[str, Any]) -> None:
            for ids, mask in zip(named["input_ids"].tolist(), named["attention_mask"].bool().tolist(), strict=True):
                seen.append(known.index(tuple(token for token, own in zip(ids, mask, strict=True) if own)))

        net.register_forward_pre_hook(note, with_kwargs=True)
        made = test_trl.trainer("vanilla", tmp_path, more={"model": net}, dataloader_num_workers=workers, **OPTIONS)
        made.train(resume_from_checkpoint=resume)
        return seen

    made_data = test_trl.trainer("vanilla", tmp_path).train_dataset
    assert len({tuple(item["input_ids"]) for item in made_data}) == test_trl.N
    order = list(range(test_trl.N))
    assert run() == order + order
    assert run(str(tmp_path / "checkpoint-2")) == order[16:] + order
