"""Networks of the paper: those that no other library has, and the others by their names."""

from .gcn import gcn
from .named import load_weights, named
from .resnet import resnet18
from .simple_cnn import simple_cnn
from .text import text_classifier, text_tokenizer

__all__ = ["gcn", "load_weights", "named", "resnet18", "simple_cnn", "text_classifier", "text_tokenizer"]
