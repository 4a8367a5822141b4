"""A method of one overridden verb runs, unchanged, in every place that runs methods, and acts there.

The methods are in ``newcomer/methods.py``, together with an oracle that says in plain PyTorch what each must do. The
shell is compared with the oracle, every other place with the shell or with the oracle.

At the end: a newcomer's questions (``newcomer/questions.py``), each answered one click from the start.
"""

from __future__ import annotations

import functools
import io
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from torchcurriculum import (
    APW,
    Arrays,
    Batch,
    Both,
    Curriculum,
    GraphedStep,
    Method,
    Mixed,
    Sampled,
    Step,
    Then,
    Vanilla,
    weighted,
)

from .blocks import DOCS, blocks
from .contract.problem import BATCH, EPOCHS, N, Run, data, model
from .distributed.launch import start
from .newcomer import ranks
from .newcomer.methods import DRAWS, METHODS, PLANS, VERBS, VIEWS, Clips, Counts, Oracle, Thirds, Trusts, made
from .newcomer.questions import QUESTIONS, TOP, Question
from .newcomer.ranks import VANILLA
from .test_pages import ELSEWHERE, PAGES

every = pytest.mark.parametrize("cls", METHODS)
EXACT = 1e-12
SENTENCE = r"(changes the batch|chooses rows).*use Curriculum"


def differ(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that are not equal bit by bit."""
    assert one.keys() == other.keys()
    return [name for name, value in one.items() if not torch.equal(value, other[name])]


def farthest(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference."""
    assert one.keys() == other.keys()
    return max((value - other[name]).abs().max().item() for name, value in one.items() if value.numel())


@functools.cache
def shell(cls: type[Method] | None) -> dict[str, Tensor]:
    """The run of ``Curriculum``; None is plain training."""
    return Run(Vanilla() if cls is None else made(cls, N), VANILLA).train().tensors()


def net_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith("net.")}


@every
def test_a_method_is_one_verb_and_nothing_else(cls: type[Method]) -> None:
    known = {name for name in dir(Method) if not name.startswith("_")}
    assert known & vars(cls).keys() == {VERBS[cls]}
    own = {name for name in vars(cls) if not name.startswith("__")}
    assert own == {VERBS[cls]}
    assert cls.__bases__ == (Method,)


# ---------------------------------------------------------------------- the shell


def check_run(method: Method, oracle: Oracle, own: Callable[[int], int] = lambda number: number) -> None:
    """Trains, and compares rows, inputs, scalars and gradients with the oracle.

    Args:
        method: The method.
        oracle: What it must do in its own epochs; before 1 it is plain training.
        own: Its own number of an epoch.
    """
    run, plain = Run(method, VANILLA), Oracle(None, N)
    parameters = list(run.net.parameters())
    for number in range(1, EPOCHS + 1):
        visited, last = [], run.curriculum.last.clone()
        expected = oracle if own(number) >= 1 else plain
        for batch in run.curriculum.epoch(run.net):
            losses = F.cross_entropy(run.net(expected.view(batch, own(number))), batch.y, reduction="none")
            scalar = expected.scalar(losses, batch.index, own(number))
            slopes = torch.autograd.grad(scalar, parameters)
            run.optimizer.zero_grad()
            loss = run.curriculum.loss(run.net, batch)
            loss.backward()
            assert loss.item() == pytest.approx(scalar.item(), rel=EXACT)
            for parameter, slope in zip(parameters, slopes, strict=True):
                torch.testing.assert_close(parameter.grad, slope, rtol=1e-10, atol=EXACT)
            run.optimizer.step()
            visited += batch.index.tolist()
        assert sorted(visited) == expected.rows(own(number), last)


@every
def test_the_shell_does_what_the_verb_says(cls: type[Method]) -> None:
    check_run(made(cls, N), Oracle(cls, N))
    assert farthest(net_of(shell(cls)), net_of(shell(None))) > 1e-3


