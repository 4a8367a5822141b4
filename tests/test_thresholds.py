"""The error threshold: the paper's rules, the parameter dissimilarity, the automatic estimate and the quantile."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from torchcurriculum import APW
from torchcurriculum.functional.noise import ROWS
from torchcurriculum.thresholds import (
    AutoThreshold,
    ParameterDissimilarity,
    error_threshold,
    estimate_noise_rate,
    quantile,
)

LOG2 = math.log(2)


# ---------------------------------------------------------------------- the paper's three rules


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), 0.693147),  # log 2
        ((0.0, "inherent"), 0.693147),  # log 2 + log 1
        ((0.0, "synthetic"), 0.693147),
        ((0.4, "inherent"), 0.182322),  # log 2 + log 0.6 = log 1.2
        ((0.4, "synthetic"), 1.203973),  # log 2 - log 0.6 = log(10 / 3)
        ((0.5, "synthetic"), 1.386294),  # log 4
        ((0.2, "inherent"), 0.470004),  # log 1.6
    ],
)
def test_error_threshold_golden(arguments: tuple[float, str], expected: float) -> None:
    assert error_threshold(*arguments) == pytest.approx(expected, abs=5e-7)


@given(st.floats(0, 0.499), st.floats(0, 0.499))
def test_more_noise_moves_the_threshold_apart(p: float, q: float) -> None:
    p, q = sorted((p, q))
    assert 0 < error_threshold(q, "inherent") <= error_threshold(p, "inherent") <= LOG2
    assert LOG2 <= error_threshold(p, "synthetic") <= error_threshold(q, "synthetic")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, "inherent"), r"inherent noise of rate 0\.5 gives e = .* <= 0.*below 1/2.*threshold='auto'"),
        ((0.9, "inherent"), "<= 0"),
        ((0.1, "clean"), "noise is 'clean'; pass noise='inherent'"),
        ((0.1,), "noise is 'clean'"),
        ((1.0, "synthetic"), r"noise_rate must be a number in \[0, 1\), got 1\.0"),
        ((-0.1, "synthetic"), r"\[0, 1\), got -0\.1"),
        ((math.nan, "synthetic"), "got nan"),
        (("0.4", "synthetic"), "got '0.4'"),
        ((True, "synthetic"), "got True"),
        ((0.1, "symmetric"), "'clean', 'inherent' or 'synthetic', got 'symmetric'"),
    ],
)
def test_error_threshold_refuses(arguments: tuple[float, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error_threshold(*arguments)


# ---------------------------------------------------------------------- parameter dissimilarity


def naive_dissimilarity(checkpoints: list[Tensor]) -> Tensor:
    """The double loop of Appendix A.2."""
    curve = []
    for t1 in range(1, len(checkpoints)):
        cosines = [
            (checkpoints[t0] @ checkpoints[t1]) / (checkpoints[t0].norm() * checkpoints[t1].norm()) for t0 in range(t1)
        ]
        curve.append(sum(1 - cosine for cosine in cosines) / t1)
    return torch.stack(curve)


def test_dissimilarity_golden() -> None:
    # Unit vectors (1,0), (0.6,0.8), (0,-1).
    # d(1,2) = 1 - 0.6 = 0.4, so d_dagger(2) = 0.4.
    # d(1,3) = 1 - 0 = 1 and d(2,3) = 1 + 0.8 = 1.8, so d_dagger(3) = 1.4: t* = 3, e = 0.5.
    pd = ParameterDissimilarity()
    for vector, loss in (([2.0, 0.0], 2.0), ([3.0, 4.0], 1.0), ([0.0, -7.0], 0.5)):
        pd.observe(torch.tensor(vector), torch.tensor(loss))
    torch.testing.assert_close(pd.dissimilarity, torch.tensor([0.4, 1.4], dtype=torch.float64))
    assert (pd.transition, pd.threshold) == (3, 0.5)


def test_the_first_of_equal_peaks_counts() -> None:
    # (1,0), (0,1), (0,-1): d_dagger(2) = 1 and d_dagger(3) = (1 + 2) / 2; (1,0), (-1,0), (1,0): 2 and (0 + 2) / 2.
    pd = ParameterDissimilarity()
    for vector, loss in (([1.0, 0.0], 3.0), ([-1.0, 0.0], 2.0), ([1.0, 0.0], 1.0)):
        pd.observe(torch.tensor(vector), loss)
    assert pd.dissimilarity.tolist() == [2.0, 1.0]
    assert pd.threshold == 2.0


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 12), st.integers(1, 9), st.integers(0, 2**32))
def test_streaming_equals_the_double_loop(count: int, size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    checkpoints = list(torch.randn(count, size, generator=generator, dtype=torch.float64))
    pd = ParameterDissimilarity()
    for number, vector in enumerate(checkpoints):
        pd.observe(vector, 10.0 - number)
    expected = naive_dissimilarity(checkpoints)
    torch.testing.assert_close(pd.dissimilarity, expected, rtol=0, atol=1e-12)
    assert expected[pd.transition - 2] >= expected.max() - 1e-12
    assert pd.threshold == 11.0 - pd.transition


def test_a_model_is_its_flattened_parameters_and_memory_is_one_vector() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)) for _ in range(4)]
    pd, flat = ParameterDissimilarity(), ParameterDissimilarity()
    for number, model in enumerate(models):
        pd.observe(model, number)
        flat.observe(nn.utils.parameters_to_vector(model.parameters()), number)
        assert sum(value.numel() for value in vars(pd).values() if isinstance(value, Tensor)) == 34
    assert pd.dissimilarity.tolist() == flat.dissimilarity.tolist()


def test_dissimilarity_resumes_bit_equal() -> None:
    checkpoints = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    whole, first, second = ParameterDissimilarity(), ParameterDissimilarity(), ParameterDissimilarity()
    for number, vector in enumerate(checkpoints):
        whole.observe(vector, number)
    for number in range(3):
        first.observe(checkpoints[number], number)
    second.load_state_dict(first.state_dict())
    for number in range(3, 6):
        second.observe(checkpoints[number], number)
    assert second.dissimilarity.tolist() == whole.dissimilarity.tolist()
    assert second.threshold == whole.threshold


@pytest.mark.parametrize("count", [0, 1])
def test_dissimilarity_needs_two_checkpoints(count: int) -> None:
    pd = ParameterDissimilarity()
    for _ in range(count):
        pd.observe(torch.ones(2), 1.0)
    assert pd.dissimilarity.shape == (0,)
    with pytest.raises(RuntimeError, match=f"{count} checkpoints were observed and the estimate needs at least 2"):
        _ = pd.threshold


@pytest.mark.parametrize(
    ("parameters", "loss", "error", "message"),
    [
        (torch.tensor([1.0, math.nan]), 1.0, ValueError, "checkpoint 2 have norm nan"),
        (torch.tensor([1.0, math.inf]), 1.0, ValueError, "norm inf"),
        (torch.zeros(2), 1.0, ValueError, "not all zero"),
        (torch.ones(3), 1.0, ValueError, "checkpoint 2 has 3 parameters and those before it 2"),
        (torch.ones(2), math.nan, ValueError, "mean loss of checkpoint 2 is nan"),
        (torch.ones(2, 1), 1.0, TypeError, r"shape \(P,\), got .* shape \(2, 1\)"),
        ([1.0, 2.0], 1.0, TypeError, "got list"),
        (nn.ReLU(), 1.0, ValueError, "ReLU, has no parameters"),
    ],
)
def test_dissimilarity_refuses_and_stays_as_it_was(
    parameters: Tensor, loss: float, error: type[Exception], message: str
) -> None:
    pd = ParameterDissimilarity()
    pd.observe(torch.ones(2), 1.0)
    with pytest.raises(error, match=message):
        pd.observe(parameters, loss)
    pd.observe(torch.tensor([1.0, -1.0]), 0.5)
    assert pd.dissimilarity.tolist() == pytest.approx([1.0])


# ---------------------------------------------------------------------- the automatic estimate


def losses_of(rate: float, n: int = 2000, seed: int = 0, clean: float = 1.5, wrong: float = -3.0) -> Tensor:
    """Cross-entropy of rows whose log-odds are normal with variance one around ``clean``, or ``wrong`` for a share."""
    noise = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    logits = torch.where(torch.arange(n) < round(rate * n), wrong, clean) + noise
    return F.softplus(-logits)  # -log sigmoid(logit)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.4, 0.6])
def test_a_known_mixture_is_found(rate: float) -> None:
    losses = losses_of(rate)
    assert estimate_noise_rate(losses).item() == pytest.approx(rate, abs=0.01)
    history = torch.stack([losses_of(rate, seed=seed) for seed in range(3)])
    assert estimate_noise_rate(history).item() == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mean", [-2.0, 0.0, 3.0, 8.0])
def test_one_population_has_no_noise(mean: float, seed: int) -> None:
    assert estimate_noise_rate(losses_of(0.0, seed=seed, clean=mean)).item() == 0
    assert estimate_noise_rate(losses_of(1.0, seed=seed, wrong=mean)).item() == 0


def test_two_populations_that_are_both_learned_are_no_noise() -> None:
    # Log-odds of 8 and 3: the worse half still has a probability of 0.95.
    assert estimate_noise_rate(losses_of(0.5, clean=8.0, wrong=3.0)).item() == 0


def test_classes_of_an_untrained_net_are_no_noise() -> None:
    # Log-odds of -2.2 and -2.0 with hardly any spread: far apart by D, near by odds.
    logits = torch.cat([torch.linspace(-2.21, -2.19, 500), torch.linspace(-2.01, -1.99, 500)])
    assert estimate_noise_rate(F.softplus(-logits)).item() == 0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0.1, 0.3, 0.5]), st.integers(0, 1000))
def test_the_estimate_does_not_depend_on_the_order_of_rows(rate: float, seed: int) -> None:
    losses = losses_of(rate, n=500, seed=seed)
    shuffled = losses[torch.randperm(500, generator=torch.Generator().manual_seed(seed))]
    assert estimate_noise_rate(losses).item() == pytest.approx(estimate_noise_rate(shuffled).item(), abs=1e-9)


def test_rule_waits_for_two_epochs_and_then_keeps_the_best() -> None:
    rule = AutoThreshold()
    noisy, merged = losses_of(0.4), losses_of(0.0, clean=3.0)
    assert rule(merged).item() == pytest.approx(LOG2)
    assert rule(noisy).item() == pytest.approx(LOG2)  # one epoch alone may be an accident
    assert rule(noisy).item() == pytest.approx(error_threshold(0.4, "synthetic"), abs=0.02)
    kept = rule.rate.item()
    for _ in range(2):
        rule(losses_of(0.3, clean=0.5, wrong=-2.2))  # a lesser contrast
    assert rule.rate.item() == kept
    assert rule(merged).item() == LOG2 - math.log1p(-kept)  # the net has learned the wrong labels by now


def test_one_epoch_that_misses_a_class_is_forgotten() -> None:
    rule = AutoThreshold()
    for losses in (losses_of(0.2), losses_of(0.0), losses_of(0.2), losses_of(0.0)):
        assert rule(losses).item() == pytest.approx(LOG2)


def test_rule_resumes_bit_equal() -> None:
    epochs = [losses_of(0.3, seed=seed, clean=0.5 + seed / 4) for seed in range(6)]
    whole, first, second = AutoThreshold(), AutoThreshold(), AutoThreshold()
    expected = [whole(losses).item() for losses in epochs]
    found = [first(losses).item() for losses in epochs[:3]]
    second.load_state_dict(first.state_dict())
    found += [second(losses).item() for losses in epochs[3:]]
    assert found == expected
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in whole.state_dict().items())


def test_apw_with_auto_resumes_bit_equal() -> None:
    epochs = [losses_of(0.3, n=300, seed=seed) for seed in range(5)]
    whole, first, second = (APW(300, q=5, threshold="auto") for _ in range(3))
    for losses in epochs:
        whole.advance(losses)
    for losses in epochs[:1]:  # between the two epochs that must agree
        first.advance(losses)
    second.load_state_dict(first.state_dict())
    for losses in epochs[1:]:
        second.advance(losses)
    assert torch.equal(whole.weights, second.weights)
    assert whole.threshold.item() == second.threshold.item() > LOG2 + 0.3


@pytest.mark.parametrize(
    "losses",
    [
        torch.full((1,), 2.0),
        torch.tensor([0.1, 9.0]),
        torch.full((500,), 1.3),
        torch.zeros(500),
        torch.full((500,), 1e4),
        torch.full((500,), math.inf),
        torch.full((500,), math.nan),
        torch.empty(0),
        losses_of(0.4, n=ROWS - 1),
    ],
    ids=["one", "two", "constant", "zero", "huge", "unseen", "nan", "empty", "too few"],
)
def test_rule_says_log_2_where_there_is_nothing_to_see(losses: Tensor) -> None:
    rule = AutoThreshold()
    assert [rule(losses).item() for _ in range(3)] == [LOG2] * 3


def test_rows_never_seen_are_left_out() -> None:
    losses = losses_of(0.3)
    holes = torch.cat([losses, torch.full((1000,), math.inf), torch.full((3,), math.nan)])
    assert estimate_noise_rate(holes).item() == estimate_noise_rate(losses).item() > 0.25


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rule_takes_every_float(dtype: torch.dtype) -> None:
    losses = losses_of(0.3)
    assert estimate_noise_rate(losses.to(dtype)).item() == pytest.approx(0.3, abs=0.01)


def test_rule_leaves_the_global_generator_and_the_losses_alone() -> None:
    losses, state = losses_of(0.3).requires_grad_(), torch.get_rng_state()
    before = losses.detach().clone()
    assert not AutoThreshold()(losses).requires_grad
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(before, losses)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_rules_on_cuda() -> None:
    losses = losses_of(0.4)
    assert estimate_noise_rate(losses.cuda()).item() == pytest.approx(estimate_noise_rate(losses).item(), abs=1e-6)
    rule = AutoThreshold()
    assert [rule(losses.cuda()).item() for _ in range(2)] == pytest.approx([LOG2, 1.204], abs=0.02)
    assert quantile(0.5)(losses.cuda()).item() == quantile(0.5)(losses).item()


@pytest.mark.parametrize("losses", [torch.ones(2, 2), torch.ones(3, dtype=torch.int64), [1.0, 2.0]])
def test_rule_refuses_what_are_no_losses(losses: Tensor) -> None:
    with pytest.raises(ValueError, match=r"floats of shape \(N,\), got (torch\.|list)"):
        AutoThreshold()(losses)


@pytest.mark.parametrize("losses", [torch.ones(2, 2, 2), torch.empty(0), torch.tensor(1.0), [1.0]])
def test_estimate_refuses_what_are_no_losses(losses: Tensor) -> None:
    with pytest.raises(ValueError, match=r"\(N,\) or \(T, N\)"):
        estimate_noise_rate(losses)


# ---------------------------------------------------------------------- the quantile rule


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 1), st.lists(st.floats(0.125, 100, width=32), min_size=1, max_size=30))
def test_quantile_makes_the_share_easy(p: float, values: list[float]) -> None:
    losses = torch.tensor(values)
    e = quantile(p)(losses).item()
    easy = int((losses <= e).sum())
    assert e in losses.tolist()
    assert easy >= p * len(values) - 1e-6
    assert int((losses < e).sum()) < p * len(values) + 1e-6  # and no smaller loss would do


def test_quantile_golden() -> None:
    losses = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0, math.inf, math.nan])
    # ceil(5/2) = 3 of five finite losses; ceil(5/5) = 1; all.
    assert [quantile(p)(losses).item() for p in (0.5, 0.2, 1.0)] == [3.0, 1.0, 5.0]
    assert quantile(0.07)(torch.arange(1.0, 101.0)).item() == 7.0  # 0.07 * 100 is 7.000000000000001


def test_quantile_is_positive_and_finite_whatever_it_sees() -> None:
    assert quantile(0.5)(torch.full((3,), math.inf)).item() == pytest.approx(LOG2)
    zeros = torch.tensor([0.0, 0.0, 0.0, 1.0])
    e = quantile(0.5)(zeros)
    assert e > 0
    assert (zeros <= e.to(zeros)).tolist() == [True, True, True, False]


def test_quantile_has_no_limit_of_size() -> None:
    size = 2**24 + 2  # torch.quantile refuses this
    assert quantile(0.5)(torch.ones(size)).item() == 1.0


def test_quantile_in_apw() -> None:
    method = APW(4, q=4, threshold=quantile(0.5))
    method.advance(torch.tensor([100.0, 300.0, 200.0, 400.0]))
    assert method.threshold.item() == 200.0
    assert method.eprop.item() == 0.5


@pytest.mark.parametrize("p", [0.0, 1.1, -1.0, math.nan])
def test_quantile_refuses(p: float) -> None:
    with pytest.raises(ValueError, match=r"p must be a number in \(0, 1\], got"):
        quantile(p)
