"""Graphs of the TUDataset form: the reader, block-diagonal batches, and the GCN against dense matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchcurriculum.lab.data import Graphs, load_tudataset
from torchcurriculum.lab.models import gcn

FILES = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n4, 4\n4, 5\n",  # a loop and a repeated edge
    "graph_indicator": "1\n1\n1\n2\n2\n3\n",
    "graph_labels": "1\n-1\n1\n",
    "node_labels": "0\n2\n0\n7\n2\n0\n",
}


def write(folder: Path, **changes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in {**FILES, **changes}.items():
        (folder / f"TINY_{part}.txt").write_text(text)
    return folder


def test_the_reader_knows_every_place_and_counts_from_zero(tmp_path: Path) -> None:
    write(tmp_path / "TINY" / "raw")
    for place in (tmp_path, tmp_path / "TINY", tmp_path / "TINY" / "raw"):
        graphs = load_tudataset(place, "TINY")
        assert graphs.y.tolist() == [1, 0, 1]
        assert graphs.x.argmax(1).tolist() == [0, 1, 0, 2, 1, 0]
        assert graphs.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 4], [4, 3]]


def test_a_batch_is_the_graphs_side_by_side(tmp_path: Path) -> None:
    graphs = load_tudataset(write(tmp_path), "TINY")
    batch, y = graphs.batch(torch.tensor([2, 0]))
    assert y.tolist() == [1, 1]
    assert batch.x.argmax(1).tolist() == [0, 0, 1, 0]
    assert batch.edge_index.T.tolist() == [[1, 2], [2, 1], [2, 3], [3, 2]]
    assert batch.batch.tolist() == [0, 1, 1, 1]
    assert len(batch) == 2
    part = graphs.part(torch.tensor([1, 0]))
    again, y = part.batch(torch.tensor([1, 0]))
    assert again.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 4], [4, 3]]
    assert y.tolist() == [1, 0]
    assert graphs[1][0].x.argmax(1).tolist() == [2, 1]


def test_with_labels_changes_nothing_else(tmp_path: Path) -> None:
    graphs = load_tudataset(write(tmp_path), "TINY")
    other = graphs.with_labels(torch.tensor([0, 0, 0]))
    assert graphs.y.tolist() == [1, 0, 1]
    assert other.batch(torch.tensor([0]))[1].tolist() == [0]
    with pytest.raises(ValueError, match="3 inputs and 2 targets"):
        graphs.with_labels(torch.tensor([0, 0]))


def test_gcn_equals_dense_matrices(tmp_path: Path) -> None:
    graphs = load_tudataset(write(tmp_path), "TINY")
    net = gcn(features=3, hidden=4).double().eval()
    batch, _ = graphs.batch(torch.arange(3))
    x = batch.x.double()
    adjacency = torch.eye(6, dtype=torch.float64)
    adjacency[batch.edge_index[1], batch.edge_index[0]] = 1
    scale = adjacency.sum(1).rsqrt().diag()
    h = x
    for number, layer in enumerate(net.layers):
        h = scale @ adjacency @ scale @ (h.relu() if number else h) @ layer.weight + layer.bias
    pooled = torch.stack([h[:3].mean(0), h[3:5].mean(0), h[5]])
    expected = net.head(pooled)
    from dataclasses import replace

    torch.testing.assert_close(net(replace(batch, x=x)), expected)


@pytest.mark.parametrize(
    ("part", "text", "reason"),
    [
        ("A", "1, 2\n2, 9\n", "names node 9, and there are 6 nodes"),
        ("A", "1, 2\n0, 1\n", "names a node below 1"),
        ("A", "1, 4\n", "edge from one graph to another"),
        ("A", "1, 2\n2\n", "line 2 is '2', not 2 whole number"),
        ("A", "1, x\n", "line 1 is '1, x', not 2 whole number"),
        ("A", "", "is empty"),
        ("graph_indicator", "1\n1\n1\n3\n3\n3\n", "counted from 1 in ascending order"),
        ("graph_indicator", "2\n2\n2\n3\n3\n3\n", "counted from 1 in ascending order"),
        ("graph_labels", "1\n1\n", "it has 2 lines, and there are 3 graphs"),
        ("node_labels", "1\n1\n", "it has 2 lines, and there are 6 nodes"),
        ("node_labels", "1\n1.5\n", "line 2 is '1.5', not 1 whole number"),
        ("node_labels", "1\n99999999999999999999\n", "line 2 is '99999999999999999999'"),
    ],
)
def test_damage_is_named_with_its_file(tmp_path: Path, part: str, text: str, reason: str) -> None:
    write(tmp_path, **{part: text})
    with pytest.raises(ValueError, match=reason) as caught:
        load_tudataset(tmp_path, "TINY")
    assert str(tmp_path / f"TINY_{part}.txt") in str(caught.value)


def test_a_missing_file_comes_with_its_address(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"NCI1_graph_indicator.txt is missing; get it from https://"):
        load_tudataset(tmp_path)


def test_edges_between_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="edges must stay within a graph"):
        Graphs(torch.eye(2), torch.tensor([[0], [1]]), torch.tensor([0, 1]), torch.tensor([0, 1]))
