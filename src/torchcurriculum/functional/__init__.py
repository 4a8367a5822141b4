"""The equations as pure tensor functions, one file per paper."""

from .apw import difficulty, easiness, log_reweight, reweight, weight_change
from .dihcl import hardness_probabilities, update_hardness
from .mixup import beta_sample, mixing_share, pair_share
from .pacing import buckets_in_use, pace
from .rapw import believed, channel, sharpen
from .sampling import draw
from .spl import curriculum_penalty, diversity_bonus, self_paced_weights
from .superloss import confidence, lambert_w

__all__ = [
    "believed",
    "beta_sample",
    "buckets_in_use",
    "channel",
    "confidence",
    "curriculum_penalty",
    "difficulty",
    "diversity_bonus",
    "draw",
    "easiness",
    "hardness_probabilities",
    "lambert_w",
    "log_reweight",
    "mixing_share",
    "pace",
    "pair_share",
    "reweight",
    "self_paced_weights",
    "sharpen",
    "update_hardness",
    "weight_change",
]
