"""Networks of the paper that no other library has."""

from .gcn import gcn
from .resnet import resnet18
from .simple_cnn import simple_cnn

__all__ = ["gcn", "resnet18", "simple_cnn"]
