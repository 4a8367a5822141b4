"""The transformers Trainer with a method: the run of the own loop, under accumulation, resumed, refused, with ranks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    default_data_collator,
)

from torchcurriculum import Curriculum, Record
from torchcurriculum.integrations import sequences
from torchcurriculum.integrations.sequences import sample_losses
from torchcurriculum.integrations.transformers import ONE_LOOP, CurriculumMixin, CurriculumTrainer

from .hf_problem import EPOCHS, LENGTH, N, bert, method, rows, settings, tensors, trainer

TOLERANCE = 1e-12
resumes = pytest.mark.skipif(
    not hasattr(torch, "accelerator"), reason="transformers itself resumes with torch 2.6 and up"
)
newer = pytest.mark.skipif(ONE_LOOP, reason="transformers 4 has no such setting")


def own_loop(name: str, measure: Any, batch_size: int = 8) -> dict[str, torch.Tensor]:
    """The same run without the trainer."""
    net, data = bert(), rows()
    ids, y = torch.tensor(data["input_ids"][:]), torch.tensor(data["labels"][:])
    made = method(name)
    curriculum = Curriculum(
        made,
        [{"input_ids": ids[row], "labels": y[row]} for row in range(N)],
        forward=lambda model, x: model(**x).logits,
        batch_size=batch_size,
        seed=5,
        measure=measure,
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    state = {f"net.{key}": value for key, value in net.state_dict().items()}
    return state | {f"method.{key}": value for key, value in made.state_dict().items()}


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[key].double() - other[key].double()).abs().max().item() for key in one if one[key].numel())


RUNS = [(name, "pass") for name in ("vanilla", "apw-e", "apw-ei", "s-apw-e", "superloss", "spl", "screenernet")]


@pytest.mark.parametrize(("name", "measure"), [*RUNS, ("apw-e", "running"), ("infobatch", "running")])
def test_the_run_is_that_of_the_own_loop(name: str, measure: str, tmp_path: Path) -> None:
    made = trainer(name, tmp_path, more={"measure": measure})
    made.train()
    assert apart(tensors(made), own_loop(name, measure)) == 0
    assert len(made.curriculum.record.epochs) == EPOCHS


def test_the_own_loop_reads_a_data_set_of_datasets_row_by_row() -> None:
    """It has a ``batch`` of another meaning."""
    curriculum = Curriculum(method("vanilla"), rows().remove_columns("note").with_format("torch"), batch_size=8)
    curriculum.start(torch.nn.Linear(1, 1))
    first = next(iter(curriculum.loader()))
    ids = torch.tensor(rows()["input_ids"][:])
    assert torch.equal(first["input_ids"], ids[curriculum.batches()[0]])
    assert torch.equal(curriculum._fetch_rows(torch.tensor([3])).x["input_ids"], ids[[3]])


# ---------------------------------------------------------------------- accumulation


def norms(made: Any) -> list[float]:
    made.train()
    return [entry["grad_norm"] for entry in made.state.log_history if "grad_norm" in entry]


@pytest.mark.parametrize("name", ["vanilla", "apw-e", "s-apw-e", "infobatch", "spl"])
def test_one_large_batch_and_four_small_ones_are_the_same_step(name: str, tmp_path: Path) -> None:
    large = trainer(name, tmp_path)
    small = trainer(name, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    expected, found = norms(large), norms(small)
    assert len(found) == len(expected) > EPOCHS
    assert found == pytest.approx(expected, rel=1e-10)
    assert apart(tensors(small), tensors(large)) < TOLERANCE


def test_weights_of_an_accumulated_batch_are_not_those_of_its_parts(tmp_path: Path) -> None:
    """What the test above would miss if weights were equal: each part's own normalisation gives another step."""
    large, small = (
        trainer("apw-e", tmp_path),
        trainer("apw-e", tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4),
    )
    small.curriculum.accumulate = lambda batches: None
    scaled = [norm / 4 for norm in norms(small)]
    assert scaled[0] != pytest.approx(norms(large)[0], rel=1e-3)


