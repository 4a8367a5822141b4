"""One thread for every test: results do not depend on how sums are split, and workers do not fight for cores."""

import torch

torch.set_num_threads(1)
