"""TwoViews against numbers worked in NumPy, and its views."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.functional import views
from torchcurriculum.methods import TwoViews, Vanilla


def run(method: TwoViews, x: torch.Tensor, epochs: int = 2) -> list[float]:
    """Losses of a linear network that is not trained."""
    curriculum = Curriculum(method, Arrays(x, torch.tensor([0, 1, 2, 0])), batch_size=4)
    model = torch.nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    return [curriculum.loss(model, batch).item() for _ in range(epochs) for batch in curriculum.epoch(model)]


def test_the_loss_by_an_own_computation() -> None:
    x = np.array([[1.0, 0.2], [-0.3, 0.8], [0.1, -0.4], [0.6, 0.5]])
    method = TwoViews(
        Vanilla(), ramp=2, weak=lambda x, generator: x + 0.5, strong=lambda x, generator: -2 * x
    )  # share 0 in the first epoch, 1/2 in the second

    def soft(z: np.ndarray) -> np.ndarray:
        return np.exp(z) / np.exp(z).sum(1, keepdims=True)

    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]).T
    weak, strong = (x + 0.5) @ matrix, -2 * (x + 0.5) @ matrix
    first = -np.log(soft(weak)[range(4), [0, 1, 2, 0]]).mean()
    usual = 0.99 / 3 + 0.01 * soft(weak).mean(0)
    own = soft(weak / 0.5) / usual
    own /= own.sum(1, keepdims=True)
    second = -(own.max(1, keepdims=True) * own * np.log(soft(strong))).sum(1).mean()
    found = run(method, torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(found, [first, (first + 0.5 * second) / 1.5], rtol=1e-5)


def test_the_second_view_s_target_has_no_gradient() -> None:
    method = TwoViews(Vanilla(), ramp=0, weak=lambda x, generator: x, strong=lambda x, generator: torch.zeros_like(x))
    curriculum = Curriculum(method, Arrays(torch.eye(4), torch.arange(4) % 3), batch_size=4)
    model = torch.nn.Linear(4, 3, bias=False)
    (batch,) = curriculum.epoch(model)
    curriculum.loss(model, batch).backward()
    gradient = model.weight.grad.clone()
    model.weight.grad = None
    # Of zeros the second output is constant, and half of plain training's gradient is left.
    (0.5 * torch.nn.functional.cross_entropy(model(batch.x), batch.y)).backward()
    torch.testing.assert_close(gradient, model.weight.grad)


@pytest.mark.parametrize("scale", [(0.0, 1.0), (-2.0, 5.0)])
def test_views_keep_shape_and_scale_and_use_only_their_generator(scale: tuple[float, float]) -> None:
    low, high = scale
    x = low + (high - low) * torch.rand(40, 3, 32, 24, generator=torch.Generator().manual_seed(0))
    state = torch.get_rng_state()
    for view in (views.weak, views.strong):
        made = [view(x, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
        assert made[0].shape == x.shape
        assert torch.equal(made[0], made[1])
        assert not torch.equal(made[0], made[2])
        assert made[0].min() >= low - 1e-5
        assert made[0].max() <= high + 1e-5
    assert torch.equal(state, torch.get_rng_state())


def test_a_weak_view_is_a_shift_or_its_mirror() -> None:
    image = torch.arange(256.0).view(1, 1, 16, 16)
    seen = set()
    for seed in range(60):
        made = views.weak(image, torch.Generator().manual_seed(seed))[0, 0, 4:12, 4:12]
        found = [
            (down, right, flip)
            for down in range(-2, 3)
            for right in range(-2, 3)
            for flip in (False, True)
            if torch.equal(made, _shifted(image[0, 0], down, right, flip))
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) > 20


def _shifted(image: torch.Tensor, down: int, right: int, flip: bool) -> torch.Tensor:
    image = image.flip(1) if flip else image
    return image[4 + down : 12 + down, 4 + right : 12 + right]


def test_other_inputs_are_told_what_to_pass() -> None:
    with pytest.raises(TypeError, match=r"images.*\(B, C, H, W\).*\(4, 2\).*weak=.*strong="):
        run(methods.build("two-views", 4, 10), torch.zeros(4, 2))


@pytest.mark.parametrize(("options", "words"), [({"ramp": -1}, "ramp"), ({"temperature": 0.0}, "temperature")])
def test_bad_knobs_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=f"{words} must"):
        TwoViews(Vanilla(), **{"ramp": 1, **options})  # type: ignore[arg-type]
