"""Lightning's loop gives the run of the plain loop, resumes from its own checkpoints, and bad input is refused."""

from __future__ import annotations

import csv
import importlib
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

pytest.importorskip("lightning", reason="needs torchcurriculum[lightning]")

from torchcurriculum import APW, Curriculum, methods
from torchcurriculum.integrations.lightning import CurriculumCallback

from ..contract.problem import N, model
from .lightning_problem import (
    BATCH,
    EPOCHS,
    PACKAGES,
    Growing,
    Noisy,
    assert_equal,
    callback,
    loader,
    module,
    outcome,
    plain,
    rows,
    saving,
    trainer,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory.*exists and is not empty.*"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`.*"),
]


LIGHTNING = tuple(int(part) for part in version("lightning").split(".")[:2])


def missing(name: str) -> str:
    """Why a package cannot be tested here, if so."""
    if find_spec(name.split(".")[0]) is None:
        return f"needs {name}"
    if LIGHTNING < (2, 6) and name.split(".")[0] != CurriculumCallback.__base__.__module__.split(".")[0]:
        return "before 2.6 a trainer takes callbacks of its own package only, which is the one that was imported first"
    return ""


BOTH = [pytest.param(name, marks=pytest.mark.skipif(bool(missing(name)), reason=missing(name))) for name in PACKAGES]


def fitted(package: str, name: str, way: str = "criterion", **options: Any) -> tuple[Any, CurriculumCallback]:
    net, curriculum = module(package, way), callback(name, **options.pop("settings", {}))
    train = options.pop("train", None) or loader()
    trainer(package, curriculum, **options).fit(net, train, options.pop("valid", None))
    return net, curriculum


# ---------------------------------------------------------------- the same run


@pytest.mark.parametrize("package", BOTH)
@pytest.mark.parametrize("name", ["vanilla", "apw-e", "apw-ei", "s-apw-e", "superloss", "rapw", "elr"])
def test_lightning_gives_the_run_of_the_plain_loop(package: str, name: str) -> None:
    net, curriculum = fitted(package, name)
    assert_equal((net.net, curriculum.curriculum), plain(name))


@pytest.mark.parametrize("name", ["rapw", "elr"])
def test_a_criterion_may_be_called_by_name_in_any_order(name: str) -> None:
    net, held = module(), callback(name)
    net.training_step = lambda batch, batch_idx: net.criterion(target=batch[1], input=net(batch[0]))
    trainer(PACKAGES[0], held).fit(net, loader())
    assert_equal((net.net, held.curriculum), plain(name))


@pytest.mark.parametrize("measure", ["pass", "running"])
@pytest.mark.parametrize("name", ["apw-i", "s-apw-e"])
def test_with_accumulated_gradients(name: str, measure: str) -> None:
    net, curriculum = fitted(PACKAGES[0], name, accumulate_grad_batches=2, settings={"measure": measure})
    assert_equal((net.net, curriculum.curriculum), plain(name, measure, accumulate=2))


@pytest.mark.parametrize(("way", "name"), [("call", "apw-ei"), ("call", "vanilla"), ("loss", "mixup")])
def test_the_call_in_training_step(way: str, name: str) -> None:
    losses = nn.CrossEntropyLoss(reduction="none")
    net, curriculum = fitted(PACKAGES[0], name, way, settings={"loss_fn": losses})
    assert_equal((net.net, curriculum.curriculum), plain(name))


def test_the_call_needs_no_loss_function_where_nothing_is_measured() -> None:
    net, curriculum = fitted(PACKAGES[0], "apw-e", "call", settings={"measure": "running"})
    assert_equal((net.net, curriculum.curriculum), plain("apw-e", "running"))


@pytest.mark.parametrize("workers", [0, 2])
def test_random_transforms_are_a_function_of_the_seed(workers: int) -> None:
    net, curriculum = fitted(PACKAGES[0], "apw-e", train=loader(Noisy(), num_workers=workers))
    assert_equal((net.net, curriculum.curriculum), plain("apw-e", train_set=Noisy()))


