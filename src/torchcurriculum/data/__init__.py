"""Index-carrying loaders, label noise, and one file per family of data sets."""

from .arrays import Arrays
from .cifar import Images, load_cifar10, load_cifar100
from .cifar_n import load_cifar_n
from .digits import load_digits
from .glue import Tokens, load_rte
from .images import ImageFiles, load_image_folder
from .indexed import indexed
from .noise import flip_labels
from .split import split
from .table import load_csv
from .tudataset import GraphBatch, Graphs, load_tudataset
from .webvision import load_webvision
from .wrench import WeakTexts, hashed_words, load_wrench, majority_vote

__all__ = [
    "Arrays",
    "GraphBatch",
    "Graphs",
    "ImageFiles",
    "Images",
    "Tokens",
    "WeakTexts",
    "flip_labels",
    "hashed_words",
    "indexed",
    "load_cifar10",
    "load_cifar100",
    "load_cifar_n",
    "load_csv",
    "load_digits",
    "load_image_folder",
    "load_rte",
    "load_tudataset",
    "load_webvision",
    "load_wrench",
    "majority_vote",
    "split",
]