@every
def test_reduce_runs_what_asks_for_losses_alone(cls: type[Method]) -> None:
    run = Run(made(cls, N), VANILLA)
    curriculum = run.curriculum

    def train() -> None:
        for _ in range(EPOCHS):
            curriculum.start(run.net)
            for x, y in curriculum.read():
                run.optimizer.zero_grad()
                curriculum.reduce(F.cross_entropy(run.net(x), y, reduction="none")).backward()
                run.optimizer.step()
            curriculum.finish()

    if cls in VIEWS:
        with pytest.raises(TypeError, match=rf"{cls.__name__} changes the batch.*use loss\(model, batch\)"):
            train()
        return
    train()
    assert differ(run.tensors(), shell(cls)) == []


class Asks(Method):
    """Weighs by whatever a function of the step says."""

    def __init__(self, ask: Callable[[Step], Tensor]) -> None:
        super().__init__()
        self.ask = ask

    def weigh(self, step: Step) -> Tensor:
        return step.normalise(self.ask(step))


def by_logits(step: Step) -> Tensor:
    return step.logits.max(1).values


def by_model(step: Step) -> Tensor:
    return torch.ones(len(step.index)) * len(list(step.model.parameters()))


def by_mistake(step: Step) -> Tensor:
    return step.loses  # type: ignore[attr-defined]


def reduced(ask: Callable[[Step], Tensor]) -> Tensor:
    run = Run(Asks(ask), VANILLA)
    run.curriculum.start(run.net)
    return run.curriculum.reduce(torch.ones(BATCH, requires_grad=True))


def criterion_of(ask: Callable[[Step], Tensor]) -> Tensor:
    criterion = weighted(nn.CrossEntropyLoss(), Asks(ask), n=N)
    return criterion(torch.zeros(BATCH, 3), torch.zeros(BATCH, dtype=torch.int64), torch.arange(BATCH))


def test_what_a_loop_cannot_give_is_refused() -> None:
    words = "which this loop does not provide; use Curriculum"
    with pytest.raises(TypeError, match=f"needs the model's outputs, {words}"):
        reduced(by_logits)
    for place in (reduced, criterion_of):
        with pytest.raises(TypeError, match=f"needs the model, {words}"):
            place(by_model)
    assert criterion_of(by_logits).item() == pytest.approx(math.log(3))


def test_a_mistake_in_a_verb_is_shown_as_it_is() -> None:
    for place in (reduced, criterion_of):
        with pytest.raises(AttributeError, match="object has no attribute 'loses'"):
            place(by_mistake)


@every
@pytest.mark.parametrize("stop_after", [1, 7])
def test_resuming_inside_an_epoch_is_bit_equal(cls: type[Method], stop_after: int) -> None:
    stopped = Run(made(cls, N), VANILLA).train(stop_after=stop_after)
    assert stopped.curriculum.is_open
    buffer = io.BytesIO()
    torch.save(stopped.state(), buffer)
    buffer.seek(0)
    resumed = Run(made(cls, N), VANILLA).load(torch.load(buffer, weights_only=True)).train()
    assert differ(resumed.tensors(), shell(cls)) == []


@every
def test_a_graphed_step_runs_it_as_it_is(cls: type[Method]) -> None:
    run = Run(made(cls, N), VANILLA)
    step = GraphedStep(run.curriculum, run.net, run.optimizer)
    for _ in range(EPOCHS):
        for batch in run.curriculum.epoch(run.net):
            step(batch)
    assert differ(run.tensors(), shell(cls)) == []


def test_accumulating_counts_each_visit_once() -> None:
    """Two batches in one optimizer step: the method weighs each row in one step, as it does without."""
    run = Run(made(Counts, N), VANILLA)
    for number in (1, 2):
        run.curriculum.start(run.net)
        for step, (x, y) in enumerate(run.curriculum.read()):
            if step % 2 == 0:
                run.curriculum.accumulate(2)
            run.curriculum.loss(run.net, run.curriculum.batch((x, y))).backward()
        run.curriculum.finish()
        assert run.curriculum.method.visits.tolist() == [number] * N


# ---------------------------------------------------------------------- inside of other methods


@every
def test_inside_then_it_counts_its_own_epochs(cls: type[Method]) -> None:
    check_run(Then(Vanilla(), 1, made(cls, N)), Oracle(cls, N), lambda number: number - 1)
    check_run(Then(made(cls, N), 2, Vanilla()), Oracle(cls, N), lambda number: number if number <= 2 else 0)
    check_run(Then(Vanilla(), 1, Then(Vanilla(), 1, made(cls, N))), Oracle(cls, N), lambda number: number - 2)


