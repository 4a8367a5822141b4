"""Runs the test suite of skorch, transformers, TRL, Lightning or torch's DataLoader with our class in place of theirs.

    python benchmarks/suites.py skorch path/to/a/checkout/of/skorch [-k words and other options of pytest]

It fetches nothing. The suite runs twice, as it is and with our class (the method is ``vanilla``); a test counts if it
passes as it is. Then it passes, or it is refused for one of the reasons that the pages list (REFUSED), or it fails.
This file is also the plugin that pytest loads to swap the class.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILES = {
    "skorch": ["skorch/tests/test_net.py", "skorch/tests/test_classifier.py", "skorch/tests/callbacks"],
    "transformers": [
        f"tests/trainer/test_trainer{part}.py"
        for part in ("", "_callback", "_checkpointing", "_data", "_evaluation", "_optimizers", "_seq2seq")
    ],
    "trl": [f"tests/test_{kind}_trainer.py" for kind in ("sft", "dpo", "reward")],
    "lightning": [
        *(f"tests/tests_pytorch/loops/test_{part}.py" for part in ("loops", "training_loop", "training_epoch_loop")),
        *(f"tests/tests_pytorch/loops/test_training_loop_flow_{part}.py" for part in ("dict", "scalar")),
        "tests/tests_pytorch/trainer/logging_/test_train_loop_logging.py",
        *(
            f"tests/tests_pytorch/callbacks/test_{part}.py"
            for part in ("callbacks", "early_stopping", "gradient_accumulation_scheduler", "lr_monitor")
        ),
    ],
    "torch": ["test/test_dataloader.py"],
}

# A part of our sentence, and what the page of the suite lists.
REFUSED = {
    "is not the mean over its rows": "a criterion without reduction that is not the mean over its rows",
    "has the sampler|has the batch sampler": "a sampler, batch sampler or shuffle=False of the training loader",
    "is an iterable dataset: its samples": "an iterable data set",
    "has in_order=False": "in_order=False",
    "needs one torch DataLoader for training": "several training loaders, or one that is not a DataLoader",
    "which has no length or no row numbers|needs a length and row numbers": "an iterable data set",
    "the method decides the order of rows": "a sampler, sampling strategy or training loader of the user's own",
    "compute_loss_func returns one loss": "compute_loss_func",
    "ignore_data_skip would train twice": "ignore_data_skip",
    "leave split_batches and dispatch_batches": "split_batches, dispatch_batches",
    "is not known; pass": "a model whose loss for each sample is not known",
    "holds no curriculum state": "a checkpoint that holds no curriculum",
    "cuts rows into pieces": "packing_strategy other than 'bfd'",
    "loss_type must be 'nll'|loss_type must be 'sigmoid'": "another loss_type than 'nll' and 'sigmoid'",
    "use_weighting, ld_alpha and f_divergence_type": "use_weighting, ld_alpha, f_divergence_type of DPO",
    "center_rewards_coefficient adds": "center_rewards_coefficient",
    "does not support label_smoothing_factor": "label_smoothing_factor",
    "pairs with images": "pairs with images",
    "the auxiliary loss of a mixture of experts": "the auxiliary loss of mixtures of experts",
    "the state is of a training set|inside an epoch with seed": "a checkpoint of another set or batch size",
    "losses are NaN or infinite": "losses that are not finite, unless nan_strategy says what to do",
    "overfit_batches repeats": "overfit_batches",
    "neither used self.criterion with a reduction": "a module without a criterion or the call",
    "must return one loss per sample": "a criterion that is given something else than the rows of the batch",
}
# A test that counts on what a curriculum changes, and what the page of the suite says about it.
DIFFERS = {
    "test_eval_packing|test_only_train_packing": "rows are samples, not packs",
    "test_repr_": "the net prints its own class and parameters",
    "test_logging.py.*(keys_from_history|ignore_keys|key_mapper|log_epochs_with_step)": "the history has more columns",
    "test_weights_restore": "rows come in another order than skorch's",
    "test_event_flow|test_reduce_lr_on_plateau|test_(sft|dpo|reward)_trainer.py.*("
    "with_(eval|multiple_eval|compute_metrics)|test_prompt_tuning)": "the method's numbers are a line of the log",
    "test_train_loop_logging.py.*(_log|_sizing|_function|_batch_start|_values|_train_start)$": "the method logs, too",
    "test_workers_are_shutdown": "batches come from the curriculum's loader, not from a subclass of DataLoader",
    "fit_params_passed_to_module|extra_params_and_routing": "rows whose losses are not finite cost another pass",
}


def swap_skorch() -> None:
    """``skorch.NeuralNetClassifier`` becomes ``CurriculumNet``."""
    import skorch

    from torchcurriculum.integrations.skorch import CurriculumNet

    class NeuralNetClassifier(CurriculumNet):
        def __init__(self, *args: Any, method: Any = "vanilla", nan_strategy: Any = "ignore", **kwargs: Any) -> None:
            super().__init__(*args, method=method, nan_strategy=nan_strategy, **kwargs)

    _put(NeuralNetClassifier, skorch)


def swap_transformers() -> None:
    """``Trainer`` and ``Seq2SeqTrainer`` become ``CurriculumTrainer`` and the same for sequences.

    The models of the suite's own regression are told their loss for each sample, as users would.
    """
    import transformers

    from torchcurriculum.integrations.transformers import CurriculumMixin

    class Swapped(CurriculumMixin):
        def __init__(self, model: Any = None, *args: Any, method: Any = "vanilla", **kwargs: Any) -> None:
            init = kwargs.get("model_init")
            made = model if init is None else init(*([None] * init.__code__.co_argcount))
            if "Regression" in type(made).__name__:
                kwargs = {"loss_fn": _squared, "forward": _first_output, **kwargs}
            super().__init__(model, *args, method=method, **kwargs)

    for name in ("Trainer", "Seq2SeqTrainer"):
        _put(type(name, (Swapped, getattr(transformers, name)), {}), transformers)


def swap_lightning() -> None:
    """Every trainer has a ``CurriculumCallback``; the suite's own model has a criterion."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.demos import boring_classes as boring

    from torchcurriculum.integrations.lightning import CurriculumCallback

    init, made = pl.Trainer.__init__, boring.BoringModel.__init__

    def trainer(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.callbacks.insert(0, CurriculumCallback("vanilla"))

    def model(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.criterion = torch.nn.MSELoss()

    def loss(self: Any, preds: Any, labels: Any = None) -> Any:
        return self.criterion(preds, torch.ones_like(preds) if labels is None else labels)

    pl.Trainer.__init__, boring.BoringModel.__init__, boring.BoringModel.loss = trainer, model, loss


def swap_trl() -> None:
    """``SFTTrainer``, ``DPOTrainer`` and ``RewardTrainer`` become ours."""
    import trl

    from torchcurriculum.integrations import trl as ours

    def init(self: Any, *args: Any, method: Any = "vanilla", **kwargs: Any) -> None:
        super(type(self), self).__init__(*args, method=method, **kwargs)

    for name in ("SFTTrainer", "DPOTrainer", "RewardTrainer"):
        _put(type(name, (getattr(ours, f"Curriculum{name}"),), {"__init__": init}), trl)


def swap_torch() -> None:
    """``DataLoader`` iterates by ``indexed``; the rows are checked and left out, so the tests see their batches."""
    import torch.utils.data
    from torch.utils.data import DataLoader as Plain

    from torchcurriculum.data.loaders import _Recorder, indexed

    class Batches:
        def __init__(self, loader: Any) -> None:
            self.pairs, self.sizes = iter(indexed(loader)), loader.batch_sampler is not None
            self.pairs.batches = iter(self.pairs.shadow)  # its workers start here, as torch's do

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            index, batch = next(self.pairs)
            if isinstance(batch, torch.Tensor) and batch.ndim and self.sizes:
                assert len(index) == len(batch)
            return batch

        def __len__(self) -> int:
            return len(self.pairs.shadow)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["pairs"].batches, name)

    class DataLoader(Plain):
        def __iter__(self) -> Any:
            shadow = isinstance(self.batch_sampler, _Recorder) or isinstance(self.sampler, _Recorder)
            return super().__iter__() if shadow else Batches(self)

    _put(DataLoader, torch.utils.data.dataloader, torch.utils.data)


def copy_of_trl(checkout: Path, place: Path) -> Path:
    """TRL's tests without its package, which would hide the installed one, and what they ask the hub for.

    On the hub there are the same small models with the tokenizers of large ones; here a token is a byte. A private name
    that the installed version lacks is a function that returns False, so that only the tests of that name fail.
    """
    shutil.copytree(checkout / "tests", place / "tests")
    for test in (*FILES["trl"], "tests/testing_utils.py"):
        text = (place / test).read_text()
        words = r"^from (trl\.[\w.]+) import (\([^)]*\)|.*)$"
        (place / test).write_text(re.sub(words, _import_what_is_there, text, flags=re.MULTILINE))
    shutil.copy(checkout / "pyproject.toml", place)
    folder = place / "trl-internal-testing"
    import transformers
    from datasets import DatasetDict
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    def save(self: DatasetDict, _: str, config_name: str) -> None:
        for split, rows in self.items():
            rows.to_json(folder / "zen" / config_name / f"{split}.jsonl")

    script = runpy.run_path(str(checkout / "scripts" / "generate_zen_dataset.py"))
    published, DatasetDict.push_to_hub = DatasetDict.push_to_hub, save
    script["main"](0.1, True, "zen")
    DatasetDict.push_to_hub = published
    names = sorted(path.name for path in (folder / "zen").iterdir())
    parts = ", ".join(f"{{{{split: {split}, path: {{0}}/{split}.jsonl}}}}" for split in ("train", "test"))
    files = f"  data_files: [{parts}]\n"
    parts = "".join(f"- config_name: {name}\n{files.format(name)}" for name in names)
    (folder / "zen" / "README.md").write_text(f"---\nconfigs:\n{parts}---\n")

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    marks = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "extra_special_tokens": ["<|im_start|>"]}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **marks)
    tokenizer.chat_template = (checkout / "trl" / "chat_templates" / "qwen2_5.jinja").read_text()
    sizes = {"hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    names = ("Qwen2ForCausalLM-2.5", "Qwen3ForCausalLM", "LlamaForCausalLM-3.2", "MistralForCausalLM-0.2")
    for name in (*names, "Qwen2ForSequenceClassification-2.5"):
        kind = name.split("For")[0]
        more = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "intermediate_size": 32}
        config = getattr(transformers, f"{kind}Config")(**more, **sizes)
        config.num_labels = 1 if "Sequence" in name else 2
        model = getattr(transformers, name.split("-")[0])(config)
        for made in (model, tokenizer):
            made.save_pretrained(folder / f"tiny-{name}")
    return place