@pytest.mark.parametrize("accumulated", [1, 4])
def test_vanilla_is_the_trainer_without_a_method(accumulated: int, tmp_path: Path) -> None:
    """One step on everything, where the order of the rows does not matter; its own accumulation is wrong for BERT."""
    options = {"per_device_train_batch_size": -(-N // accumulated), "gradient_accumulation_steps": accumulated}
    plain = Trainer(bert(), settings(tmp_path, per_device_train_batch_size=N), train_dataset=rows())
    with_method = trainer("vanilla", tmp_path, **options)
    assert norms(with_method) == pytest.approx(norms(plain), rel=1e-10)
    ours, theirs = with_method.model.state_dict(), plain.model.state_dict()
    assert max((ours[name] - theirs[name]).abs().max().item() for name in ours) < TOLERANCE
    losses = [[entry["loss"] for entry in run.state.log_history if "loss" in entry] for run in (with_method, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_method_that_weighs_by_loss_counts_each_part_by_its_rows(tmp_path: Path) -> None:
    made = trainer("superloss", tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    made.curriculum.method.rule = "running"
    made.curriculum.start(made.model)
    made.curriculum.accumulate(4)
    assert shares(made.curriculum, [2] * 4) == pytest.approx([0.25] * 4)
    made.curriculum.done(15)
    made.curriculum.accumulate(4)  # two rows and three are left
    assert shares(made.curriculum, [2, 3]) == pytest.approx([0.4, 0.6])


def shares(curriculum: Curriculum, sizes: list[int]) -> list[float]:
    """What each of the next batches counts, from losses at which SuperLoss gives every row its share of a batch."""
    found = []
    for size in sizes:
        curriculum.method.tau.fill_(1.0)
        curriculum.method.seen.fill_(0)
        found.append(curriculum.reduce(torch.ones(size, dtype=torch.float64)).item())
    return found


# ---------------------------------------------------------------------- resuming


@resumes
@pytest.mark.parametrize("name", ["apw-e", "apw-ei", "s-apw-e"])
def test_a_run_resumes_from_any_checkpoint_bit_equal(name: str, tmp_path: Path) -> None:
    """With dropout, Adam and two parts a step; also from the last step of an epoch, and where epochs grow."""
    options = {
        "optim": "adamw_torch",
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    whole = trainer(name, tmp_path, bert(0.1), **options)
    whole.train()
    steps = whole.state.global_step
    first = whole.curriculum.record.epochs[0]["steps"]
    for step in {2, -(-first // 2), steps - 2}:
        torch.manual_seed(99)
        again = trainer(name, tmp_path / "again", bert(0.1), **{**options, "save_strategy": "no"})
        if ONE_LOOP and name == "s-apw-e":
            with pytest.raises(ValueError, match="resumes only full epochs"):
                again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{steps - 2}"))
            return
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert apart(tensors(again), tensors(whole)) == 0, step
        assert again.state.global_step == steps
        both = [[{**row, "seconds": 0} for row in run.curriculum.record.epochs] for run in (again, whole)]
        assert both[0] == both[1]


@resumes
def test_a_longer_run_says_how_to_resume_and_resumes(tmp_path: Path) -> None:
    named = {"method": "apw-e"}
    trainer("apw-e", tmp_path, more=named, save_strategy="epoch").train()
    last = str(max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2])))
    words = r"knobs.q: 3 in the state, 5 now\); give CurriculumTrainer .* method_options={'q': ...}"
    with pytest.raises(ValueError, match=words):
        trainer("apw-e", tmp_path / "b", more=named, num_train_epochs=5).train(resume_from_checkpoint=last)
    longer = trainer("apw-e", tmp_path / "c", more={**named, "method_options": {"q": EPOCHS}}, num_train_epochs=5)
    longer.train(resume_from_checkpoint=last)
    assert len(longer.curriculum.record.epochs) == 5


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in mid-epoch."""
    folder = tmp_path_factory.mktemp("saved")
    trainer("apw-e", folder, save_strategy="steps", save_steps=2, max_steps=2).train()
    return folder / "checkpoint-2"


def test_nothing_of_the_state_is_a_pickle(saved: Path) -> None:
    state = saved / "curriculum" / "state-00000002"
    assert {path.name for path in state.iterdir()} == {"state.json", "tensors.safetensors"}


def test_a_later_run_may_write_over_an_earlier_one(saved: Path) -> None:
    again = trainer("apw-e", saved.parent, save_strategy="steps", save_steps=2, max_steps=2)
    again.train()
    assert again.state.global_step == 2
    assert {path.name for path in (saved / "curriculum").iterdir()} == {"state-00000002"}


@resumes
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": rows([0] * N)}, "a training set with other labels"),
        ({"data": rows(n=N + 1)}, f"a training set of {N} rows, and this one has {N + 1}"),
        ({"name": "superloss"}, "the state is of APW, and this method is SuperLoss"),
        pytest.param(
            {"per_device_train_batch_size": 4},
            "with seed 5, batch_size 4, shuffle True it cannot be resumed",
            marks=pytest.mark.skipif(ONE_LOOP, reason="transformers 4 takes the batch size of the checkpoint"),
        ),
    ],
)
def test_a_foreign_state_is_refused(changes: dict[str, Any], words: str, saved: Path, tmp_path: Path) -> None:
    made = trainer(changes.pop("name", "apw-e"), tmp_path, **changes)
    with pytest.raises(ValueError, match=words):
        made.train(resume_from_checkpoint=str(saved))


@resumes
def test_a_checkpoint_of_a_trainer_without_a_method_is_refused(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    Trainer(bert(), settings(tmp_path, **options), train_dataset=rows()).train()
    with pytest.raises(ValueError, match="holds no curriculum state for step 2"):
        trainer("apw-e", tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_second_run_begins_a_new_curriculum(by_name: bool, tmp_path: Path) -> None:
    """The model stays as it is; the method, the record and the order of the rows begin again."""
    more: dict[str, Any] = {"method": "apw-e"} if by_name else {}
    made = trainer("apw-e", tmp_path, more={**more, "record": tmp_path / "record"})
    made.train()
    halfway = {name: value.clone() for name, value in made.model.state_dict().items()}
    first = made.curriculum
    made.train()
    assert made.curriculum is not first
    other = trainer("apw-e", tmp_path / "other")
    other.model.load_state_dict(halfway)
    other.train()
    assert all(torch.equal(value, tensors(made)[name]) for name, value in tensors(other).items())
    assert len(Record.load(tmp_path / "record").epochs) == EPOCHS


def test_a_batch_size_that_does_not_fit_is_halved(tmp_path: Path) -> None:
    class Full(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.train_batch_size > 4 and state.global_step == 3:
                raise RuntimeError("CUDA out of memory.")

    made = trainer("apw-e", tmp_path, auto_find_batch_size=True)
    made.add_callback(Full())
    made.train()
    steps = 9  # of 37 rows in fours, the last one in the batch before
    assert made.curriculum.batch_size == 4
    assert [row["steps"] for row in made.curriculum.record.epochs] == [steps] * EPOCHS
    assert made.state.global_step == steps * EPOCHS


# ---------------------------------------------------------------------- data and evaluation


class Items(torch.utils.data.Dataset[Any]):
    """The rows as a plain data set, with a key that no model takes."""

    def __init__(self) -> None:
        self.items = list(rows())

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]


@pytest.mark.parametrize(
    ("make", "remove", "workers"), [(rows, True, 2), (rows, False, 0), (Items, True, 0), (Items, False, 0)]
)
def test_any_data_set_and_collator(make: Any, remove: bool, workers: int, tmp_path: Path) -> None:
    data = make() if remove or make is Items else make().remove_columns("note")
    expected = trainer("apw-e", tmp_path)
    expected.train()
    collate = default_data_collator if remove else _without_note
    options = {"remove_unused_columns": remove, "dataloader_num_workers": workers}
    made = trainer("apw-e", tmp_path, data=data, more={"data_collator": collate}, **options)
    made.train()
    assert apart(tensors(made), tensors(expected)) == 0


def _without_note(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor([item[key] for item in items]) for key in ("input_ids", "labels")}


def test_evaluation_is_the_trainers_own(tmp_path: Path) -> None:
    held_out = rows(n=20)
    made = trainer("apw-e", tmp_path, more={"eval_dataset": held_out}, eval_strategy="epoch")
    made.train()
    plain = Trainer(made.model, settings(tmp_path), eval_dataset=held_out)
    theirs = plain.evaluate()["eval_loss"]
    assert made.evaluate()["eval_loss"] == theirs
    history = [entry["eval_loss"] for entry in made.state.log_history if "eval_loss" in entry]
    assert history[EPOCHS - 1] == theirs
    assert len(history) == EPOCHS + 1


@pytest.mark.parametrize("options", [{"bf16": True}, {"gradient_checkpointing": True}, {"dataloader_drop_last": True}])
def test_other_settings_of_the_trainer(options: dict[str, Any], tmp_path: Path) -> None:
    made = trainer("apw-ei", tmp_path, bert().float(), num_train_epochs=8, learning_rate=0.02, **options)
    made.train()
    means = [row["loss_mean"] for row in made.curriculum.record.epochs]
    assert means[-1] < means[0]
    assert made.curriculum.record.epochs[0]["steps"] == (4 if "dataloader_drop_last" in options else 5)


def test_what_the_method_did_is_logged(tmp_path: Path) -> None:
    made = trainer("apw-e", tmp_path)
    made.train()
    logged = [entry["curriculum_rho"] for entry in made.state.log_history if "curriculum_rho" in entry]
    assert logged == [row["rho"] for row in made.curriculum.record.epochs]
    assert not any("curriculum_seconds" in entry for entry in made.state.log_history)  # equal runs have equal logs


def test_without_a_training_set_it_evaluates(tmp_path: Path) -> None:
    made = CurriculumTrainer(bert(), settings(tmp_path), eval_dataset=rows(), method="apw-e")
    plain = Trainer(bert(), settings(tmp_path), eval_dataset=rows())
    assert made.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    with pytest.raises(ValueError, match="training requires a train_dataset"):
        made.train()


@newer
def test_what_the_settings_say_about_the_loader(tmp_path: Path) -> None:
    options = {"dataloader_num_workers": 1, "dataloader_prefetch_factor": 3}
    loader = trainer("vanilla", tmp_path, dataloader_multiprocessing_context="fork", **options).get_train_dataloader()
    assert (loader.prefetch_factor, loader.multiprocessing_context.get_start_method()) == (3, "fork")
    assert loader.total_batch_size == 8


# ---------------------------------------------------------------------- losses


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", [BertForTokenClassification, BertForMaskedLM, BertForSequenceClassification])
def test_losses_are_the_models_own_sequence_by_sequence(kind: type, smoothing: float, tmp_path: Path) -> None:
    model = bert(kind=kind)
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(3, 20, (5, LENGTH), generator=generator)
    y = torch.randint(0, 2, (5, LENGTH), generator=generator)
    y[torch.rand(5, LENGTH, generator=generator) < 0.4] = -100
    y[:, 0] = 1
    y = y[:, 0] if kind is BertForSequenceClassification else y
    found = sample_losses(model, smoothing)(model(input_ids=x).logits, y)
    plain = Trainer(model, settings(tmp_path, label_smoothing_factor=smoothing))
    expected = [plain.compute_loss(model, {"input_ids": x[[row]], "labels": y[[row]]}).item() for row in range(5)]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)  # the model's own logits are rounded to float32


@pytest.mark.parametrize(("labels", "classes"), [([0.5, 2.0, -1.0], 1), ([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], 2)])
def test_regression_and_several_labels(labels: list[Any], classes: int) -> None:
    model = bert(num_labels=classes)
    x, y = torch.randint(3, 20, (3, LENGTH)), torch.tensor(labels, dtype=torch.float64)
    found = sample_losses(model)(model(input_ids=x).logits, y)
    assert found.mean().item() == pytest.approx(model(input_ids=x, labels=y).loss.item())
    assert found[1].item() == pytest.approx(model(input_ids=x[[1]], labels=y[[1]]).loss.item())


def test_token_labels_train(tmp_path: Path) -> None:
    data = rows().map(lambda row: {"labels": [-100] + [int(token > 10) for token in row["input_ids"][1:]]})
    made = trainer("apw-e", tmp_path, bert(kind=BertForTokenClassification), data)
    made.train()
    means = [row["loss_mean"] for row in made.curriculum.record.epochs]
    assert means[-1] < means[0]


def t5() -> Any:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(vocab_size=20, decoder_start_token_id=0, pad_token_id=0, **sizes))


def gpt2() -> Any:
    torch.manual_seed(0)
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=16, **drops))


@pytest.mark.parametrize("make", [gpt2, t5])
def test_language_models_of_other_names(make: Any, tmp_path: Path) -> None:
    """The loss of a sequence alone is that of the model, and vanilla's run lowers it."""
    data = rows().map(lambda row: {"labels": [-100, *row["input_ids"][1:]]})
    made = trainer("vanilla", tmp_path, make(), data, {"measure": "pass"}, learning_rate=0.5)
    x, y = (torch.tensor(data[name][:5]) for name in ("input_ids", "labels"))
    inputs, labels = made.unpack({"input_ids": x, "labels": y})
    found = made.curriculum.task.loss_fn(made.default_forward(made.model, inputs), labels)
    expected = [made.model(input_ids=x[[row]], labels=y[[row]]).loss.item() for row in range(5)]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    made.train()
    means = [row["loss_mean"] for row in made.curriculum.record.epochs]
    assert means[-1] < means[0]


def test_prompt_tuning(tmp_path: Path) -> None:
    """PEFT puts virtual tokens in front, so that there are more outputs than labels."""
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(gpt2(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    data = rows().map(lambda row: {"labels": [-100, *[int(token > 10) for token in row["input_ids"][1:]]]})
    made = trainer("vanilla", tmp_path, model, data, learning_rate=0.5)
    x, y = (torch.tensor(data[name][:3]) for name in ("input_ids", "labels"))
    mask = torch.ones_like(x)
    found = made.curriculum.task.loss_fn(made.default_forward(model, {"input_ids": x, "attention_mask": mask}), y)
    rest = [{"input_ids": x[[row]], "attention_mask": mask[[row]], "labels": y[[row]]} for row in range(3)]
    assert found.tolist() == pytest.approx([model(**one).loss.item() for one in rest], rel=1e-5)
    made.train()
    assert made.curriculum.record.epochs[-1]["loss_mean"] > 0


def test_a_model_of_which_no_loss_is_known_needs_loss_fn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="per-sample loss of BertForQuestionAnswering is not known; pass loss_fn"):
        trainer("apw-e", tmp_path, bert(kind=BertForQuestionAnswering))


def test_a_loss_of_ones_own(tmp_path: Path) -> None:
    """Two labels, start and end of an answer, reach loss_fn as a dict."""
    data = rows().map(lambda row: {"start_positions": 1, "end_positions": 2}, remove_columns="labels")

    def loss_fn(outputs: Any, labels: dict[str, torch.Tensor]) -> torch.Tensor:
        parts = [(outputs.start_logits, "start_positions"), (outputs.end_logits, "end_positions")]
        return sum(torch.nn.functional.cross_entropy(x, labels[name], reduction="none") for x, name in parts) / 2

    more = {"loss_fn": loss_fn, "forward": lambda model, inputs: model(**inputs)}
    made = trainer("apw-e", tmp_path, bert(kind=BertForQuestionAnswering), data, more)
    made.train()
    assert made.curriculum.record.epochs[-1]["loss_mean"] < made.curriculum.record.epochs[0]["loss_mean"]


# ---------------------------------------------------------------------- refused


class Sorted(Trainer):
    """A user's own choice of rows."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return torch.utils.data.SequentialSampler(range(N - 1))


class Loading(Trainer):
    """A user's own loader."""

    def get_train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.train_dataset)  # type: ignore[arg-type]


@pytest.mark.parametrize("base", [Sorted, Loading])
def test_a_sampler_or_loader_of_ones_own_is_refused(base: type[Trainer], tmp_path: Path) -> None:
    made = type("Both", (CurriculumMixin, base), {})
    with pytest.raises(ValueError, match="Both: the method decides the order of rows, so your own sampler"):
        made(bert(), settings(tmp_path), train_dataset=rows(), method=method("apw-e"))


class Losing(Trainer):
    """A user's own loss."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().compute_loss(model, inputs, *args, **kwargs)


def test_a_loss_of_a_trainer_of_ones_own_is_refused_unless_loss_fn_takes_its_place(tmp_path: Path) -> None:
    made = type("Both", (CurriculumMixin, Losing), {})
    given: Any = {"args": settings(tmp_path), "train_dataset": rows(), "method": "vanilla"}
    with pytest.raises(ValueError, match=r"Both: Losing\.compute_loss would not be called .* pass loss_fn="):
        made(bert(), **given)
    made(bert(), **given, loss_fn=torch.nn.CrossEntropyLoss(reduction="none")).train()


def test_labels_identify_the_data_in_any_order_of_the_columns() -> None:
    columns = {"label": [0, 0], "labels": [1, 2]}
    for names in (["label", "labels"], ["labels", "label"]):
        data = Dataset.from_dict({name: columns[name] for name in names})
        assert sequences.NumberedRows(data).labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "more", "words"),
    [
        (
            {"group_by_length": True} if ONE_LOOP else {"train_sampling_strategy": "group_by_length"},
            {},
            "the method decides the order of rows",
        ),
        ({}, {"compute_loss_func": lambda outputs, labels, num_items_in_batch: outputs.loss}, "pass loss_fn"),
        ({"label_smoothing_factor": 0.1}, {"loss_fn": lambda logits, y: logits[:, 0]}, "not loss_fn"),
        pytest.param(
            {"dataloader_in_order": False, "dataloader_num_workers": 1}, {}, "dataloader_in_order=False", marks=newer
        ),
        ({"ignore_data_skip": True}, {}, "ignore_data_skip"),
        ({"accelerator_config": {"split_batches": True}}, {}, "split_batches and dispatch_batches"),
        ({}, {"method": method("apw-e", N + 1)}, f"made for {N + 1} rows and the training set has {N}"),
        ({}, {"train_dataset": rows().to_iterable_dataset()}, "train_dataset needs a length and row numbers"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: Any, more: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        trainer("apw-e", tmp_path, more=more, max_steps=3, **options)


def test_a_data_set_that_changes_its_length_is_refused(tmp_path: Path) -> None:
    data = Items()
    made = trainer("apw-e", tmp_path, data=data)
    data.items.pop()
    with pytest.raises(ValueError, match=f"the training set had {N} rows and now has {N - 1}"):
        made.train()


def test_batches_of_another_loader_are_refused(tmp_path: Path) -> None:
    class Other(CurriculumTrainer):
        def get_train_dataloader(self) -> Any:
            return Trainer.get_train_dataloader(self)

    made = Other(bert(), settings(tmp_path, dataloader_pin_memory=False), train_dataset=rows(), method=method("apw-e"))
    with pytest.raises(RuntimeError, match="not the one the method planned"):
        made.train()


def test_a_batch_without_labels_is_refused(tmp_path: Path) -> None:
    made = trainer("apw-e", tmp_path, data=rows().remove_columns("labels"))
    with pytest.raises(ValueError, match="a batch has input_ids, curriculum_rows, but no labels under labels"):
        made.train()


# ---------------------------------------------------------------------- the package


@pytest.mark.parametrize("name", ["transformers", "trl"])
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"torchcurriculum.integrations.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=rf"pip install 'torchcurriculum\[{name}\]'"):
        importlib.import_module(module)


def test_a_collator_that_sorts_is_refused_and_one_that_takes_another_column_is_not() -> None:
    def collate(rows: list[dict[str, int]], name: str, sort: bool) -> dict[str, Any]:
        rows = sorted(rows, key=lambda row: -row["x"]) if sort else rows
        return {"labels": torch.tensor([row[name] for row in rows])}

    numbered = [(row, {"x": row, "label": row % 3}) for row in range(6)]
    with pytest.raises(ValueError, match="changes the order of its samples"):
        sequences.RowCollator(lambda rows: collate(rows, "label", True))(numbered)
    both = [(row, {**item, "labels": (row + 1) % 3}) for row, item in numbered]
    for name in ("label", "labels"):
        batch = sequences.RowCollator(lambda rows, name=name: collate(rows, name, False))(both)
        assert batch["labels"].tolist() == [item[name] for _, item in both]