@every
def test_inside_both_the_planner_chooses_rows_and_looks(cls: type[Method]) -> None:
    check_run(Both(made(cls, N), Vanilla()), Oracle(cls if cls in PLANS + VIEWS else None, N))


@every
def test_inside_both_the_weigher_does_the_rest(cls: type[Method]) -> None:
    if cls in PLANS:
        with pytest.raises(ValueError, match=f"{cls.__name__} chooses rows itself and cannot weigh under Vanilla"):
            check_run(Both(Vanilla(), made(cls, N)), Oracle(None, N))
        return
    check_run(Both(Vanilla(), made(cls, N)), Oracle(cls, N))


@every
def test_inside_sampled_it_needs_weights(cls: type[Method]) -> None:
    with pytest.raises(TypeError, match=f"needs a method with a weight for every row, which {cls.__name__} lacks"):
        Sampled(made(cls, N))
    with pytest.raises(TypeError, match="needs a method with a weight for every row, which Both lacks"):
        Sampled(Both(Vanilla(), made(cls, N)))


@pytest.mark.parametrize("cls", PLANS + VIEWS)
def test_inside_sampled_it_can_plan_or_view_for_a_method_with_weights(cls: type[Method]) -> None:
    method = Sampled(Both(made(cls, N), APW(N, q=2)), fraction=0.6)  # complete after one epoch
    run, oracle = Run(method, VANILLA), Oracle(cls, N)
    for number in range(1, EPOCHS + 1):
        visited, last = [], run.curriculum.last.clone()
        for batch in run.curriculum.epoch(run.net):
            assert torch.equal(run.curriculum.view(run.net, batch).x, oracle.view(batch, number))
            run.optimizer.zero_grad()
            run.curriculum.loss(run.net, batch).backward()
            run.optimizer.step()
            visited += batch.index.tolist()
        if number == 1:
            assert len(visited) == int(0.6 * N)
        else:
            assert sorted(visited) == oracle.rows(number, last)


@pytest.mark.parametrize("cls", [cls for cls in METHODS if cls.__name__ != "WithoutHardest"])
def test_inside_mixed_rows_are_mixed_by_its_weights(cls: type[Method]) -> None:
    run, oracle = Run(Mixed(made(cls, N), "weights"), VANILLA), Oracle(cls, N)
    for number in range(1, EPOCHS + 1):
        visited = []
        for batch in run.curriculum.epoch(run.net):
            x, place = oracle.view(batch, number), {row: p for p, row in enumerate(batch.index.tolist())}
            with torch.no_grad():
                losses = F.cross_entropy(run.net(x), batch.y, reduction="none")
            weights = oracle.weights(losses, batch.index, number)
            viewed = run.curriculum.view(run.net, batch)
            partner = torch.tensor([place[row] for row in viewed.pair.index.tolist()])
            share = weights / (weights + weights[partner])
            torch.testing.assert_close(viewed.pair.share, share, rtol=1e-9, atol=EXACT)
            wide = share.view(-1, 1, 1, 1)
            torch.testing.assert_close(viewed.x, wide * x + (1 - wide) * x[partner], rtol=1e-9, atol=EXACT)
            run.optimizer.zero_grad()
            run.curriculum.viewed_loss(run.net, viewed).backward()
            run.optimizer.step()
            visited += batch.index.tolist()
        assert sorted(visited) == oracle.rows(number, torch.zeros(N))


def test_two_newcomers_work_together() -> None:
    class OfBoth(Oracle):
        def rows(self, epoch: int, last: Tensor) -> list[int]:
            return Oracle(Thirds, N).rows(epoch, last)

    check_run(Both(made(Thirds, N), made(Trusts, N)), OfBoth(Trusts, N))
    check_run(Both(made(Thirds, N), Both(Vanilla(), made(Clips, N))), OfBoth(Clips, N))


# ---------------------------------------------------------------------- weighted


