"""A method is given by its name, its class, a function or itself, alike in every loop."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Curriculum, Method, Record, SuperLoss, Vanilla, methods, weighted
from torchcurriculum.cli import main
from torchcurriculum.methods import registry
from torchcurriculum.named import make_method

N, EPOCHS = 20, 3
OWN = '''
from torchcurriculum import Method

class Trust(Method):
    """Weights proportional to the probability of the given label."""

    def __init__(self, warmup: int = 1) -> None:
        super().__init__()
        self.warmup = warmup

    def weigh(self, step):
        return step.uniform() if step.epoch <= self.warmup else step.normalise(-step.losses.detach())

other = 3
'''


def data() -> Arrays:
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
    return Arrays(x, (x[:, 0] > 0).long())


def trained(method: Any, **options: Any) -> Tensor:
    torch.manual_seed(1)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    curriculum = Curriculum(method, data(), batch_size=8, **options)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(model):
            optimizer.zero_grad()
            curriculum.loss(model, batch).backward()
            optimizer.step()
    return model.weight.detach()


def criterion_trained(method: Any, **options: Any) -> Tensor:
    torch.manual_seed(1)
    rows, model = data(), nn.Linear(4, 2)
    optimizer, criterion = torch.optim.SGD(model.parameters(), 0.5), weighted(nn.CrossEntropyLoss(), method, **options)
    for _ in range(EPOCHS):
        criterion.advance()
        for index in torch.arange(N).split(8):
            optimizer.zero_grad()
            criterion(model(rows.x[index]), rows.y[index], index).backward()
            optimizer.step()
    return model.weight.detach()


def test_a_criterion_takes_a_name_too() -> None:
    made = criterion_trained(APW(N, q=EPOCHS))
    for given in ("apw-e", "torchcurriculum.methods:APW", APW, lambda n, epochs: APW(n, q=epochs)):
        assert torch.equal(criterion_trained(given, n=N, epochs=EPOCHS), made)
    assert torch.equal(criterion_trained("apw-e", n=N, epochs=9, method_options={"q": EPOCHS}), made)
    assert torch.equal(criterion_trained("superloss", n=N), criterion_trained(SuperLoss(), n=N))
    assert torch.equal(criterion_trained("superloss", grows=True), criterion_trained(SuperLoss(), grows=True))


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ("superloss", {}, "needs the size of the training set; pass n= to weighted"),
        ("superlos", {}, "unknown method 'superlos'; did you mean 'superloss'"),
        (3, {}, "method must be a name such as 'rapw', a class, .* got 3"),
        ("apw-e", {"n": N}, "takes its schedule from the length of the run; pass epochs= or a method instance"),
        (APW(N, q=2), {"epochs": 3}, "APW is an instance, so it cannot take epochs"),
        (APW(N, q=2), {"n": N + 1}, "APW was made for 20 rows, but n=21; omit n, or make it for 21"),
        ("superloss", {"n": 0}, "n must be"),
        ("mixup", {"n": N, "epochs": 3}, "Mixup changes the batch, which a criterion cannot; use Curriculum"),
    ],
)
def test_what_a_criterion_cannot_take(given: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        weighted(nn.CrossEntropyLoss(), given, **options)


def test_a_name_a_class_a_function_and_a_method_train_alike() -> None:
    made = trained(APW(N, q=EPOCHS))
    for given in ("apw-e", APW, lambda n, epochs: APW(n, q=epochs)):
        assert torch.equal(trained(given, epochs=EPOCHS), made)
    assert torch.equal(trained("apw-e", epochs=9, method_options={"q": EPOCHS}), made)
    assert torch.equal(trained(APW, epochs=9, method_options={"q": EPOCHS}), made)
    assert not torch.equal(trained("apw-e", epochs=2), made)


def test_epochs_are_asked_for_only_where_they_are_used() -> None:
    assert isinstance(Curriculum("vanilla", data()).method, Vanilla)
    assert isinstance(Curriculum("superloss", data()).method, SuperLoss)
    for given, called in (("apw-e", "'apw-e'"), (APW, "APW"), (lambda n, epochs: Vanilla(), "<lambda>")):
        with pytest.raises(
            ValueError, match=f"^{called} takes its schedule from the length of the run; pass epochs= or a"
        ):
            Curriculum(given, data())


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("rapv", {"epochs": 3}, "unknown method 'rapv'; did you mean 'rapw'"),
        (3, {"epochs": 3}, "method must be a name such as 'rapw', a class, .*got 3"),
        (None, {"epochs": 3}, "method must be a name such as 'rapw'.*got None"),
        (nn.Linear, {"epochs": 3}, "method must be a name such as 'rapw'.*got Linear"),
        (nn.Linear(1, 1), {"epochs": 3}, "method must be a name such as 'rapw'.*got Linear"),
        (lambda n, epochs: 7, {"epochs": 3}, "<lambda> returned int, which is not a method such as APW"),
        (Vanilla(), {"epochs": 3}, "Vanilla is an instance, so it cannot take epochs; pass its name or its class"),
        (Vanilla(), {"method_options": {"q": 2}}, "Vanilla is an instance, so it cannot take q; pass its name"),
        ("apw-e", {"epochs": 3, "method_options": {"p": 2}}, "'apw-e' has no option 'p'; its options are"),
        ("apw-e", {"epochs": 0}, "epochs must be a whole number, at least 1, got 0"),
        (
            "no.such.module:Trust",
            {"epochs": 3},
            "the method 'no.such.module:Trust' cannot be imported: ModuleNotFoundError: No module named",
        ),
        (
            "math:Trust",
            {"epochs": 3},
            "the method 'math:Trust' cannot be imported: AttributeError: module 'math' has no attribute",
        ),
        ("math:sqrt", {"epochs": 3}, "'math:sqrt' is not a subclass of torchcurriculum.Method"),
        (":Trust", {"epochs": 3}, "the method ':Trust' cannot be imported"),
        (".a:Trust", {"epochs": 3}, "the method '.a:Trust' cannot be imported"),
    ],
)
def test_what_is_refused(method: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Curriculum(method, data(), **options)


def test_a_users_own_method_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_names_1.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    method = make_method("own_names_1:Trust", N, 5, {"warmup": 2})
    assert (type(method).__name__, method.warmup) == ("Trust", 2)
    assert registry.entry("own_names_1:Trust").summary == "Weights proportional to the probability of the given label"
    assert "own_names_1:Trust" not in methods.names()
    assert trained("own_names_1:Trust").isfinite().all()  # it asks for no epochs


def test_a_users_own_method_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_names_2.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint(name, "own_names_2:Trust", methods.GROUP) for name in ("trust", "apw-e")]

    def found(**selected: str) -> EntryPoints:
        return EntryPoints(points).select(**selected)

    monkeypatch.setattr(registry, "entry_points", found)
    monkeypatch.setattr("torchcurriculum.cli.entry_points", found)
    assert type(make_method("trust", N, 5)).__name__ == "Trust"
    assert isinstance(make_method("apw-e", N, 5), APW)  # the library's own names come first
    assert main(["list"]) == 0
    assert "trust                 own_names_2:Trust" in capsys.readouterr().out


def test_a_users_own_method_in_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_names_3.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part not in ("", str(tmp_path))])
    run = ["run", "digits", "--seeds", "0", "--epochs", "2", "--out", "out", "--method"]
    assert main([*run, "own_names_3:Trust"]) == 0
    record = Record.load(tmp_path / "out" / "own_names_3.Trust" / "seed-0")
    assert (record.meta["method"], len(record.epochs)) == ("own_names_3:Trust", 2)
    assert main([*run, "own_names_3:other"]) == 2
    assert "'own_names_3:other' is not a subclass of torchcurriculum.Method" in capsys.readouterr().err


def test_a_curriculum_alone_loads_no_methods() -> None:
    code = "import sys; from torchcurriculum import Curriculum; assert 'torchcurriculum.methods' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_estimators_copy_a_method_that_is_made_already() -> None:
    pytest.importorskip("sklearn")
    from sklearn.base import clone

    from torchcurriculum.integrations.sklearn import CurriculumClassifier

    x, y = data().x.numpy(), data().y.numpy()
    method = APW(N, q=EPOCHS)
    given = [method, APW, "apw-e"]
    fitted = [CurriculumClassifier(method=one, epochs=EPOCHS).fit(x, y).predict_proba(x) for one in given]
    assert (fitted[0] == fitted[1]).all()
    assert (fitted[0] == fitted[2]).all()
    assert len(method.weights.unique()) == 1  # it has not been trained
    assert clone(CurriculumClassifier(method=method)).fit(x, y).method_ is not method


def test_skorch_takes_them_alike() -> None:
    pytest.importorskip("skorch")
    from torchcurriculum.integrations.skorch import CurriculumNet

    x, y, method = data().x.numpy(), data().y.numpy(), APW(N, q=EPOCHS)
    found = []
    for given in (method, APW, "apw-e"):
        torch.manual_seed(0)
        options = {"module__in_features": 4, "module__out_features": 2, "train_split": None, "verbose": 0}
        net = CurriculumNet(nn.Linear, criterion=nn.CrossEntropyLoss, method=given, max_epochs=EPOCHS, **options)
        found.append(net.fit(x, y).record_.epochs[-1]["loss_mean"])
    assert found[0] == found[1] == found[2]
    assert len(method.weights.unique()) == 1


@pytest.mark.filterwarnings("ignore:::lightning")
def test_lightning_takes_them_alike() -> None:
    pytest.importorskip("lightning")
    from .integrations import lightning_problem as problem

    found = []
    for given in (APW(problem.N, q=problem.EPOCHS), APW, "apw-e"):
        module = problem.module()
        held = problem.CurriculumCallback(given, seed=5)
        problem.trainer(problem.PACKAGES[0], held, limit_val_batches=0).fit(module, problem.loader())
        found.append(held.record.epochs[-1]["loss_mean"])
    assert found[0] == found[1] == found[2]
    with pytest.raises(ValueError, match="unknown method 'rapv'"):
        problem.CurriculumCallback("rapv")
    with pytest.raises(TypeError, match="Vanilla is an instance, so it cannot take epochs"):
        problem.CurriculumCallback(Vanilla(), epochs=3)


def test_transformers_takes_them_alike(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from .integrations import hf_problem as problem

    found = []
    for given in (APW(problem.N, q=problem.EPOCHS), APW, "apw-e"):
        trainer = problem.CurriculumTrainer(
            problem.bert(), problem.settings(tmp_path), train_dataset=problem.rows(), method=given
        )
        trainer.train()
        found.append(trainer.curriculum.record.epochs[-1]["loss_mean"])
    assert found[0] == found[1] == found[2]
    options = {"max_steps": 12, "gradient_accumulation_steps": 2}  # 24 batches of 8 of 37 rows
    trainer = problem.CurriculumTrainer(
        problem.bert(), problem.settings(tmp_path, **options), train_dataset=problem.rows(), method="apw-e"
    )
    assert trainer.curriculum.method.q == 6


def test_names_are_methods() -> None:
    assert all(issubclass(registry.entry(name).method, Method) for name in methods.names())
