"""Any per-sample loss: with equal weights the wrapped criterion is the criterion, and every kind of task trains."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import APW, Arrays, Curriculum, Method, Mixup, Vanilla, indexed, methods, quantile
from torchcurriculum.audit import audit
from torchcurriculum.losses import Weighted, per_sample, weighted

from .distributed import criterion as criterion_ranks
from .distributed.launch import start

CLASS_WEIGHTS = torch.tensor([1.0, 4.0, 0.5])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def classes(*shape: int) -> Tensor:
    return torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(1))


def ignoring(y: Tensor) -> Tensor:
    y = y.clone()
    y[2] = -100
    return y


CASES: dict[str, tuple[nn.Module, Tensor, Tensor]] = {
    "cross-entropy": (nn.CrossEntropyLoss(), normal(6, 3), classes(6)),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), normal(6, 3), classes(6)),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), normal(6, 3), classes(6)),
    "class weights": (nn.CrossEntropyLoss(weight=CLASS_WEIGHTS.double()), normal(6, 3), classes(6)),
    "class weights, sum": (
        nn.CrossEntropyLoss(weight=CLASS_WEIGHTS.double(), reduction="sum"),
        normal(6, 3),
        classes(6),
    ),
    "weights and smoothing": (
        nn.CrossEntropyLoss(CLASS_WEIGHTS.double(), label_smoothing=0.2),
        normal(6, 3),
        classes(6),
    ),
    "ignored rows": (nn.CrossEntropyLoss(), normal(6, 3), ignoring(classes(6))),
    "ignored rows and weights": (nn.CrossEntropyLoss(CLASS_WEIGHTS.double()), normal(6, 3), ignoring(classes(6))),
    "soft labels": (nn.CrossEntropyLoss(CLASS_WEIGHTS.double()), normal(6, 3), normal(6, 3, seed=1).softmax(1)),
    "pixels": (nn.CrossEntropyLoss(), normal(6, 3, 4, 5), classes(6, 4, 5)),
    "pixels and weights": (nn.CrossEntropyLoss(CLASS_WEIGHTS.double()), normal(6, 3, 4, 5), classes(6, 4, 5)),
    "likelihood": (nn.NLLLoss(CLASS_WEIGHTS.double()), normal(6, 3).log_softmax(1), classes(6)),
    "binary": (nn.BCEWithLogitsLoss(), normal(6), classes(6).clamp(max=1).double()),
    "multi-label": (
        nn.BCEWithLogitsLoss(pos_weight=CLASS_WEIGHTS.double()),
        normal(6, 3),
        normal(6, 3, seed=1).sigmoid(),
    ),
    "probabilities": (nn.BCELoss(), normal(6, 3).sigmoid(), normal(6, 3, seed=1).sigmoid()),
    "soft margin": (nn.MultiLabelSoftMarginLoss(), normal(6, 3), classes(6, 3).clamp(max=1).double()),
    "margin": (nn.MultiMarginLoss(), normal(6, 3), classes(6)),
    "regression": (nn.MSELoss(), normal(6, 2), normal(6, 2, seed=1)),
    "absolute": (nn.L1Loss(), normal(6), normal(6, seed=1)),
    "huber": (nn.HuberLoss(reduction="sum"), normal(6, 2), normal(6, 2, seed=1)),
    "smooth": (nn.SmoothL1Loss(), normal(6, 2), normal(6, 2, seed=1)),
    "counts": (nn.PoissonNLLLoss(), normal(6), classes(6).double()),
    "divergence": (nn.KLDivLoss(reduction="batchmean"), normal(6, 3).log_softmax(1), normal(6, 3, seed=1).softmax(1)),
    "divergence, mean": (nn.KLDivLoss(), normal(6, 3).log_softmax(1), normal(6, 3, seed=1).softmax(1)),
}


def begun(criterion: nn.Module, method: Method) -> Weighted:
    made = weighted(criterion, method)
    made.advance()
    return made


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_with_equal_weights_it_is_the_criterion(name: str) -> None:
    criterion, outputs, y = CASES[name]
    before = criterion.reduction
    outputs = outputs.clone().requires_grad_()
    ours = begun(criterion, APW(6, q=5))(outputs, y, torch.arange(6))
    (gradient,) = torch.autograd.grad(ours, outputs)
    theirs = criterion(outputs, y)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs, outputs)[0])
    assert criterion.reduction == before
    assert per_sample(criterion)(outputs, y).shape == (6,)


def test_weights_change_the_share_of_samples_and_keep_that_of_classes() -> None:
    criterion, outputs, y = CASES["class weights"]
    method = APW(6, q=2)
    method.advance(per_sample(criterion)(outputs, y))
    ours = begun(criterion, method)(outputs, y, torch.arange(6))
    each = F.cross_entropy(outputs, y, reduction="none")
    joint = method.weights * CLASS_WEIGHTS.double()[y]
    torch.testing.assert_close(ours, (joint * each).sum() / joint.sum())


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_not_rounded_twice(name: str) -> None:
    criterion, outputs, y = CASES[name]
    criterion, half = copy.deepcopy(criterion), outputs.bfloat16()
    y = y.bfloat16() if y.is_floating_point() else y
    given = y.double() if y.is_floating_point() else y
    exact = per_sample(criterion)(half.double(), given)
    torch.testing.assert_close(per_sample(criterion.float())(half, y).double(), exact, rtol=1e-5, atol=1e-5)
    assert per_sample(criterion.bfloat16())(half, y).shape == (6,)


@pytest.mark.parametrize("wrong", [3, -1])
@pytest.mark.parametrize("name", ["cross-entropy", "smoothed", "class weights", "ignored rows", "likelihood", "margin"])
def test_a_label_out_of_range_is_named(name: str, wrong: int) -> None:
    criterion, outputs, y = CASES[name]
    y = torch.where(torch.arange(6) == 1, wrong, y.clone())
    known = y[y != -100]
    found = f"got {int(known.min())} to {int(known.max())}; number the classes from 0, or"
    words = f"labels must be class numbers from 0 to 2, because the model has 3 outputs, {found}"
    model = nn.Linear(3, 3).double()
    curriculum = Curriculum(Vanilla(), Arrays(outputs, y), per_sample(criterion))
    with pytest.raises(ValueError, match=words):
        curriculum.loss(model, next(iter(curriculum.epoch(model))))
    with pytest.raises(ValueError, match=words):
        begun(criterion, APW(6, q=5))(outputs, y, torch.arange(6))


def test_other_errors_of_a_criterion_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        per_sample(nn.PoissonNLLLoss())(torch.zeros(4, 3), torch.full((4, 2), 7))


def test_a_state_of_another_number_of_rows_is_refused() -> None:
    state = weighted(nn.CrossEntropyLoss(), "superloss", n=6).state_dict()
    with pytest.raises(ValueError, match=r"holds losses of shape \(6,\), but it was made for n=7 rows; make it with"):
        weighted(nn.CrossEntropyLoss(), "superloss", n=7).load_state_dict(state)


def test_weights_that_do_not_sum_to_one_stay_as_they_are() -> None:
    criterion, outputs, y = CASES["cross-entropy"]
    losses = F.cross_entropy(outputs, y, reduction="none")
    tau = float(losses.median())
    ours = weighted(criterion, methods.SuperLoss(tau=tau), n=6)(outputs, y, torch.arange(6))
    torch.testing.assert_close(
        ours, (methods.SuperLoss.weigh(methods.SuperLoss(tau=tau), _step(losses)) * losses).sum()
    )


def _step(losses: Tensor) -> Any:
    from torchcurriculum import Batch, Step

    return Step(nn.Identity(), Batch(None, None, torch.arange(len(losses))), None, losses)


class Scaled(nn.MSELoss):
    """A criterion that learns, too."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        return super().forward(outputs * self.scale, y)


