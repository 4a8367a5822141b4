"""Graph data sets of the TUDataset collection, such as NCI1, from their official text files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...data import Rows
from .text_files import numbers, official, read_bytes

__all__ = ["GraphBatch", "Graphs", "load_tudataset"]

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"


@dataclass(frozen=True)
class GraphBatch:
    """Several graphs as one graph without edges between them; the names are those of torch-geometric.

    Attributes:
        x: (V, F) features of all nodes.
        edge_index: (2, E) from and to, positions in ``x``.
        batch: (V,) which graph a node belongs to.
        num_graphs: Number of graphs.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    num_graphs: int

    def __len__(self) -> int:
        return self.num_graphs

    def to(self, device: torch.device) -> GraphBatch:
        """A copy on ``device``."""
        parts = {name: getattr(self, name).to(device) for name in ("x", "edge_index", "batch")}
        return replace(self, **parts)


class Graphs(Rows):
    """Graphs held in memory, on any device; ``batch`` joins many of them into one block-diagonal graph.

    Args:
        x: (V, F) features of all nodes, those of a graph next to each other.
        edge_index: (2, E) from and to, positions in ``x``; edges stay within a graph.
        graph: (V,) which graph a node belongs to, ascending.
        y: (N,) targets of the graphs.
        names: Names of the graphs, or None.

    Example:
        >>> edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> data = Graphs(torch.eye(4), edges, torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0]))
        >>> graphs, y = data.batch(torch.tensor([1]))
        >>> graphs.edge_index.tolist(), graphs.x.argmax(1).tolist(), y.tolist()
        ([[0, 1], [1, 0]], [2, 3], [0])
    """

    def __init__(
        self, x: Tensor, edge_index: Tensor, graph: Tensor, y: Tensor, names: Sequence[str] | None = None
    ) -> None:
        of_edge = graph[edge_index[0]]
        if (graph.diff() < 0).any() or (of_edge != graph[edge_index[1]]).any():
            raise ValueError("nodes of a graph must be contiguous, and edges must stay within a graph")
        self.x, self.y, self.names = x, y, names
        self.edge_index = edge_index[:, of_edge.argsort(stable=True)]
        self._nodes = graph.bincount(minlength=len(y))
        self._edges = of_edge.bincount(minlength=len(y))
        self._first_node = self._nodes.cumsum(0) - self._nodes
        self._first_edge = self._edges.cumsum(0) - self._edges

    def __getitem__(self, row: int) -> tuple[GraphBatch, Tensor]:
        graph, y = self.batch(torch.tensor([row]))
        return graph, y[0]

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[GraphBatch, Tensor]:
        """The graphs of ``index`` as one, and their targets; the generator is not used."""
        index = index.to(self.y.device)
        nodes, graph, shift = _ranges(self._first_node[index], self._nodes[index])
        edges, of_edge, _ = _ranges(self._first_edge[index], self._edges[index])
        edge_index = self.edge_index.index_select(1, edges) - shift[of_edge]
        return GraphBatch(self.x.index_select(0, nodes), edge_index, graph, len(index)), self.y[index]

    def part(self, rows: Tensor) -> Graphs:
        """The graphs of ``rows`` as a separate data set."""
        graphs, y = self.batch(rows)
        names = None if self.names is None else [self.names[row] for row in rows.tolist()]
        return Graphs(graphs.x, graphs.edge_index, graphs.batch, y, names)


def _ranges(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions first[i], ..., first[i] + count[i] - 1 joined; the i of each; how far each i moved."""
    owner = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    shift = first - (count.cumsum(0) - count)
    return torch.arange(len(owner), device=count.device) + shift[owner], owner, shift


def load_tudataset(folder: str | Path, name: str = "NCI1") -> Graphs:
    """A data set of the TUDataset collection with node labels, which become one-hot features.

    Edges from a node to itself and repeated edges are dropped, as in torch-geometric.

    Args:
        folder: The folder of ``NAME_A.txt`` and its companions, or of ``NAME/`` or ``NAME/raw/`` with them.
        name: For example ``"NCI1"``: 4,110 graphs, 2 classes, 37 node labels.

    Returns:
        All graphs, in the order of the files, with classes counted from 0.

    Raises:
        FileNotFoundError: With the address to get the files from.
        ValueError: With the damaged file, the reason and the address.

    Reference:
        Morris et al., TUDataset: A collection of benchmark datasets for learning with graphs, 2020.
    """
    with official(ADDRESS.format(name=name)):
        return _load(Path(folder), name, ADDRESS.format(name=name))


def _load(folder: Path, name: str, address: str) -> Graphs:
    places = [folder / name / "raw", folder / name, folder / "raw", folder]
    place = next((place for place in places if (place / f"{name}_A.txt").exists()), folder)

    def read(part: str, columns: int = 1) -> tuple[Path, np.ndarray]:
        path = place / f"{name}_{part}.txt"
        return path, numbers(path, read_bytes(path, address), columns)

    path, indicator = read("graph_indicator")
    graph = indicator[:, 0] - 1
    count = int(graph[-1]) + 1
    if graph[0] != 0 or not np.isin(np.diff(graph), (0, 1)).all():
        raise ValueError(f"{path} is damaged: graphs must be counted from 1 in ascending order, each with a node")
    path, labels = read("graph_labels")
    if len(labels) != count:
        raise ValueError(f"{path} is damaged: it has {len(labels)} lines, and there are {count} graphs")
    path, kinds = read("node_labels")
    if len(kinds) != len(graph):
        raise ValueError(f"{path} is damaged: it has {len(kinds)} lines, and there are {len(graph)} nodes")
    path, edges = read("A", columns=2)
    if edges.min() < 1:
        raise ValueError(f"{path} is damaged: it names a node below 1")
    if edges.max() > len(graph):
        raise ValueError(f"{path} is damaged: it names node {edges.max()}, and there are {len(graph)} nodes")
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]] - 1, axis=0)
    if (graph[edges[:, 0]] != graph[edges[:, 1]]).any():
        raise ValueError(f"{path} is damaged: it has an edge from one graph to another")
    made = _tensors(kinds[:, 0], edges, graph, labels[:, 0])
    made.names = [f"{name}, graph {number}" for number in range(1, count + 1)]
    return made


def _tensors(kinds: np.ndarray, edges: np.ndarray, graph: np.ndarray, labels: np.ndarray) -> Graphs:
    known, kind = np.unique(kinds, return_inverse=True)
    x = torch.nn.functional.one_hot(torch.from_numpy(kind), len(known)).float()
    y = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    return Graphs(x, torch.from_numpy(np.ascontiguousarray(edges.T)), torch.from_numpy(graph), y)