@every
def test_weighted_runs_what_weighs_and_refuses_the_rest(cls: type[Method]) -> None:
    if cls in VIEWS:
        with pytest.raises(TypeError, match=SENTENCE):
            weighted(nn.CrossEntropyLoss(), made(cls, N), n=N)
        return
    net, rows, oracle = model(), data(), Oracle(cls, N)
    criterion = weighted(nn.CrossEntropyLoss(), made(cls, N), n=N)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train() -> None:
        for number in range(1, EPOCHS + 1):
            criterion.advance()
            for index in torch.arange(N).split(BATCH):
                outputs = net(rows.x[index])
                losses = F.cross_entropy(outputs, rows.y[index], reduction="none")
                loss = criterion(outputs, rows.y[index], index)
                assert loss.item() == pytest.approx(oracle.scalar(losses, index, number).item(), rel=EXACT)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    if cls in PLANS:
        with pytest.raises(TypeError, match=SENTENCE):
            train()
        return
    train()


def test_weighted_gives_each_batch_its_own_draws() -> None:
    class Tosses(Method):
        def weigh(self, step: Step) -> Tensor:
            drawn.append(torch.rand(len(step.index), generator=step.batch.generator("tosses")))
            return step.uniform()

    drawn: list[Tensor] = []
    criterion = weighted(nn.CrossEntropyLoss(), Tosses(), n=N)
    for _ in range(2):
        criterion.advance()
        for index in torch.arange(32).split(BATCH):
            criterion(torch.zeros(BATCH, 3), torch.zeros(BATCH, dtype=torch.int64), index)
    assert len(torch.stack(drawn).unique(dim=0)) == len(drawn) == 8


# ---------------------------------------------------------------------- ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform == "win32":
        pytest.skip("gloo with spawn is tested on Linux and macOS")
    made_here = tmp_path_factory.mktemp("newcomer")
    for world in ranks.SETTINGS:
        start(ranks.train_all, world, made_here)
    return made_here


@every
@pytest.mark.parametrize(("world", "size"), [(w, size) for w, sizes in ranks.SETTINGS.items() for size in sizes])
def test_ranks_agree_with_one_process(cls: type[Method], world: int, size: int, folder: Path) -> None:
    states = [load_file(folder / f"{cls.__name__}-{world}-{size}-{rank}.safetensors") for rank in range(world)]
    empty = [int(state.pop("empty")) for state in states]
    if size < BATCH and not (size == 7 and cls in PLANS):  # a plan has another number of rows
        assert empty[-1] > 0 == empty[0]
    assert max(farthest(states[0], state) for state in states) <= EXACT
    alone = ranks.shell(cls, size)
    del alone["empty"]
    apart = cls in DRAWS and size > 1  # with one row in a batch, the first rank draws for all
    assert (farthest(alone, states[0]) > EXACT) == apart


@pytest.mark.parametrize("cls", [cls for cls in METHODS if cls not in PLANS + VIEWS])
@pytest.mark.parametrize("world", ranks.SETTINGS)
def test_ranks_with_weighted_agree_with_one_process(cls: type[Method], world: int, folder: Path) -> None:
    states = [load_file(folder / f"{cls.__name__}-{world}-weighted-{rank}.safetensors") for rank in range(world)]
    assert max(farthest(states[0], state) for state in states) <= EXACT
    assert farthest(ranks.criterion(cls), states[0]) <= EXACT


@pytest.mark.skipif(sys.platform == "win32", reason="gloo with spawn is tested on Linux and macOS")
def test_a_rank_without_rows_shows_the_model_what_the_method_makes() -> None:
    """The network takes only what the view gives: the padding of a rank without rows must look the same."""
    start(ranks.train_shrunk, 3)


def test_row_state_that_ranks_cannot_merge_is_refused() -> None:
    """Ranks merge by a mean in floating-point numbers, in which 2^24 + 1 is not a whole number of single precision."""
    with pytest.raises((TypeError, ValueError), match="floating-point"):
        Method().add_rows("visits", torch.full((N,), 2**24 + 1))


# ---------------------------------------------------------------------- Lightning


