"""trl's SFT with a method: losses of answers, the rows behind trl's collator, accumulation, resuming, the example."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from torchcurriculum import methods, quantile
from torchcurriculum.integrations.sequences import ROWS, RowCollator, sample_losses
from torchcurriculum.integrations.trl import CurriculumSFTTrainer

from .hf_problem import EPOCHS, tensors
from .test_transformers import newer

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "trl_shuffled.py"
N = 21
KNOBS: dict[str, dict[str, Any]] = {"apw-e": {"threshold": quantile(0.3)}}  # easy rows from the first epoch on


def example() -> Any:
    spec = importlib.util.spec_from_file_location("trl_shuffled", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHUFFLED = example()


def llama(dropout: float = 0.0) -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        config = LlamaConfig(vocab_size=len(SHUFFLED.WORDS), max_position_embeddings=32, **sizes)
        config.attention_dropout = dropout
        return LlamaForCausalLM(config)


def settings(folder: Path, **options: Any) -> SFTConfig:
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_train_epochs": EPOCHS,
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1e9,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "bf16": False,
        "seed": 5,
        **options,
    }
    return SFTConfig(**given)


def questions(long: bool = True) -> Any:
    """Answers of three words, every third one with two words more."""
    data, _ = SHUFFLED.questions(N, 0)
    if not long:
        return data
    return data.map(
        lambda row, number: {"completion": " monday noon" * (number % 3 == 0) + row["completion"]}, with_indices=True
    )


def trainer(name: str, folder: Path, kind: Any = CurriculumSFTTrainer, more: Any = None, **options: Any) -> Any:
    given = {"train_dataset": questions(), "processing_class": SHUFFLED.tokenizer(), **(more or {})}
    if kind is CurriculumSFTTrainer:
        given.setdefault("method", methods.build(name, N, EPOCHS, **KNOBS.get(name, {})))
    return kind(given.pop("model", None) or llama(), settings(folder, **options), **given)


def test_the_loss_of_a_row_is_the_mean_over_its_answer(tmp_path: Path) -> None:
    made = trainer("apw-e", tmp_path)
    made.curriculum.start(made.model)
    measured = made.curriculum._measured.values
    causal = sample_losses(made.model)
    for row in range(N):
        item = made.train_dataset[row]
        ids, labels = torch.tensor([item["input_ids"]]), torch.tensor([item["labels"]])
        answer = len(SHUFFLED.tokenizer()(questions()[row]["completion"])["input_ids"])
        assert int((labels != -100).sum()) in (answer, answer + 1)  # trl may add an end
        with torch.no_grad():
            assert made.model(input_ids=ids, labels=labels).loss.item() == pytest.approx(measured[row].item(), rel=1e-5)
            assert causal(made.model(input_ids=ids).logits, labels).item() == pytest.approx(
                measured[row].item(), rel=1e-5
            )


def test_the_collator_keeps_the_rows_that_trls_own_drops(tmp_path: Path) -> None:
    collate = DataCollatorForLanguageModeling(pad_token_id=0)
    items = [{"input_ids": [3, 4, 5], "labels": [-100, 4, 5], "row": 7}, {"input_ids": [3], "labels": [3], "row": 2}]
    assert "row" not in collate(items)
    kept = RowCollator(collate)(list(zip([7, 2], items, strict=True)))
    assert kept[ROWS].tolist() == [7, 2]
    assert all(torch.equal(kept[name], value) for name, value in collate(items).items())
    loader = trainer("apw-e", tmp_path).get_train_dataloader()
    assert sorted(torch.cat([batch[ROWS] for batch in loader]).tolist()) == list(range(N))


def norms(made: Any) -> list[float]:
    made.train()
    return [entry["grad_norm"] for entry in made.state.log_history if "grad_norm" in entry]


@pytest.mark.parametrize("name", ["vanilla", "apw-e"])
def test_one_large_batch_and_four_small_ones_are_the_same_step(name: str, tmp_path: Path) -> None:
    expected = norms(trainer(name, tmp_path))
    found = norms(trainer(name, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4))
    assert len(expected) == 3 * EPOCHS
    assert found == pytest.approx(expected, rel=1e-4)


def test_vanilla_is_sft_where_answers_are_of_one_length(tmp_path: Path) -> None:
    more = {"train_dataset": questions(long=False)}
    options = {"per_device_train_batch_size": 7, "gradient_accumulation_steps": 3}
    ours = trainer("vanilla", tmp_path, more=more, **options)
    theirs = trainer("vanilla", tmp_path, SFTTrainer, more=more, **options)
    assert norms(ours) == pytest.approx(norms(theirs), rel=1e-4)
    names = ("loss", "mean_token_accuracy", "entropy", "num_tokens")
    logged = [
        [[entry[name] for name in names] for entry in run.state.log_history if "loss" in entry]
        for run in (ours, theirs)
    ]
    for found, expected in zip(*logged, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    held_out = {"eval_dataset": questions()}
    assert ours.evaluate(**held_out)["eval_loss"] == pytest.approx(theirs.evaluate(**held_out)["eval_loss"], rel=1e-4)


def test_a_run_resumes_bit_equal(tmp_path: Path) -> None:
    options = {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 1}
    whole = trainer("apw-e", tmp_path, more={"model": llama(0.1)}, **options)
    whole.train()
    for step in (2, 6):
        again = trainer("apw-e", tmp_path / "again", more={"model": llama(0.1)}, **{**options, "save_strategy": "no"})
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        found, expected = tensors(again), tensors(whole)
        assert all(torch.equal(found[key], expected[key]) for key in expected), step


def test_other_answers_are_refused_on_resume(tmp_path: Path) -> None:
    trainer("apw-e", tmp_path, save_strategy="steps", save_steps=2, max_steps=2).train()
    other = trainer("apw-e", tmp_path, more={"train_dataset": SHUFFLED.questions(N, 1)[0]})
    with pytest.raises(ValueError, match="a training set with other labels"):
        other.train(resume_from_checkpoint=True)


@pytest.mark.filterwarnings("ignore:.label_smoothing_factor. is deprecated in .SFTTrainer:FutureWarning")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"packing": True, "packing_strategy": "wrapped", "max_length": 16},
            "packing_strategy='wrapped' cuts rows into pieces.*use 'bfd'",
        ),
        pytest.param(
            {"packing": True, "max_length": 16, "train_sampling_strategy": "sequential"},
            "packs are shuffled",
            marks=newer,
        ),
        ({"loss_type": "dft"}, "loss_type must be 'nll'"),
        ({"label_smoothing_factor": 0.1}, "fused head does not support label_smoothing_factor"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        trainer("apw-e", tmp_path, **options)


@pytest.mark.parametrize("name", ["vanilla", "apw-e"])
def test_without_padding_each_row_keeps_its_weight(name: str, tmp_path: Path) -> None:
    """Rows of several lengths are joined into one sequence; losses, metrics and the run are those with padding."""
    padded, joined = (trainer(name, tmp_path / str(free), padding_free=free, max_length=None) for free in (False, True))
    widths: list[tuple[int, ...]] = []
    joined.model.register_forward_pre_hook(
        lambda _, given, named: widths.append(named["input_ids"].shape), with_kwargs=True
    )
    assert norms(joined) == pytest.approx(norms(padded), rel=1e-4)
    assert {rows for rows, _ in widths} == {1}
    lengths = [len(item["input_ids"]) for item in joined.train_dataset]
    assert len(set(lengths)) > 1
    passes = EPOCHS * (2 if name == "apw-e" else 1)  # with the measuring pass
    assert sum(width for _, width in widths) == passes * sum(lengths)  # no token of padding
    assert torch.allclose(joined.curriculum.last, padded.curriculum.last, rtol=1e-4)
    logged = [[entry for entry in run.state.log_history if "loss" in entry] for run in (joined, padded)]
    for ours, expected in zip(*logged, strict=True):
        for key in ("loss", "entropy", "mean_token_accuracy", "num_tokens"):
            assert ours[key] == pytest.approx(expected[key], rel=1e-3), key


@pytest.mark.parametrize("name", ["vanilla", "s-apw-e"])
def test_packed_rows_keep_their_weights(name: str, tmp_path: Path) -> None:
    """A batch has trl's own packs; its loss is the method's over the samples in them."""
    options: dict[str, Any] = {"packing": True, "max_length": 24, "per_device_train_batch_size": 2}
    made = trainer(name, tmp_path / "ours", **options)
    theirs = trainer("", tmp_path / "theirs", kind=SFTTrainer, **options).train_dataset
    ids = [tuple(item["input_ids"]) for item in made.train_dataset]
    packs: list[list[Any]] = [[] for _ in theirs]
    for row, pack in enumerate(made.curriculum._order.packs.tolist()):
        packs[pack].append(ids[row])
    cut = [torch.tensor(item["input_ids"]).split(item["seq_lengths"]) for item in theirs]
    assert sorted(map(sorted, packs)) == sorted(sorted(tuple(part.tolist()) for part in parts) for parts in cut)
    assert len(theirs) < N == len(made.curriculum.last)

    widths: list[tuple[int, ...]] = []
    made.model.register_forward_pre_hook(
        lambda _, given, named: widths.append(named["input_ids"].shape), with_kwargs=True
    )
    made.train()
    assert {rows for rows, _ in widths} == {1}
    assert max(width for _, width in widths) <= 2 * 24
    assert made.state.global_step <= EPOCHS * -(-len(theirs) // 2)
    assert bool(made.curriculum.last.isfinite().any())
    if name == "vanilla":
        assert made.state.global_step == EPOCHS * -(-len(theirs) // 2)


def test_a_packed_step_is_the_step_of_its_rows(tmp_path: Path) -> None:
    """One batch of all packs is one padded batch of all rows: the same losses, weights and gradient."""
    size = {"per_device_train_batch_size": N}
    packed, plain = (
        trainer("apw-e", tmp_path / str(packing), packing=packing, max_length=24, **size) for packing in (True, False)
    )
    assert norms(packed) == pytest.approx(norms(plain), rel=1e-4)
    assert torch.allclose(packed.curriculum.last, plain.curriculum.last, rtol=1e-4)
    assert torch.allclose(packed.curriculum.method.weights, plain.curriculum.method.weights)


def test_a_packed_run_resumes_bit_equal(tmp_path: Path) -> None:
    options = {"packing": True, "max_length": 24, "per_device_train_batch_size": 2}
    whole = trainer("apw-e", tmp_path / "whole", save_strategy="steps", save_steps=4, **options)
    whole.train()
    resumed = trainer("apw-e", tmp_path / "resumed", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert all(torch.equal(value, tensors(whole)[name]) for name, value in tensors(resumed).items())
    other = trainer("apw-e", tmp_path / "other", **{**options, "max_length": 32})
    with pytest.raises(ValueError, match="inside an epoch with .*packs"):
        other.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))


def test_rows_that_trl_drops_are_no_rows_of_the_method(tmp_path: Path) -> None:
    data = questions().map(lambda row, number: {"prompt": row["prompt"] * (1 + (number == 3))}, with_indices=True)
    with pytest.raises(ValueError, match="made for 21 rows and the training set has 20"):
        trainer("apw-e", tmp_path, more={"train_dataset": data}, max_length=8)


def test_the_example_shows_that_shuffled_answers_lose_weight(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--epochs", "5", "--rows", "384"])
    SHUFFLED.main()
    found = dict(re.findall(r"mean weight of (\w+) answers: ([\d.]+)", capsys.readouterr().out))
    assert float(found["shuffled"]) < 0.8 < 1.2 < float(found["intact"])


def test_the_old_name_of_the_loss_is_the_same_loss(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="chunked_nll"):
        old = trainer("apw-e", tmp_path / "old", loss_type="chunked_nll")
    old.train()
    new = trainer("apw-e", tmp_path / "new")
    new.train()
    assert all(torch.equal(value, tensors(new)[name]) for name, value in tensors(old).items())


def test_prompt_tuning(tmp_path: Path) -> None:
    """PEFT puts virtual tokens in front; the loss of a row is that of the model, for its own tokens."""
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    made = trainer("apw-e", tmp_path, more={"model": model})
    made.curriculum.start(made.model)
    measured = made.curriculum._measured.values
    for row in range(3):
        item = made.train_dataset[row]
        ids, labels = torch.tensor([item["input_ids"]]), torch.tensor([item["labels"]])
        with torch.no_grad():
            loss = made.model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        assert loss.item() == pytest.approx(measured[row].item(), rel=1e-4)
    made = trainer("apw-e", tmp_path, more={"model": model})
    made.train()
    assert made.curriculum.number == EPOCHS
