"""Small slips of a user's own loop: what was silently wrong, or failed later than it could."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Checkpoint, Curriculum, Method, Record, weighted
from torchcurriculum.record import RecordError

if TYPE_CHECKING:
    from fractions import Fraction

NUMBERS = [np.float32(0.5), np.int64(3), np.bool_(True), torch.tensor(0.5), np.array(0.5)]


def made(**options: Any) -> tuple[Curriculum, nn.Module]:
    x = torch.rand(8, 2, generator=torch.Generator().manual_seed(0))
    return Curriculum(APW(8, q=4), Arrays(x, torch.arange(8) % 2), batch_size=4, **options), nn.Linear(2, 2)


def test_finishing_an_epoch_twice_adds_no_row() -> None:
    curriculum, net = made()
    curriculum.finish()
    assert not curriculum.record.epochs
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    curriculum.finish()
    assert [row["epoch"] for row in curriculum.record.epochs] == [1]


def test_two_epochs_at_once_are_refused() -> None:
    curriculum, net = made()
    with pytest.raises(ValueError, match="epoch 2 began before epoch 1 was read to its end"):
        for one, other in zip(curriculum.epoch(net), curriculum.epoch(net), strict=True):
            curriculum.loss(net, one)
            curriculum.loss(net, other)


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_numbers_of_other_libraries_are_numbers(value: Any, folder: bool, tmp_path: Path) -> None:
    record = Record(2, {}, tmp_path / "record" if folder else None)
    record.append({"epoch": 1, "a": value})
    record.annotate(b=value)
    assert json.loads(json.dumps(record.epochs)) == [{"epoch": 1, "a": value.item(), "b": value.item()}]
    if folder:
        assert Record.load(tmp_path / "record").epochs == record.epochs


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize(
    "value",
    [object(), b"x", {1, 2}, torch.zeros(3), np.zeros(2), [object()]],
    ids=["object", "bytes", "set", "tensor", "array", "list"],
)
def test_what_a_record_cannot_hold_is_refused_by_name_and_changes_nothing(
    value: Any, folder: bool, tmp_path: Path
) -> None:
    record = Record(2, {}, tmp_path / "record" if folder else None)
    record.append({"epoch": 1})
    for change in (lambda: record.append({"epoch": 2, "odd": value}), lambda: record.annotate(odd=value)):
        with pytest.raises(RecordError, match=r"'odd' of an epoch must be a number, a string, or lists and dicts of"):
            change()
    with pytest.raises(RecordError, match="must be strings, got 7"):
        record.append({7: 1})  # type: ignore[dict-item]
    assert record.epochs == [{"epoch": 1}]
    record.append({"epoch": 2})
    if folder:
        assert Record.load(tmp_path / "record").epochs == [{"epoch": 1}, {"epoch": 2}]


@pytest.mark.parametrize("keep", [1.5, "2", 0, True, None])
def test_how_many_states_to_keep_is_a_whole_number(keep: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be a whole number, at least 1, got"):
        Checkpoint(tmp_path, keep=keep)


class Inputs(NamedTuple):
    x: Tensor
    mask: Tensor


def packed(samples: list[Any]) -> Any:
    x = nn.utils.rnn.pack_sequence([inputs.x for inputs, _ in samples], enforce_sorted=False)
    return x, torch.tensor([y for _, y in samples])


def padded(inputs: Any) -> Tensor:
    if isinstance(inputs, Inputs):
        return inputs.x * inputs.mask
    return nn.utils.rnn.pad_packed_sequence(inputs, batch_first=True)[0]


@pytest.mark.parametrize("nan_strategy", ["error", "warn"])
@pytest.mark.parametrize("collate", [None, packed], ids=["named tuple", "packed sequence"])
def test_inputs_that_are_named_tuples_arrive_as_they_are(collate: Any, nan_strategy: Any) -> None:
    lengths = [2 + row % 3 if collate else 3 for row in range(8)]
    rows = [(Inputs(torch.full((size,), 1.0 + row), torch.ones(size)), row % 2) for row, size in enumerate(lengths)]
    net = nn.Linear(1, 2)
    curriculum = Curriculum(
        "apw-e",
        rows,
        epochs=1,
        collate_fn=collate,
        nan_strategy=nan_strategy,
        forward=lambda model, inputs: model(padded(inputs)[:, :1]),
    )
    for batch in curriculum.epoch(net):
        assert torch.equal(padded(batch.x)[:, 0].long(), batch.index + 1)
        curriculum.loss(net, batch).backward()


class How(Protocol):
    def __call__(self, x: Tensor) -> Tensor: ...


class Hinted(Method):
    """A user's method with a type hint that cannot be checked, one of whose verbs returns ``value``."""

    def __init__(self, verb: str, value: Any, how: How = torch.neg) -> None:
        super().__init__()
        object.__setattr__(self, verb, lambda *_: value)


