"""Index-carrying loaders, label noise, and one file per family of data sets."""

from .arrays import Arrays
from .cifar import Images, load_cifar10, load_cifar100
from .cifar_n import load_cifar_n
from .digits import load_digits
from .indexed import indexed
from .noise import flip_labels
from .split import split
from .tudataset import GraphBatch, Graphs, load_tudataset

__all__ = [
    "Arrays",
    "GraphBatch",
    "Graphs",
    "Images",
    "flip_labels",
    "indexed",
    "load_cifar10",
    "load_cifar100",
    "load_cifar_n",
    "load_digits",
    "load_tudataset",
    "split",
]