def test_parameters_of_a_criterion_are_shared() -> None:
    criterion = Scaled()
    begun(criterion, APW(3, q=5))(torch.ones(3), torch.zeros(3), torch.arange(3)).backward()
    assert criterion.scale.grad.item() == pytest.approx(4.0)
    assert criterion(torch.ones(3), torch.zeros(3)).shape == ()


def test_tokens_are_averaged_without_the_ignored_ones() -> None:
    logits, y = normal(2, 3, 4), classes(2, 4)
    y[0, 1:] = -100
    y[1, 3] = -100
    each = F.cross_entropy(logits, y, reduction="none")
    expected = torch.stack([each[0, 0], each[1, :3].mean()])
    torch.testing.assert_close(per_sample(nn.CrossEntropyLoss())(logits, y), expected)
    y[0] = -100
    criterion = begun(nn.CrossEntropyLoss(), APW(2, q=5))
    torch.testing.assert_close(criterion(logits, y, torch.arange(2)), expected[1])
    y[:] = -100
    assert criterion(logits, y, torch.arange(2)).item() == 0  # PyTorch's is NaN


def test_one_line_in_a_loop_and_resumed() -> None:
    x = normal(40, 4)
    y = (x[:, 0] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=8)

    def run(epochs: int, state: dict[str, Any] | None = None) -> tuple[nn.Module, dict[str, Any]]:
        torch.manual_seed(0)
        model, criterion = nn.Linear(4, 2).double(), weighted(nn.CrossEntropyLoss(), APW(40, q=4))
        if state:
            model.load_state_dict(state["model"])
            criterion.load_state_dict(state["criterion"])
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        for _ in range(epochs):
            criterion.advance()
            for index, (inputs, labels) in indexed(loader):
                optimizer.zero_grad()
                criterion(model(inputs), labels, index).backward()
                optimizer.step()
        return criterion, {"model": model.state_dict(), "criterion": criterion.state_dict()}

    criterion, whole = run(4)
    assert criterion.method.weights.std() > 0
    assert criterion.last.isfinite().all()
    _, resumed = run(2, run(2)[1])
    for part in ("model", "criterion"):
        assert all(torch.equal(whole[part][name], resumed[part][name]) for name in whole[part])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: per_sample(F.cross_entropy), "is not a loss module with a reduction"),
        (lambda: per_sample(nn.Linear(2, 2)), "Linear is not a loss module with a reduction"),
        (lambda: per_sample(nn.CTCLoss()), "CTCLoss needs lengths"),
        (lambda: weighted(nn.MSELoss(), Mixup()), "Mixup changes the batch, which a criterion cannot; use Curriculum"),
        (lambda: weighted(nn.MSELoss(), Vanilla()), r"Vanilla does not know the size of the training set; pass n="),
        (lambda: weighted(nn.MSELoss(), methods.SPL(4, grow=2, warmup=0)).advance(), "SPL chooses rows"),
        (lambda: weighted(nn.MSELoss(), APW(4, 2)).advance(torch.ones(3)), r"each of 4 rows, got shape \(3,\)"),
        (lambda: weighted(nn.MSELoss(), APW(4, 2))(torch.ones(2), torch.ones(2), torch.tensor([0, 9])), "rows .9. are"),
        (
            lambda: weighted(nn.MSELoss(), APW(4, 2))(torch.ones(1), torch.full((1,), math.nan), torch.tensor([3])),
            "rows .3",
        ),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=message):
        make()


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_targets_that_broadcast_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"losses of shape \(4, 4\) for outputs of shape \(4, 1\) and targets of shape"
    ):
        per_sample(nn.MSELoss())(torch.zeros(4, 1), torch.zeros(4))


