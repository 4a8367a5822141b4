"""trl's DPO and reward models with a method: losses of pairs are trl's own, weights reach the gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

pytest.importorskip("trl")
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

from torchcurriculum.audit import audit
from torchcurriculum.integrations.trl import CurriculumDPOTrainer, CurriculumRewardTrainer

from .test_trl import SHUFFLED

N, EPOCHS = 12, 2
KINDS: dict[str, Any] = {"dpo": (CurriculumDPOTrainer, DPOTrainer), "reward": (CurriculumRewardTrainer, RewardTrainer)}


def pairs(margin: bool = False, n: int = N) -> Dataset:
    """The right answer against two words of it; every fourth pair is swapped."""
    data, _ = SHUFFLED.questions(n, 0)
    columns = {"prompt": data["prompt"][:], "chosen": data["completion"][:]}
    columns["rejected"] = [" ".join(answer.split()[1:3]) for answer in columns["chosen"]]
    for row in range(0, n, 4):
        columns["chosen"][row], columns["rejected"][row] = columns["rejected"][row], columns["chosen"][row]
    return Dataset.from_dict(columns | ({"margin": [0.1 * row for row in range(n)]} if margin else {}))


def network(kind: str, seed: int = 4) -> Any:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(vocab_size=len(SHUFFLED.WORDS), max_position_embeddings=32, pad_token_id=0, **sizes)
        if kind == "dpo":
            return LlamaForCausalLM(config)
        config.num_labels = 1
        return LlamaForSequenceClassification(config)


def trainer(kind: str, folder: Path, ours: bool = True, more: Any = None, in_order: bool = True, **options: Any) -> Any:
    """A trainer of ours, or trl's own, over the same rows; in order, their runs can be compared."""
    given = {"train_dataset": pairs(), "processing_class": SHUFFLED.tokenizer(), **(more or {})}
    if kind == "dpo":
        given.setdefault("ref_model", network("dpo", seed=5))
        options = {"beta": 0.5, **options}
    if ours:
        given.setdefault("method", "vanilla")
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
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
    model = given.pop("model", None) or network(kind)
    made = (DPOConfig if kind == "dpo" else RewardConfig)(**settings)
    cls = KINDS[kind][0 if ours else 1]
    if in_order:
        cls = type(cls.__name__, (cls,), {"_get_train_sampler": lambda self, data=None: SequentialSampler(pairs())})
    return cls(model, args=made, **given)


def alone(theirs: Any, row: int) -> torch.Tensor:
    """trl's own loss of a batch of one pair."""
    data = theirs._remove_unused_columns(theirs.train_dataset, "training")
    return theirs.compute_loss(theirs.model, dict(theirs.data_collator([data[row]])))


