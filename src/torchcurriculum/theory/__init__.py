"""Section 3 and Appendix D of the APW paper, as pure functions of a `Record`.

Epochs are counted from 1, as in the paper; an array with one entry per epoch holds epoch k at position k - 1. As the
weights begin at 1/N, they follow from g_K, w_K = softmax(-g_K), so a record needs no stored weights.

Theorems 1 to 3 and Lemmas 1 and 2 have two sides that can be computed, and both are. Of Theorem 4 only the part over
the training set can be.

The statements are those of E-weighting with tau = 1/2 (the paper's default), one e, and losses measured at the start of
each epoch over all rows. The rows of a record hold the settings of the run (see ``setting``); a record with other or
missing settings is refused with the reason.

**The clip.** The recorded rho is the weight r on hard samples clipped to [1e-4, 1 - 1e-4]; the recorded z is the true
normaliser Z = (1 - r) exp(-alpha) + r exp(alpha), which the update divided by. Theorem 2's equality needs the true one.
The bounds of Theorems 2 and 3 are proven for Z at the clipped rho, and hold for the true Z as it is never larger: where
r < rho = 1e-4, alpha is positive and Z grows with r; where r > rho = 1 - 1e-4, alpha is negative and Z falls with r.

Reference:
    Li et al., Adaptively Point-weighting Curriculum Learning, Section 3 and Appendix D.
"""

from .quantities import (
    Phase,
    convergence_phases,
    cumulative_alpha,
    cumulative_performance,
    phase_performance,
    positive_phases,
    relative_performance,
    strength,
    weights,
)
from .setting import PAPER, check_setting
from .theorems import (
    Decay,
    DifficultyBound,
    Effectiveness,
    Retention,
    Stability,
    decay,
    delta,
    difficulty_bound,
    effectiveness,
    generalisation,
    retention,
    stability,
    summary,
)

__all__ = [
    "PAPER",
    "Decay",
    "DifficultyBound",
    "Effectiveness",
    "Phase",
    "Retention",
    "Stability",
    "check_setting",
    "convergence_phases",
    "cumulative_alpha",
    "cumulative_performance",
    "decay",
    "delta",
    "difficulty_bound",
    "effectiveness",
    "generalisation",
    "phase_performance",
    "positive_phases",
    "relative_performance",
    "retention",
    "stability",
    "strength",
    "summary",
    "weights",
]