def test_a_method_or_a_function_in_place_of_a_name() -> None:
    for method in (APW(N, q=EPOCHS), lambda n, epochs: methods.build("apw-e", n, epochs)):
        net, curriculum = module(), CurriculumCallback(method, seed=5)
        trainer(PACKAGES[0], curriculum).fit(net, loader())
        assert_equal((net.net, curriculum.curriculum), plain("apw-e"))


@pytest.mark.parametrize("source", ["hook", "data module"])
def test_the_loader_may_come_from_a_hook(source: str) -> None:
    pl = importlib.import_module(PACKAGES[0])
    net, curriculum = module(), callback()
    if source == "hook":
        net.train_dataloader = loader
        trainer(PACKAGES[0], curriculum).fit(net)
    else:
        source_module = pl.LightningDataModule()
        source_module.train_dataloader = loader
        trainer(PACKAGES[0], curriculum).fit(net, datamodule=source_module)
    assert_equal((net.net, curriculum.curriculum), plain("apw-e"))


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_losses_are_measured_in_the_precision_of_the_training(precision: str) -> None:
    x, y = rows().tensors
    net, curriculum = module(), CurriculumCallback("apw-e", samples=True)
    net.net.float()
    seen: list[torch.Tensor] = []
    net.on_train_epoch_start = lambda: seen.append(next(iter(net.net.parameters())).detach().clone())
    trainer(PACKAGES[0], curriculum, precision=precision, max_epochs=2).fit(net, loader(TensorDataset(x.float(), y)))
    assert seen[0].dtype == (torch.float64 if precision == "64-true" else torch.float32)
    assert curriculum.record.history("losses").shape == (2, N)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
        inputs = x.float().to(seen[0].dtype)
        fresh = module()
        fresh.net.float().to(seen[0].dtype)
        expected = nn.functional.cross_entropy(fresh.net(inputs), y, reduction="none").float()
    measured = torch.from_numpy(curriculum.record.history("losses")[0])
    assert torch.allclose(measured, expected, rtol=1e-5, atol=1e-6)


WAYS = [(name, way) for name in ("apw-i", "rapw") for way in ("criterion", "loss")]