def _import_what_is_there(found: re.Match[str]) -> str:
    names = re.findall(r"\w+", found[2])
    lines = [f"import {found[1]} as _module", *(f"{name} = getattr(_module, {name!r}, bool)" for name in names)]
    return "\n".join(lines)


def _squared(outputs: Any, labels: Any) -> Any:
    if isinstance(labels, dict):
        labels = next(iter(labels.values()))
    return (outputs - labels).square().reshape(len(outputs), -1).mean(1)


def _first_output(model: Any, inputs: Any) -> Any:
    outputs = model(**inputs)
    return outputs["output"] if isinstance(outputs, dict) else outputs[0]


def _put(cls: type, *modules: Any) -> None:
    """The class under its name in each module, so that pickles find it."""
    cls.__module__, cls.__qualname__ = modules[-1].__name__, cls.__name__
    for module in modules:
        setattr(module, cls.__name__, cls)


SWAPS: dict[str, Callable[[], None]] = {
    "skorch": swap_skorch,
    "transformers": swap_transformers,
    "lightning": swap_lightning,
    "trl": swap_trl,
    "torch": swap_torch,
}

# ---------------------------------------------------------------------- the plugin

OUTCOMES: dict[str, tuple[str, str]] = {}


def pytest_configure(config: Any) -> None:
    """Swaps the class before any test is imported."""
    if os.environ.get("SUITE") == "lightning":
        from lightning.pytorch.utilities import imports

        imports.__dict__.setdefault("_TORCH_GREATER_EQUAL_2_11", True)  # newer tests import it
    if os.environ.get("SUITE_SWAP"):
        SWAPS[os.environ["SUITE"]]()


