"""Networks of the paper that no other library has."""

from .resnet import resnet18
from .simple_cnn import simple_cnn

__all__ = ["resnet18", "simple_cnn"]
