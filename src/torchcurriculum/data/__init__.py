"""Index-carrying loaders, label noise, and one file per family of data sets."""

from .arrays import Arrays
from .cifar import Images, load_cifar10
from .cifar_n import load_cifar_n
from .digits import load_digits
from .indexed import indexed
from .noise import flip_labels
from .wrench import WeakTexts, hashed_words, load_wrench, majority_vote

__all__ = [
    "Arrays",
    "Images",
    "WeakTexts",
    "flip_labels",
    "hashed_words",
    "indexed",
    "load_cifar10",
    "load_cifar_n",
    "load_digits",
    "load_wrench",
    "majority_vote",
]
