"""The equations as pure tensor functions, one file per paper."""

from .apw import difficulty, easiness, log_reweight, reweight, weight_change
from .mixup import beta_sample, mixing_share, pair_share
from .sampling import draw

__all__ = [
    "beta_sample",
    "difficulty",
    "draw",
    "easiness",
    "log_reweight",
    "mixing_share",
    "pair_share",
    "reweight",
    "weight_change",
]