def pytest_runtest_logreport(report: Any) -> None:
    """Notes how a test ended; a test of which any part fails has failed."""
    before = OUTCOMES.get(report.nodeid, ("", ""))[0]
    if report.failed or (report.when == "call" and before != "failed") or (report.skipped and not before):
        OUTCOMES[report.nodeid] = (report.outcome, str(report.longrepr) if report.failed else "")


def pytest_sessionfinish() -> None:
    """Writes the outcomes for the process that asked."""
    if path := os.environ.get("SUITE_OUT"):
        Path(path).write_text(json.dumps(OUTCOMES))


# ---------------------------------------------------------------------- the script


def run(suite: str, checkout: Path, swapped: bool, options: list[str]) -> dict[str, tuple[str, str]]:
    """How each test of the suite ended, and the report of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "outcomes.json"
        here = str(Path(__file__).parent)
        environment = {**os.environ, "SUITE": suite, "SUITE_SWAP": "1" * swapped, "SUITE_OUT": str(out)}
        environment["PYTHONPATH"] = os.pathsep.join([here, environment.get("PYTHONPATH", "")])
        environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        named = any(Path(checkout, part.split("::")[0]).exists() for part in options)
        flags = ["-q", "-o", "addopts=", "-p", "suites", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        command = [sys.executable, "-m", "pytest", *flags, *([] if named else FILES[suite]), *options]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
        if not out.exists() or out.read_text() == "{}":
            raise SystemExit(f"pytest did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(out.read_text())


def reason(test: str, report: str) -> str | None:
    """The page's words for a refusal that is in a test's report, or for a test that counts on something else."""
    found = [words for sentence, words in REFUSED.items() if re.search(sentence, report)]
    found += [words for pattern, words in DIFFERS.items() if re.search(pattern, test)]
    return found[0] if found else None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(FILES))
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--plain", type=Path, help="a file that keeps the outcomes of the suite as it is")
    parser.add_argument("--reports", type=Path, help="a folder for the reports of tests that fail")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.suite == "trl":
            options.checkout = copy_of_trl(options.checkout, Path(folder))
        compare(options, rest)


def compare(options: argparse.Namespace, rest: list[str]) -> None:
    """Runs a suite twice and prints passed / refused by design / failed."""
    if options.plain and options.plain.exists():
        plain = json.loads(options.plain.read_text())
    else:
        plain = run(options.suite, options.checkout, False, rest)
        if options.plain:
            options.plain.write_text(json.dumps(plain))
    ours = run(
        options.suite, options.checkout, True, [test for test, (outcome, _) in plain.items() if outcome == "passed"]
    )
    counted = [test for test, (outcome, _) in plain.items() if outcome == "passed" and test in ours]
    passed = [test for test in counted if ours[test][0] == "passed"]
    refused = {test: words for test in counted if ours[test][0] == "failed" and (words := reason(test, ours[test][1]))}
    failed = [test for test in counted if test not in refused and ours[test][0] != "passed"]
    for test in failed:
        print("FAILED", test)
        if options.reports:
            options.reports.mkdir(exist_ok=True)
            Path(options.reports, re.sub(r"\W+", "_", test)[-120:]).write_text(ours[test][1])
    for words, count in Counter(refused.values()).most_common():
        print(f"refused {count}: {words}")
    counts = f"{len(passed)} passed, {len(refused)} refused, {len(failed)} failed"
    print(f"{options.suite} {version(options.suite)}: {counts}")
    print(f"({len(plain) - len(counted)} of {len(plain)} are skipped or fail as they are, or did not run)")
    if options.json:
        figures: dict[str, Any] = {
            "suite": options.suite,
            "version": version(options.suite),
            "passed": len(passed),
            "failed": failed,
        }
        figures |= {"refused": Counter(refused.values()), "refused_tests": refused}
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
