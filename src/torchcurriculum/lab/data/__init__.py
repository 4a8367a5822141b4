"""One file per family of data sets, read from the files that their authors publish."""

from ...clean.pictures import ImageFiles
from .cifar import Images, load_cifar10, load_cifar100
from .cifar_n import load_cifar_n
from .digits import load_digits
from .glue import Tokens, load_glue
from .own import load_image_folder
from .splits import split
from .tudataset import GraphBatch, Graphs, load_tudataset
from .webvision import load_webvision
from .wrench import WeakTexts, hashed_words, load_wrench, majority_vote

__all__ = [
    "GraphBatch",
    "Graphs",
    "ImageFiles",
    "Images",
    "Tokens",
    "WeakTexts",
    "hashed_words",
    "load_cifar10",
    "load_cifar100",
    "load_cifar_n",
    "load_digits",
    "load_glue",
    "load_image_folder",
    "load_tudataset",
    "load_webvision",
    "load_wrench",
    "majority_vote",
    "split",
]
