"""PLACEHOLDER"""

import math

from torch import nn


class AutoThreshold(nn.Module):
    def forward(self, losses):
        return math.log(2)
