"""Networks of the paper: those that no other library has; the others are available by name."""

from ...clean.networks import load_weights, named
from .graph_net import gcn
from .resnet import resnet18
from .small import digits_cnn, perceptron, simple_cnn
from .text import text_classifier, text_tokenizer

__all__ = [
    "digits_cnn",
    "gcn",
    "load_weights",
    "named",
    "perceptron",
    "resnet18",
    "simple_cnn",
    "text_classifier",
    "text_tokenizer",
]