@pytest.mark.parametrize(("name", "way"), [*WAYS, ("apw-i", "call")])
def test_a_closure_updates_the_method_once_a_batch(name: str, way: str) -> None:
    net, held = module(way=way), callback(name, loss_fn=nn.CrossEntropyLoss(reduction="none"))
    net.configure_optimizers = lambda: torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
    trainer(PACKAGES[0], held).fit(net, loader())
    own, curriculum = model(), Curriculum(methods.build(name, N, EPOCHS), rows(), batch_size=BATCH, seed=5)
    optimizer = torch.optim.LBFGS(own.parameters(), lr=0.1, max_iter=3)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(own):

            def closure(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = curriculum.loss(own, batch)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert_equal((net.net, held.curriculum), (own, curriculum))


@pytest.mark.parametrize("way", ["criterion", "loss"])
@pytest.mark.parametrize("owner", ["module", "datamodule"])
def test_transfer_hooks_run_once_on_every_batch_also_on_the_measured_ones(owner: str, way: str) -> None:
    raw, net = TensorDataset(rows().tensors[0] * 4 + 1, rows().tensors[1]), module(way=way)
    held = callback("apw-ei", loss_fn=nn.CrossEntropyLoss(reduction="none"))
    source = importlib.import_module(PACKAGES[0]).LightningDataModule() if owner == "datamodule" else net
    source.train_dataloader = lambda: loader(raw)
    source.on_before_batch_transfer = lambda batch, dataloader_idx: (batch[0] - 1, batch[1])
    source.on_after_batch_transfer = lambda batch, dataloader_idx: (batch[0] / 4, batch[1])
    trainer(PACKAGES[0], held).fit(net, datamodule=source if owner == "datamodule" else None)
    (tensors, _), (expected, _) = outcome(net.net, held.curriculum), outcome(*plain("apw-ei"))
    for name, value in expected.items():
        assert torch.allclose(tensors[name].double(), value.double(), atol=1e-9), name


def test_a_schedule_may_ask_for_the_number_of_steps() -> None:
    net, curriculum = module(), callback("s-apw-e")
    own = net.configure_optimizers
    asked: list[int] = []

    def configure() -> Any:
        asked.append(net.trainer.estimated_stepping_batches)
        return own()

    net.configure_optimizers = configure
    trainer(PACKAGES[0], curriculum).fit(net, loader())
    assert asked == [5 * EPOCHS]
    assert_equal((net.net, curriculum.curriculum), plain("s-apw-e"))


@pytest.mark.parametrize("name", ["apw-e", "s-apw-e"])
def test_validation_runs_once_an_epoch_with_the_plain_criterion(name: str) -> None:
    net, curriculum = module(), callback(name)
    everything = loader(batch_size=N, shuffle=False)
    trainer(PACKAGES[0], curriculum, num_sanity_val_steps=0).fit(net, loader(), everything)
    assert_equal((net.net, curriculum.curriculum), plain(name))
    assert len(net.validated) == EPOCHS
    x, y = rows().tensors
    assert net.validated[-1] == nn.functional.cross_entropy(net.net(x), y).item()


def test_what_the_logger_gets(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    log = CSVLogger(tmp_path, name="", version="")
    curriculum = CurriculumCallback("apw-e", {"threshold": 1.05})
    trainer(PACKAGES[0], curriculum, logger=log, log_every_n_steps=1).fit(module(), loader())
    with open(tmp_path / "metrics.csv", newline="") as file:
        logged = [row for row in csv.DictReader(file) if row["curriculum/rho"]]
    assert len(logged) == EPOCHS
    for row, kept in zip(logged, curriculum.record.epochs, strict=True):
        for name in ("rho", "alpha", "eprop"):
            assert float(row[f"curriculum/{name}"]) == pytest.approx(kept[name], rel=1e-6)
        assert float(row["curriculum/phase"]) == (kept["phase"] == "later")
    assert {row["curriculum/phase"] for row in logged} == {"0.0", "1.0"}


def test_the_module_is_given_back_as_it_was() -> None:
    net = module()
    keys = list(net.state_dict())
    trainer(PACKAGES[0], callback()).fit(net, loader())
    assert list(net.state_dict()) == keys
    assert not hasattr(net, "curriculum")
    assert "forward" not in vars(net.criterion)
    assert net.criterion.reduction == "mean"
    with pytest.raises(ValueError, match="sampler DistributedSampler"):
        trainer(PACKAGES[0], callback()).fit(net, loader(shuffle=False, **SAMPLERS["DistributedSampler"]))
    assert not hasattr(net, "curriculum")


def test_a_second_fit_begins_anew_and_the_same_trainer_goes_on() -> None:
    curriculum = callback()
    trainer(PACKAGES[0], curriculum).fit(module(), loader())
    net = module()
    again = trainer(PACKAGES[0], curriculum)
    again.fit_loop.max_epochs = 2
    again.fit(net, loader())
    assert len(curriculum.record.epochs) == 2
    again.fit_loop.max_epochs = EPOCHS
    curriculum.epochs = 2  # the pace that it began with
    again.fit(net, loader())
    assert [row["epoch"] for row in curriculum.record.epochs] == [1, 2, 3]


def test_a_limit_on_batches_ends_epochs_early() -> None:
    _, curriculum = fitted(PACKAGES[0], "apw-e", limit_train_batches=3)
    assert [row["steps"] for row in curriculum.record.epochs] == [3, 3, 3]


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`.*")
def test_a_skipped_step_counts() -> None:
    net, curriculum = module(), callback()
    own = net.training_step
    net.training_step = lambda batch, batch_idx: None if batch_idx == 1 else own(batch, batch_idx)
    trainer(PACKAGES[0], curriculum).fit(net, loader())
    assert [row["steps"] for row in curriculum.record.epochs] == [5, 5, 5]


# ---------------------------------------------------------------- Lightning's own checkpoints


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("name", ["apw-ei", "s-apw-e"])
@pytest.mark.parametrize("package", BOTH)
def test_resuming_at_the_end_of_an_epoch_is_bit_equal(package: str, name: str, validates: bool, tmp_path: Path) -> None:
    valid = loader(batch_size=N, shuffle=False) if validates else None
    saved = saving(tmp_path, package, every_n_train_steps=None)
    net, curriculum = module(package), callback(name)
    trainer(package, curriculum, saved, enable_checkpointing=True).fit(net, loader(), valid)
    paths = sorted(tmp_path.glob("*.ckpt"))
    assert len(paths) == EPOCHS
    for path in paths[:-1]:
        net2, curriculum2 = module(package), callback(name)
        trainer(package, curriculum2).fit(net2, loader(), valid, ckpt_path=path)
        assert_equal((net.net, curriculum.curriculum), (net2.net, curriculum2.curriculum))


@pytest.mark.skipif(LIGHTNING < (2, 5), reason="2.4 goes on behind an epoch's last batch with one batch too many")
@pytest.mark.parametrize("name", ["apw-ei", "s-apw-e"])
def test_resuming_inside_an_epoch_is_bit_equal(name: str, tmp_path: Path) -> None:
    saved = saving(tmp_path)
    net, curriculum = module(), callback(name)
    trainer(PACKAGES[0], curriculum, saved, enable_checkpointing=True).fit(net, loader(Noisy()))
    paths = sorted(tmp_path.glob("*.ckpt"), key=lambda path: int(path.stem.split("step=")[1]))
    assert len(paths) == sum(row["steps"] for row in curriculum.record.epochs)
    for path in paths[:-1]:
        net2, curriculum2 = module(), callback(name)
        trainer(PACKAGES[0], curriculum2).fit(net2, loader(Noisy()), ckpt_path=path)
        assert_equal((net.net, curriculum.curriculum), (net2.net, curriculum2.curriculum))


def test_the_state_in_a_checkpoint_needs_no_pickle(tmp_path: Path) -> None:
    net, curriculum = module(), callback()
    made = trainer(PACKAGES[0], curriculum)
    made.fit(net, loader())
    made.save_checkpoint(tmp_path / "end.ckpt")
    state = torch.load(tmp_path / "end.ckpt", weights_only=True)["callbacks"]["CurriculumCallback"]
    assert state["epoch"] == EPOCHS
    assert torch.equal(state["method"]["log_weights"], curriculum.curriculum.method.state_dict()["log_weights"])


def test_a_checkpoint_that_was_only_validated_is_not_gone_on_with(tmp_path: Path) -> None:
    curriculum = callback()
    made = trainer(PACKAGES[0], curriculum)
    made.fit(module(), loader())
    made.save_checkpoint(tmp_path / "end.ckpt")
    made.validate(module(), loader(batch_size=N, shuffle=False), ckpt_path=tmp_path / "end.ckpt", verbose=False)
    net = module()
    trainer(PACKAGES[0], curriculum).fit(net, loader())
    assert_equal((net.net, curriculum.curriculum), plain("apw-e"))


@pytest.mark.parametrize("other", ["labels", "length"])
def test_a_checkpoint_of_another_training_set_is_refused(other: str, tmp_path: Path) -> None:
    made = trainer(PACKAGES[0], callback(), max_epochs=1)
    made.fit(module(), loader())
    made.save_checkpoint(tmp_path / "one.ckpt")
    train_set: Any = rows()
    if other == "labels":
        train_set.tensors[1][0] = (train_set.tensors[1][0] + 1) % 3
    else:
        train_set = Subset(train_set, range(30))
    words = "other labels" if other == "labels" else "37 rows, and this one has 30"
    with pytest.raises(ValueError, match=words):
        trainer(PACKAGES[0], callback()).fit(module(), loader(train_set), ckpt_path=tmp_path / "one.ckpt")


def test_a_longer_run_says_how_to_resume_and_resumes(tmp_path: Path) -> None:
    made = trainer(PACKAGES[0], callback(), max_epochs=2)
    made.fit(module(), loader())
    made.save_checkpoint(tmp_path / "two.ckpt")
    with pytest.raises(ValueError, match=r"knobs.q: 2 in the state, 4 now\); give CurriculumCallback .* epochs="):
        trainer(PACKAGES[0], callback(), max_epochs=4).fit(module(), loader(), ckpt_path=tmp_path / "two.ckpt")
    held = callback(epochs=2)
    trainer(PACKAGES[0], held, max_epochs=4).fit(module(), loader(), ckpt_path=tmp_path / "two.ckpt")
    assert len(held.record.epochs) == 4


@pytest.mark.parametrize("way", ["Tuner.lr_find", "LearningRateFinder", "Tuner.scale_batch_size"])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tuner_runs_before_the_training(way: str, order: int, tmp_path: Path) -> None:
    pl = importlib.import_module(PACKAGES[0])
    net, held = module(), callback()
    net.lr, net.batch_size = 0.1, 4
    net.train_dataloader = lambda: loader(batch_size=net.batch_size)
    net.configure_optimizers = lambda: torch.optim.SGD(net.parameters(), net.lr)
    finder = [pl.callbacks.LearningRateFinder(num_training_steps=5)] if way == "LearningRateFinder" else []
    made = trainer(PACKAGES[0], *[held, *finder][::order], limit_val_batches=0, default_root_dir=tmp_path)
    if way == "Tuner.lr_find":
        pl.tuner.Tuner(made).lr_find(net, num_training=5)
    if way == "Tuner.scale_batch_size":
        pl.tuner.Tuner(made).scale_batch_size(net, max_trials=1, steps_per_trial=2)
    made.fit(net)
    assert [row["rows"] for row in held.record.epochs] == [N] * EPOCHS


# ---------------------------------------------------------------- bad input


def test_a_checkpoint_without_a_curriculum_is_refused_and_may_be_tested(tmp_path: Path) -> None:
    made = trainer(PACKAGES[0], max_epochs=1)
    made.fit(module(), loader())
    made.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(ValueError, match="the checkpoint has no state of CurriculumCallback; resume from one that was"):
        trainer(PACKAGES[0], callback()).fit(module(), loader(), ckpt_path=tmp_path / "plain.ckpt")
    valid = loader(batch_size=N, shuffle=False)
    trainer(PACKAGES[0], callback()).validate(module(), valid, ckpt_path=tmp_path / "plain.ckpt", verbose=False)


def test_a_module_without_a_criterion_and_without_the_call() -> None:
    with pytest.raises(
        RuntimeError, match=r"neither used self.criterion .* nor called self.curriculum\(losses, batch\)"
    ):
        fitted(PACKAGES[0], "apw-e", "nothing", settings={"measure": "running"})
    with pytest.raises(RuntimeError, match=r"has no criterion such as .* pass loss_fn="):
        fitted(PACKAGES[0], "apw-e", "call")
    with pytest.raises(TypeError, match="Module.objective is not a loss module with a reduction"):
        fitted(PACKAGES[0], "apw-e", settings={"criterion": "objective"})
    with pytest.raises(ValueError, match="reduction='sum', but weights"):
        trainer(PACKAGES[0], callback()).fit(module(criterion=nn.CrossEntropyLoss(reduction="sum")), loader())


def test_a_method_that_needs_more_than_losses_says_what_to_call() -> None:
    with pytest.raises(TypeError, match=r"Mixup changes the batch .* return self.curriculum.loss\(batch\)"):
        fitted(PACKAGES[0], "mixup")


def test_a_training_set_that_changes_its_length() -> None:
    train_set = Growing()
    net, curriculum = module(), callback()
    net.on_train_epoch_end = lambda: setattr(train_set, "extra", 1)
    with pytest.raises(ValueError, match="the training set had 37 rows and now has 38"):
        trainer(PACKAGES[0], curriculum).fit(net, loader(train_set))


SAMPLERS = {
    "WeightedRandomSampler": {"sampler": WeightedRandomSampler(torch.ones(N), N)},
    "DistributedSampler": {"sampler": DistributedSampler(range(N), 2, 0)},  # type: ignore[arg-type]
    "SequentialSampler": {"sampler": SequentialSampler(range(N - 1))},  # not all rows
    "RandomSampler": {"sampler": torch.utils.data.RandomSampler(range(N), replacement=True)},
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_that_the_user_set_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"has the sampler {name}, but the curriculum chooses"):
        trainer(PACKAGES[0], callback()).fit(module(), loader(shuffle=False, **SAMPLERS[name]))


def test_other_loaders_are_refused() -> None:
    class Own(BatchSampler):
        pass

    own = Own(SequentialSampler(range(N)), 8, False)
    with pytest.raises(ValueError, match="has the batch sampler Own, but the curriculum makes"):
        trainer(PACKAGES[0], callback()).fit(module(), loader(batch_size=1, shuffle=None, batch_sampler=own))
    with pytest.raises(TypeError, match="one torch DataLoader for training, got dict"):
        trainer(PACKAGES[0], callback()).fit(module(), {"a": loader(), "b": loader()})


@pytest.mark.skipif(not hasattr(torch, "accelerator"), reason="loaders have in_order from torch 2.6 on")
def test_a_loader_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="has in_order=False"):
        trainer(PACKAGES[0], callback()).fit(module(), loader(num_workers=1, in_order=False))


def test_the_loaders_own_settings_are_kept() -> None:
    held = callback("vanilla")
    options = {"num_workers": 1, "prefetch_factor": 3, "multiprocessing_context": "fork", "worker_init_fn": int}
    trainer(PACKAGES[0], held, max_epochs=1).fit(module(way="call"), loader(**options))
    made = held.curriculum.loader()
    assert (made.prefetch_factor, made.worker_init_fn) == (3, int)
    assert made.multiprocessing_context.get_start_method() == "fork"


def test_a_criterion_without_a_reduction_is_asked_row_by_row() -> None:
    class Own(nn.Module):
        def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(outputs, target)

    usual, own = module(), module(criterion=Own())
    for net in (usual, own):
        trainer(PACKAGES[0], callback(), limit_val_batches=0).fit(net, loader())
    for one, other in zip(usual.parameters(), own.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*max_epochs.*")
def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown method 'apw_e'; did you mean 'apw-e'"):
        CurriculumCallback("apw_e")
    with pytest.raises(TypeError, match="batch_size come from the training loader .* settings are seed, measure"):
        CurriculumCallback("apw-e", batch_size=3)
    with pytest.raises(ValueError, match="'apw-e' takes its schedule from the length of the run; pass epochs="):
        trainer(PACKAGES[0], callback(), max_epochs=-1, max_steps=3).fit(module(), loader())
    net = module()
    net.curriculum = 3
    with pytest.raises(ValueError, match="already has an attribute 'curriculum'"):
        trainer(PACKAGES[0], callback()).fit(net, loader())
    net = module()
    net.train_dataloader = loader
    with pytest.raises(ValueError, match="reload_dataloaders_every_n_epochs must be 0"):
        trainer(PACKAGES[0], callback(), reload_dataloaders_every_n_epochs=1).fit(net)
    with pytest.raises(ValueError, match="overfit_batches repeats the same batches"):
        trainer(PACKAGES[0], callback(), overfit_batches=2).fit(module(), loader())
    with pytest.raises(RuntimeError, match="does not exist before trainer.fit"):
        callback().record  # noqa: B018


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torchcurriculum.integrations.lightning")
    with pytest.raises(ImportError, match=r"pip install 'torchcurriculum\[lightning\]'"):
        importlib.import_module("torchcurriculum.integrations.lightning")


def test_the_plain_run_is_no_other_method() -> None:
    assert outcome(*plain("apw-e"))[1] != outcome(*plain("vanilla"))[1]


def test_a_criterion_that_is_not_given_the_rows_is_refused() -> None:
    net = module(criterion=torch.nn.MSELoss())
    net.training_step = lambda batch, batch_idx: net.criterion(net(batch[0]).mean(), torch.tensor(0.0).double())
    with pytest.raises(ValueError, match=r"one loss per sample, shape \(8,\), but returned .*\(\)"):
        trainer(PACKAGES[0], callback("vanilla")).fit(net, loader())


def test_a_module_without_forward_cannot_be_measured() -> None:
    net = module()
    del type(net).forward
    words = r"Module has no forward\(x\); define it, pass forward=\(module, x\) -> outputs, or measure='running'"
    with pytest.raises(NotImplementedError, match=words):
        trainer(PACKAGES[0], callback("apw-e")).fit(net, loader())