lightning = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`.*"),
]


def fit_lightning(cls: type[Method], way: str) -> tuple[dict[str, Tensor], Any]:
    pytest.importorskip("lightning", reason="needs torchcurriculum[lightning]")
    from torchcurriculum.integrations.lightning import CurriculumCallback

    from .integrations import lightning_problem as problem

    net = problem.module(way=way)
    callback = CurriculumCallback(made(cls, N), seed=5, loss_fn=nn.CrossEntropyLoss(reduction="none"))
    problem.trainer(problem.PACKAGES[0], callback, max_epochs=EPOCHS).fit(net, problem.loader())
    tensors, epochs = problem.outcome(net.net, callback.curriculum)
    return tensors, epochs


@every
@pytest.mark.parametrize("way", ["criterion", "loss"])
def test_lightning(cls: type[Method], way: str) -> None:
    if way == "criterion" and cls in VIEWS:
        with pytest.raises(TypeError, match=rf"{cls.__name__} changes the batch.*self.curriculum.loss\(batch\)"):
            fit_lightning(cls, way)
        return
    tensors, epochs = fit_lightning(cls, way)
    assert differ(tensors, shell(cls)) == []
    assert [epoch["rows"] for epoch in epochs] == [len(Oracle(cls, N).rows(e, torch.zeros(N))) for e in range(1, 5)]


test_lightning.pytestmark = [*test_lightning.pytestmark, *lightning]


# ---------------------------------------------------------------------- transformers and trl


def spied(method: Method, oracle: Oracle) -> dict[int, list[int]]:
    """Compares every scalar of the method with the oracle's; gives the rows of each epoch as they come."""
    visited: dict[int, list[int]] = {}
    loss = method.loss

    def spy(step: Step) -> Tensor:
        scalar, index = loss(step), step.index
        expected = oracle.scalar(step.losses.detach(), index, step.epoch)
        assert scalar.item() == pytest.approx(expected.item(), rel=1e-5)
        visited.setdefault(step.epoch, []).extend(index.tolist())
        return scalar

    method.loss = spy  # type: ignore[method-assign]
    return visited


TOKENS = [cls for cls in METHODS if cls not in DRAWS]


@functools.cache
def trained_bert(cls: type[Method] | None) -> dict[str, Tensor]:
    """A run of ``Curriculum`` over the problem of ``hf_problem``."""
    from .integrations import hf_problem as problem

    net, rows = problem.bert(), problem.rows()
    ids, y = torch.tensor(rows["input_ids"][:]), torch.tensor(rows["labels"][:])
    method = Vanilla() if cls is None else made(cls, problem.N)
    curriculum = Curriculum(
        method,
        [{"input_ids": ids[row], "labels": y[row]} for row in range(problem.N)],
        forward=lambda model, x: model(**x).logits,
        batch_size=8,
        seed=5,
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(problem.EPOCHS):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    state = {f"net.{key}": value for key, value in net.state_dict().items()}
    return state | {f"method.{key}": value for key, value in method.state_dict().items()}


@pytest.mark.parametrize("cls", TOKENS)
def test_transformers(cls: type[Method], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs torchcurriculum[transformers]")
    from .integrations import hf_problem as problem

    trainer = problem.trainer("vanilla", tmp_path, more={"method": made(cls, problem.N)})
    trainer.train()
    assert differ(problem.tensors(trainer), trained_bert(cls)) == []
    assert farthest(net_of(trained_bert(cls)), net_of(trained_bert(None))) > 1e-4


@pytest.mark.parametrize("cls", TOKENS)
def test_trl(cls: type[Method], tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs torchcurriculum[trl]")
    from .integrations import test_trl as problem

    method, oracle = made(cls, problem.N), Oracle(cls, problem.N)
    trainer = problem.trainer("vanilla", tmp_path, more={"method": method}, num_train_epochs=2)
    visited, last, seen = spied(method, oracle), [], []
    start_epoch = trainer.curriculum.start

    def start(net: nn.Module) -> None:
        last.append(trainer.curriculum.last.clone())
        start_epoch(net)

    trainer.curriculum.start = start
    trainer.model.register_forward_pre_hook(
        lambda net, given, named: seen.append((net.training, named["input_ids"].clone())), with_kwargs=True
    )
    trainer.train()
    assert sorted(visited) == [1, 2]
    trained = [ids for training, ids in seen if training]
    for number, rows in visited.items():
        assert sorted(rows) == oracle.rows(number, last[number - 1])
        for part in torch.tensor(rows).split(8):
            ids, tokens = trained.pop(0), [trainer.train_dataset[row]["input_ids"] for row in part.tolist()]
            for row, given in enumerate(tokens):
                batch = Batch({"input_ids": torch.tensor(given)}, None, part)
                assert ids[row, : len(given)].tolist() == oracle.view(batch, number)["input_ids"].tolist()


# ---------------------------------------------------------------------- skorch and scikit-learn


def table() -> tuple[np.ndarray, np.ndarray]:
    """37 rows of five features and two classes, every fifth label wrong."""
    x = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    y[::5] = 1 - y[::5]
    return x, y


def linear() -> nn.Module:
    net = nn.Linear(5, 2)
    with torch.no_grad():
        net.weight.copy_(torch.linspace(-1, 1, 10).view(2, 5))
        net.bias.zero_()
    return net


@functools.cache
def trained_linear(cls: type[Method] | None, seed: int) -> dict[str, Tensor]:
    """A run of ``Curriculum`` over the table."""
    net, (x, y) = linear(), table()
    method = Vanilla() if cls is None else made(cls, N)
    curriculum = Curriculum(method, Arrays(torch.from_numpy(x), torch.from_numpy(y)), batch_size=8, seed=seed)
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    return net.state_dict() | {f"method.{key}": value for key, value in method.state_dict().items()}


def assert_acts(cls: type[Method], found: dict[str, Tensor], seed: int) -> None:
    expected = trained_linear(cls, seed)
    assert differ(found, expected) == []
    plain = trained_linear(None, seed)
    assert farthest({name: expected[name] for name in plain}, plain) > 1e-3


@every
def test_skorch(cls: type[Method]) -> None:
    pytest.importorskip("skorch", reason="needs torchcurriculum[skorch]")
    from torchcurriculum.integrations.skorch import CurriculumNet

    net = CurriculumNet(
        linear,
        method=cls.for_run,
        criterion=nn.CrossEntropyLoss,
        max_epochs=EPOCHS,
        lr=0.5,
        batch_size=8,
        train_split=None,
        seed=5,
        verbose=0,
    ).fit(*table())
    method = net.curriculum_.method
    assert type(method) is cls
    assert_acts(cls, net.module_.state_dict() | {f"method.{k}": v for k, v in method.state_dict().items()}, 5)


@every
def test_scikit_learn(cls: type[Method]) -> None:
    pytest.importorskip("sklearn", reason="needs torchcurriculum[sklearn]")
    from sklearn.base import clone
    from sklearn.utils import check_random_state

    from torchcurriculum.integrations.sklearn import CurriculumClassifier

    net = CurriculumClassifier(
        linear(), cls.for_run, epochs=EPOCHS, lr=0.5, batch_size=8, optimizer=torch.optim.SGD, random_state=3
    )
    net = clone(net).fit(*table())
    assert type(net.method_) is cls
    found = net.module_.state_dict() | {f"method.{k}": v for k, v in net.method_.state_dict().items()}
    assert_acts(cls, found, int(check_random_state(3).randint(2**31 - 1)))


# ---------------------------------------------------------------------- a newcomer's questions


def links(page: Path) -> set[Path]:
    """The files that a page links to."""
    found = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in found}


def unanswered(question: Question, start: Path, text: str) -> list[str]:
    """What is missing for the question to be answered on a page with ``text``, one click from ``start``."""
    page = DOCS / question.page
    missing = [] if page.resolve() == start.resolve() or page.resolve() in links(start) else [f"a link on {start.name}"]
    top = "\n".join(text.splitlines()[:TOP])
    return missing + [words for words in question.says if not re.search(words, top, re.MULTILINE)]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.words)
def test_a_newcomer_finds_the_answer_one_click_from_the_start(question: Question) -> None:
    text = (DOCS / question.page).read_text(encoding="utf-8")
    assert unanswered(question, DOCS / "index.md", text) == []
    if question.code:
        assert blocks(question.page)
        assert question.page in PAGES or question.page in ELSEWHERE, "some test runs its code"
    below = "\n" * TOP + text
    assert unanswered(question, DOCS / "index.md", below) == list(question.says), (
        "an answer further down does not count"
    )


@pytest.mark.parametrize("page", sorted({question.page for question in QUESTIONS} - {"index.md"}))
def test_the_readme_leads_to_the_answers(page: str) -> None:
    assert (DOCS / page).resolve() in links(DOCS.parent / "README.md")
