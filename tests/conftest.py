"""One thread for every test: results do not depend on how sums are split, and workers do not fight for cores.

Generated examples are the same in every run, so that a change is judged by what it changed.
"""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("house", derandomize=True, deadline=None)
settings.load_profile("house")
