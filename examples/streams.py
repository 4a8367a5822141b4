"""A stream of shards with wrong labels, read by datasets, WebDataset or MosaicML Streaming: a key tells each row.

    python examples/streams.py --source datasets | webdataset | mosaic

The shards are written here: the digits of scikit-learn, every fifth label of the training rows wrong.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

from torchcurriculum import methods, weighted
from torchcurriculum.data import streamed

Row = tuple[str, np.ndarray, int]


def from_datasets(rows: list[Row], folder: Path) -> Callable[[int], Iterable[Any]]:
    """Hugging Face datasets with ``streaming=True``: an id is a column."""
    from datasets import load_dataset

    for shard in range(4):
        lines = [json.dumps({"key": key, "x": x.tolist(), "y": y}) for key, x, y in rows[shard::4]]
        (folder / f"{shard}.jsonl").write_text("\n".join(lines))
    files = [str(path) for path in sorted(folder.glob("*.jsonl"))]
    stream = load_dataset("json", data_files=files, split="train", streaming=True)
    stream = stream.shuffle(seed=0, buffer_size=256).with_format("torch")

    def loader(epoch: int) -> Iterable[Any]:
        stream.set_epoch(epoch)
        return DataLoader(stream, batch_size=64)

    return loader


def from_webdataset(rows: list[Row], folder: Path) -> Callable[[int], Iterable[Any]]:
    """WebDataset: the id is ``__key__``, the name of the sample in its tar file."""
    import webdataset

    for shard in range(4):
        with webdataset.TarWriter(str(folder / f"{shard}.tar")) as writer:
            for key, x, y in rows[shard::4]:
                writer.write({"__key__": key, "x.npy": x, "y.cls": y})
    files = [str(path) for path in sorted(folder.glob("*.tar"))]
    stream = webdataset.WebDataset(files, shardshuffle=4, seed=0).shuffle(256).decode()
    stream = stream.map(lambda sample: {"key": sample["__key__"], "x": sample["x.npy"], "y": sample["y.cls"]})
    loader = DataLoader(stream, batch_size=64)
    return lambda epoch: loader


def from_mosaic(rows: list[Row], folder: Path) -> Callable[[int], Iterable[Any]]:
    """MosaicML Streaming: an id is a column. Its epochs and its shuffling are its own."""
    from streaming import MDSWriter, StreamingDataset

    columns = {"key": "str", "x": "ndarray", "y": "int"}
    with MDSWriter(out=str(folder / "shards"), columns=columns, size_limit=2**17) as writer:
        for key, x, y in rows:
            writer.write({"key": key, "x": x, "y": y})
    loader = DataLoader(StreamingDataset(local=str(folder / "shards"), batch_size=64, shuffle=True), batch_size=64)
    return lambda epoch: loader


SOURCES = {"datasets": from_datasets, "webdataset": from_webdataset, "mosaic": from_mosaic}


def main() -> None:
    """Trains with a method that remembers every sample, and resumes half-way from a saved state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", choices=list(SOURCES), default="datasets")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()

    x, y = load_digits(return_X_y=True)
    x, train = (x / 16).astype(np.float32), 1200
    wrong = np.arange(train) % 5 == 0
    given = np.where(wrong, (y[:train] + 3) % 10, y[:train])
    rows = [(f"digit-{row:04}", x[row], int(given[row])) for row in range(train)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    with tempfile.TemporaryDirectory() as folder:
        loader = SOURCES[options.source](rows, Path(folder))
        stream, criterion = begin()
        for epoch in range(options.epochs):
            if epoch == options.epochs // 2:  # as after a crash: nothing but what was saved
                saved = {"stream": stream.state_dict(), "criterion": criterion.state_dict()}
                stream, criterion = begin()
                stream.load_state_dict(saved["stream"])
                criterion.load_state_dict(saved["criterion"])
            stream.loader = loader(epoch)
            criterion.advance()
            for index, batch in stream:
                loss = criterion(model(batch["x"].float()), batch["y"], index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        guess = model(torch.from_numpy(x)).argmax(1).numpy()
    learnt = (guess[:train] == given)[wrong].mean()
    print(f"{options.source}: {len(stream)} samples by their keys, test accuracy {(guess == y)[train:].mean():.3f}")
    print(f"wrong labels learnt by heart: {learnt:.3f}")


def begin() -> tuple[Any, Any]:
    """The ids of a stream without any yet, and a criterion that grows with them."""
    return streamed([], id="key"), weighted(nn.CrossEntropyLoss(), methods.ELR(1), grows=True)


if __name__ == "__main__":
    main()
