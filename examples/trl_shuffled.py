"""Fine-tuning with trl where half of the answers belong to other questions: APW gives them less weight.

Everything is made here: the questions, a tokenizer of words, a Llama of two layers. Half a minute on one core.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import SFTConfig

from torchcurriculum import APW
from torchcurriculum.integrations.trl import CurriculumSFTTrainer

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
PARTS = ["morning", "noon", "evening", "night"]
VERBS = ["sing", "read", "swim", "cook", "walk"]
LISTS = [DAYS, PARTS, VERBS]
WORDS = ["<pad>", "<eos>", "after", "what", "?", *DAYS, *PARTS, *VERBS]


def questions(rows: int, seed: int) -> tuple[Dataset, torch.Tensor]:
    """Three words, to be answered by the next one of each list; and which rows have the answer of another question."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randint(0, 10**6, (rows, 3), generator=generator).tolist()
    prompts, answers = [], []
    for place in draws:
        now, then = ([names[(x + step) % len(names)] for names, x in zip(LISTS, place, strict=True)] for step in (0, 1))
        prompts.append(f"{' '.join(now)} what after ?")
        answers.append(f" {' '.join(then)} <eos>")
    shuffled = torch.zeros(rows, dtype=torch.bool)
    shuffled[torch.randperm(rows, generator=generator)[: rows // 2]] = True
    places = shuffled.nonzero().flatten()
    others = places[torch.randperm(len(places), generator=generator)]
    given = {place: answers[other] for place, other in zip(places.tolist(), others.tolist(), strict=True)}
    answers = [given.get(row, answer) for row, answer in enumerate(answers)]
    return Dataset.from_dict({"prompt": prompts, "completion": answers}), shuffled


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each word."""
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def main() -> None:
    """Trains and prints the mean weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tau", type=float, default=0.25, help="share of the weight that hard rows may keep")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    disable_progress_bars()
    train_set, shuffled = questions(options.rows, options.seed)
    torch.manual_seed(options.seed)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=64, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        args = SFTConfig(
            folder,
            per_device_train_batch_size=16,
            num_train_epochs=options.epochs,
            learning_rate=5e-3,
            lr_scheduler_type="constant",
            seed=options.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
        )
        method = APW(len(train_set), q=options.epochs, tau=options.tau)
        trainer = CurriculumSFTTrainer(
            model, args, train_dataset=train_set, processing_class=tokenizer(), method=method, samples=True
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    record = trainer.curriculum.record
    for row, losses in zip(record.epochs, torch.from_numpy(record.history("losses")), strict=True):
        means = f"loss {losses[~shuffled].mean():.2f} intact, {losses[shuffled].mean():.2f} shuffled"
        print(f"epoch {row['epoch']}: rho {row['rho']:.3f}, alpha {row['alpha']:+.3f}, {means}")
    weights = method.weights * len(train_set)
    for words, rows in (("intact", ~shuffled), ("shuffled", shuffled)):
        print(f"mean weight of {words} answers: {weights[rows].mean():.3f} (1 is the average of all)")


if __name__ == "__main__":
    main()