class Unknown(Method):
    """A user's method with a type hint that is imported for type checkers only."""

    def __init__(self, share: Fraction | None = None) -> None:
        super().__init__()


def test_type_hints_that_cannot_be_checked_are_no_error() -> None:
    assert Hinted("report", {}, len).arguments["how"] == "len"
    assert Unknown(None).arguments == {"share": None}
    with pytest.raises(TypeError, match="verb of Hinted must be str, got 3"):
        Hinted(3, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "value", "words"),
    [
        ("weigh", [1.0] * 4, r"weights must be a tensor of shape \(4,\), one per loss, got list"),
        ("weigh", None, r"weights must be a tensor of shape \(4,\), one per loss, got NoneType"),
        ("weigh", torch.tensor([1.0, -1.0, 1.0, -0.5]), r"weights of rows \[\d, \d\] are negative; a weight must be"),
        ("plan", [0, 1], "Hinted.plan must return a tensor of rows, or None for all, got list"),
        ("plan", torch.arange(8) < 4, r"Hinted.plan returned a mask, but must return row numbers; return mask.nonzero"),
        ("view", None, r"Hinted.view must return a Batch, such as batch.with_\(x=...\), got NoneType"),
        ("report", {"odd": torch.ones(3)}, "'odd' of an epoch must be a number, a string"),
    ],
)
def test_what_a_verb_of_a_users_method_must_return(verb: str, value: Any, words: str) -> None:
    x = torch.rand(8, 2)
    curriculum, net = Curriculum(Hinted(verb, value), Arrays(x, torch.arange(8) % 2), batch_size=4), nn.Linear(2, 2)
    with pytest.raises((TypeError, ValueError), match=words):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch)


def test_a_model_that_is_trained_without_the_curriculums_loss_is_warned_of() -> None:
    curriculum, net = made()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batches = curriculum.epoch(net)
    for batch in (next(batches), next(batches)):
        nn.functional.cross_entropy(net(batch.x), batch.y).backward()
        optimizer.step()
    with pytest.warns(UserWarning, match=r"trained for epoch 1 without curriculum.loss, so APW weighted nothing"):
        next(batches, None)
    for step, batch in enumerate(curriculum.epoch(net)):  # a batch may be left out
        if step:
            curriculum.loss(net, batch).backward()
            optimizer.step()
    assert len(list(curriculum.epoch(net))) == 2  # and one may look at the batches of an epoch


def test_a_batch_of_three_names_what_the_model_was_given() -> None:
    rows = [(torch.ones(2), torch.ones(1), 1), (torch.ones(2), torch.ones(1), 0)]
    curriculum, net = Curriculum("superloss", rows), nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"Linear was called with a tuple of 2, all of the batch but its last item"):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch)


def test_a_weighted_criterion_is_for_training_rows_only() -> None:
    criterion, outputs, y = weighted(nn.CrossEntropyLoss(), APW(4, q=2)), torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
    criterion.advance()
    criterion(outputs, y, torch.arange(4))
    before = criterion.last.clone()
    with pytest.raises(TypeError, match=r"needs the row numbers of the batch, criterion\(outputs, y, index\)"):
        criterion(outputs, y)
    with torch.no_grad(), pytest.raises(RuntimeError, match="call your own criterion on data that are not trained on"):
        criterion(outputs + 1, y, torch.arange(4))
    with pytest.raises(TypeError, match=r"needs the model's logits, got tuple; pass the tensor that it holds"):
        criterion((outputs, y), y, torch.arange(4))
    assert torch.equal(criterion.last, before)
