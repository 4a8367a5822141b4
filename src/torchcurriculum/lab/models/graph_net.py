"""GCN: the graph network of the APW paper's NCI1 experiments (CurBench's), in plain torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["gcn"]


class Convolution(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W + b, with D the degrees of A + I."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, edges: Tensor, scale: Tensor) -> Tensor:
        # Scaling nodes before and after scales each edge; starting from the nodes adds the self-loops.
        x = (x @ self.weight) * scale
        return x.index_add(0, edges[1], x.index_select(0, edges[0])) * scale + self.bias


class GCN(nn.Module):
    """Graph convolutions with ReLU between them, mean over the nodes of each graph, dropout, a linear layer."""

    def __init__(self, features: int, classes: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        widths = [features, *[hidden] * layers]
        self.layers = nn.ModuleList(Convolution(a, b) for a, b in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, classes)

    def forward(self, graphs: Any) -> Tensor:
        x, edges = graphs.x, graphs.edge_index
        degree = x.new_ones(len(x)).index_add(0, edges[1], x.new_ones(edges.shape[1]))
        scale = degree.rsqrt()[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(F.relu(x) if number else x, edges, scale)
        sums = x.new_zeros(graphs.num_graphs, x.shape[1]).index_add(0, graphs.batch, x)
        nodes = graphs.batch.bincount(minlength=graphs.num_graphs).clamp(min=1)
        return self.head(self.dropout(sums / nodes[:, None]))


def gcn(features: int = 37, classes: int = 2, hidden: int = 64, layers: int = 3, dropout: float = 0.5) -> nn.Module:
    """The GCN of CurBench: three convolutions of 64, mean pooling, dropout and a linear layer, no batch norm.

    It takes batches with ``x``, ``edge_index``, ``batch`` and ``num_graphs``: ours (``data.Graphs``) or those of
    torch-geometric, whose ``GCNConv`` its layers equal.

    Args:
        features: Width F of the nodes' features; NCI1 has 37 node labels.
        classes: Outputs C.
        hidden: Width of every layer.
        layers: Number of convolutions.
        dropout: Share of the pooled features that are dropped while training.

    Returns:
        The network; 10,882 parameters by default.

    Example:
        >>> sum(p.numel() for p in gcn().parameters())
        10882

    Reference:
        Kipf, Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017.
    """
    return GCN(features, classes, hidden, layers, dropout)