@pytest.mark.parametrize(("kind", "margin"), [("dpo", False), ("reward", False), ("reward", True)])
def test_the_loss_of_a_pair_is_trls_own(kind: str, margin: bool, tmp_path: Path) -> None:
    data = {"train_dataset": pairs(margin)}
    made, theirs = (
        trainer(kind, tmp_path, ours, data | ({"method": "apw-e"} if ours else {})) for ours in (True, False)
    )
    made.curriculum.start(made.model)
    measured = made.curriculum._measured.values
    assert len(measured.unique()) > N / 2
    with torch.no_grad():
        expected = [alone(theirs, row).item() for row in range(N)]
    assert measured.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_vanilla_is_trls_own_run(kind: str, tmp_path: Path) -> None:
    runs = [trainer(kind, tmp_path / str(ours), ours, gradient_accumulation_steps=2) for ours in (True, False)]
    for run in runs:
        run.train()
    logged = [[entry for entry in run.state.log_history if "loss" in entry] for run in runs]
    own = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")
    for ours, theirs in zip(*logged, strict=True):
        for name in ("loss", "grad_norm", "num_tokens", *(own if kind == "dpo" else ("accuracy", "margin"))):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3), name
    expected = runs[1].model.state_dict()
    assert all(torch.allclose(value, expected[name], atol=1e-5) for name, value in runs[0].model.state_dict().items())
    held_out = {"eval_dataset": pairs()}
    assert runs[0].evaluate(**held_out)["eval_loss"] == pytest.approx(
        runs[1].evaluate(**held_out)["eval_loss"], rel=1e-4
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_column_of_weights_reaches_the_gradient(kind: str, parts: int, tmp_path: Path) -> None:
    weights = [float(row % 3) for row in range(N)]
    method = {"method": "given-weights", "method_options": {"weights": weights}}
    options = {"per_device_train_batch_size": 6 // parts, "gradient_accumulation_steps": parts}
    made = trainer(kind, tmp_path, more=method, max_steps=1, **options)
    theirs = trainer(kind, tmp_path, ours=False)
    scaled = torch.tensor(weights) / torch.tensor(weights).mean()
    loss = sum(scaled[row] * alone(theirs, row) for row in range(6)) / 6
    before = {name: value.detach().clone() for name, value in made.model.named_parameters()}
    loss.backward()
    made.train()
    for name, value in theirs.model.named_parameters():
        step = (before[name] - dict(made.model.named_parameters())[name].detach()) / 0.5
        assert torch.allclose(step, value.grad, rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumes_bit_equal(kind: str, tmp_path: Path) -> None:
    options = {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 1}
    whole = trainer(kind, tmp_path, more={"method": "superloss"}, **options)
    whole.train()
    again = trainer(kind, tmp_path, more={"method": "superloss"}, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    expected = whole.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())


def test_reference_log_probabilities_may_be_known_beforehand(tmp_path: Path) -> None:
    asked = trainer("dpo", tmp_path)
    known = trainer("dpo", tmp_path, precompute_ref_log_probs=True)
    for made in (asked, known):
        made.train()
    assert "ref_chosen_logps" in known.train_dataset.column_names
    expected = asked.model.state_dict()
    assert all(torch.allclose(value, expected[name], atol=1e-6) for name, value in known.model.state_dict().items())


def test_a_loss_of_ones_own(tmp_path: Path) -> None:
    hinge = trainer("dpo", tmp_path, more={"loss_fn": lambda rewards, _: torch.relu(1 - rewards[:, 0] + rewards[:, 1])})
    hinge.train()
    theirs = trainer("dpo", tmp_path, ours=False, loss_type="hinge")
    theirs.train()
    ours, expected = ([entry["loss"] for entry in run.state.log_history if "loss" in entry] for run in (hinge, theirs))
    assert ours == pytest.approx(expected, rel=1e-4)


def test_swapped_pairs_are_found(tmp_path: Path) -> None:
    more = {"train_dataset": pairs(n=64), "method": "apw-e", "method_options": {"tau": 0.1}, "samples": True}
    options = {"num_train_epochs": 6, "learning_rate": 0.01, "optim": "adamw_torch", "logging_strategy": "no"}
    made = trainer("reward", tmp_path, more=more, in_order=False, **options)
    made.train()
    swapped = torch.arange(64) % 4 == 0
    weights = made.curriculum.method.weights
    assert weights[swapped].mean() < weights[~swapped].mean()
    found = audit(made.curriculum.record)
    assert (found.order[:16] % 4 == 0).mean() > 0.8
    assert found.suggested[0] == 1
    assert found.given.max() == 0


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("dpo", {"loss_type": "ipo"}, "loss_type must be 'sigmoid'; for another loss pass loss_fn"),
        ("dpo", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 1.0]}, "loss_type must be 'sigmoid'"),
        ("dpo", {"use_weighting": True}, "use_weighting, ld_alpha and f_divergence_type change the loss of a pair"),
        ("reward", {"center_rewards_coefficient": 0.1}, "center_rewards_coefficient adds a term to the loss"),
    ],
)
def test_what_cannot_be_kept_is_refused(kind: str, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        trainer(kind, tmp_path, **options)
