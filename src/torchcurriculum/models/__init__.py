"""Networks of the paper that no other library has."""

from .simple_cnn import simple_cnn

__all__ = ["simple_cnn"]