# ---------------------------------------------------------------------- every kind of task through a Curriculum

PIXELS = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))


class Tagger(nn.Module):
    """One score per class and token, classes in the second place as cross-entropy wants them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score = nn.Embedding(10, 8), nn.Linear(8, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.score(self.embed(words)).transpose(1, 2)


def task(name: str) -> tuple[nn.Module, nn.Module, Tensor, Tensor, Any]:
    """Model, criterion, inputs, targets a fifth of which are wrong, and the threshold."""
    x = normal(100, 8).float()
    x = x + x.sign()  # so that no row lies on a border between classes
    bad = torch.arange(100) < 20
    if name == "regression":
        y = torch.where(bad[:, None], -3 * x[:, :3], x[:, :3])
        return nn.Linear(8, 3), nn.MSELoss(), x, y, quantile(0.5)
    if name == "binary":
        y = torch.where(bad, x[:, 0] <= 0, x[:, 0] > 0).float()[:, None]
        return nn.Linear(8, 1), nn.BCEWithLogitsLoss(), x, y, math.log(2)
    if name == "multi-label":
        y = torch.where(bad[:, None], x[:, :3] <= 0, x[:, :3] > 0).float()
        return nn.Linear(8, 3), nn.BCEWithLogitsLoss(), x, y, math.log(2)
    if name == "segmentation":
        images = normal(100, 1, 6, 6).float()
        y = torch.where(bad[:, None, None], images[:, 0] <= 0, images[:, 0] > 0).long()
        return PIXELS, nn.CrossEntropyLoss(), images, y, math.log(2)
    words = torch.randint(0, 10, (100, 7), generator=torch.Generator().manual_seed(5))
    y = torch.where(bad[:, None], 1 - words % 2, words % 2)
    y[:, 5:] = -100
    return Tagger(), nn.CrossEntropyLoss(), words, y, math.log(2)


@pytest.mark.parametrize("name", ["regression", "binary", "multi-label", "segmentation", "tokens"])
def test_a_curriculum_trains_on_it_and_sees_what_is_wrong(name: str) -> None:
    torch.manual_seed(0)
    model, criterion, x, y, threshold = task(name)
    curriculum = Curriculum(
        APW(100, q=12, threshold=threshold), Arrays(x, y), per_sample(criterion), batch_size=20, samples=True
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(12):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    losses = torch.from_numpy(curriculum.record.history("losses"))
    assert losses[-1, 20:].mean() < losses[0, 20:].mean()
    assert sum(row < 20 for row in audit(curriculum.record).order[:15]) >= 13  # by chance, three
    if name == "regression":
        assert [row["eprop"] for row in curriculum.record.epochs] == [0.5] * 12
        assert curriculum.record.epochs[-1]["threshold"] < curriculum.record.epochs[0]["threshold"]


def test_a_quantile_resumes_bit_equal() -> None:
    def train(curriculum: Curriculum, model: nn.Module, epochs: int) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.02)
        for _ in range(epochs):
            for batch in curriculum.epoch(model):
                optimizer.zero_grad()
                curriculum.loss(model, batch).backward()
                optimizer.step()

    def fresh() -> tuple[Curriculum, nn.Module]:
        torch.manual_seed(0)
        model, criterion, x, y, _ = task("regression")
        return Curriculum(
            APW(100, q=6, threshold=quantile(0.3)), Arrays(x, y), per_sample(criterion), batch_size=20
        ), model

    whole, model = fresh()
    train(whole, model, 4)
    first, part = fresh()
    train(first, part, 2)
    again, _ = fresh()
    again.load_state_dict(first.state_dict())
    train(again, part, 2)
    assert torch.equal(whole.method.weights, again.method.weights)
    assert torch.equal(whole.method.threshold, again.method.threshold)
    assert all(map(torch.equal, model.parameters(), part.parameters()))


@pytest.mark.skipif(sys.platform == "win32", reason="gloo with spawn is tested on Linux and macOS")
def test_two_ranks_and_one_process_agree(tmp_path: Path) -> None:
    start(criterion_ranks.both, 2, tmp_path)
    for name in ("reduced", "regression", "streams"):
        work = getattr(criterion_ranks, name)
        alone = work()
        for rank in range(2):
            found = load_file(tmp_path / f"{name}-{rank}.safetensors")
            for part, value in alone.items():
                torch.testing.assert_close(found[part], value, rtol=0, atol=1e-12)


def test_a_closure_is_not_taken_for_a_forgotten_advance() -> None:
    model, x, y = nn.Linear(4, 3).double(), normal(8, 4), classes(8)
    criterion = begun(nn.CrossEntropyLoss(), APW(8, q=2))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=8)
    for rows in torch.arange(8).split(4):

        def closure(rows: Tensor = rows) -> Tensor:
            optimizer.zero_grad()
            loss = criterion(model(x[rows]), y[rows], rows)
            loss.backward()
            return loss

        optimizer.step(closure)  # warnings are errors in the tests
    assert criterion.step > 6


@pytest.mark.skipif(sys.platform == "win32", reason="gloo with spawn is tested on Linux and macOS")
def test_a_criterion_inside_a_wrapped_model_is_refused_where_its_buffers_are_broadcast(tmp_path: Path) -> None:
    start(criterion_ranks.inside, 2, tmp_path)
    for rank in range(2):
        assert (tmp_path / f"False-{rank}").read_text() == ""
        assert "part of the model that DistributedDataParallel wraps" in (tmp_path / f"True-{rank}").read_text()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_criterion_inside_a_model_in_half_precision_keeps_its_dtypes(dtype: torch.dtype) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.criterion = nn.Linear(4, 300), weighted(nn.CrossEntropyLoss(), "rapw", n=300, epochs=3)

    torch.manual_seed(0)
    whole, y = Whole(), torch.arange(300)
    before = {name: buffer.dtype for name, buffer in whole.criterion.named_buffers()}
    whole.to(dtype)
    assert {name: buffer.dtype for name, buffer in whole.criterion.named_buffers()} == before
    whole.criterion.advance()
    whole.criterion(whole.net(torch.randn(300, 4, dtype=dtype)), y, y)
    assert torch.equal(whole.criterion.method.labels.long(), y)
    assert whole.criterion.to("meta").last.is_meta
