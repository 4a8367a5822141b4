"""APW against numbers worked by hand from the paper's equations, and properties that hold for any losses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcurriculum import APW, functional

ROOT = math.sqrt(3)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ---------------------------------------------------------------- the equations


def test_easiness_eq_1_includes_the_threshold() -> None:
    assert functional.easiness(tensor(0.0, 0.3, 0.300001, 9.0), 0.3).tolist() == [1, 1, -1, -1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_probability_of_one_half_is_easy_at_log_2_in_every_precision(dtype: torch.dtype) -> None:
    losses = torch.nn.functional.cross_entropy(
        torch.zeros(3, 2, dtype=dtype), torch.tensor([0, 1, 0]), reduction="none"
    )
    assert functional.easiness(losses, math.log(2)).tolist() == [1, 1, 1]


def test_difficulty_eq_2() -> None:
    # hard: the second and the fourth, 0.2 + 0.1
    assert functional.difficulty(tensor(0.4, 0.2, 0.3, 0.1), tensor(1, -1, 1, -1)).item() == pytest.approx(0.3)
    assert functional.difficulty(tensor(0.5, 0.5), tensor(1, 1)).item() == 1e-4
    assert functional.difficulty(tensor(0.5, 0.5), tensor(-1, -1)).item() == 1 - 1e-4


def test_weight_change_eq_3_and_its_phase_threshold() -> None:
    # log(0.8 / 0.2) / 4 = log(4) / 4 = 0.346574
    assert functional.weight_change(0.2, q=4).item() == pytest.approx(0.346574, abs=1e-6)
    # rho = 1/2, tau = 0.8: log(0.5 * 0.8 / (0.5 * 0.2)) / 2 = log(4) / 2 = 0.693147
    assert functional.weight_change(0.5, q=2, tau=0.8).item() == pytest.approx(0.693147, abs=1e-6)
    assert functional.weight_change(0.3, q=7, tau=0.3).item() == pytest.approx(0, abs=1e-15)
    assert functional.weight_change(0.2, q=math.inf).item() == 0


def test_reweight_eq_4() -> None:
    # alpha = log 2: easy halve, hard double: 0.25, 0.125, 0.5 over Z = 0.875 -> 2/7, 1/7, 4/7
    new = functional.reweight(tensor(0.5, 0.25, 0.25), math.log(2), tensor(1, 1, -1))
    assert new.tolist() == pytest.approx([2 / 7, 1 / 7, 4 / 7])
    _, log_z = functional.log_reweight(tensor(0.5, 0.25, 0.25).log(), math.log(2), tensor(1, 1, -1))
    assert log_z.exp().item() == pytest.approx(0.875)


# ---------------------------------------------------------------- the three weightings, Appendix A.1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_e_weighting_by_hand(dtype: torch.dtype, device: str) -> None:
    method = APW(4, q=2, threshold=1.0)
    assert method.weights.tolist() == [0.25] * 4
    # Epoch 1: row 0 is easy, rho = 3/4, alpha = log(1/3) / 2. Easy: 1/4 * sqrt 3, hard: 1/4 / sqrt 3.
    # Z = sqrt(3)/4 + 3 / (4 sqrt 3) = sqrt(3) / 2; weights 1/2 and 1/6.
    method.advance(torch.tensor([0.5, 2.0, 2.0, 2.0], dtype=dtype, device=device))
    assert method.rho.item() == pytest.approx(0.75)
    assert method.alpha.item() == pytest.approx(-math.log(3) / 2)
    assert method.z.item() == pytest.approx(ROOT / 2)
    assert method.weights.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    # Epoch 2: rows 0 and 1 are easy, rho = 1/6 + 1/6 = 1/3, alpha = log(2) / 2: easy / sqrt 2, hard * sqrt 2.
    # Z = (2/3) / sqrt 2 + (1/3) sqrt 2 = 2 sqrt(2) / 3; weights 3/8, 1/8, 1/4, 1/4.
    method.advance(torch.tensor([0.5, 0.5, 2.0, 2.0], dtype=dtype, device=device))
    assert method.rho.item() == pytest.approx(1 / 3)
    assert method.alpha.item() == pytest.approx(math.log(2) / 2)
    assert method.weights.tolist() == pytest.approx([3 / 8, 1 / 8, 1 / 4, 1 / 4])
    # A batch of rows 3 and 0: 1/4 : 3/8 -> 2/5, 3/5. Its losses do not matter, and nothing is written back.
    batch = method.batch_weights(torch.tensor([9.0, 9.0], dtype=dtype, device=device), torch.tensor([3, 0]))
    assert batch.tolist() == pytest.approx([0.4, 0.6])
    assert batch.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert method.weights.tolist() == pytest.approx([3 / 8, 1 / 8, 1 / 4, 1 / 4])


@pytest.mark.parametrize("device", DEVICES)
def test_i_weighting_by_hand(device: str) -> None:
    method = APW(4, q=2, threshold=1.0, weighting="I")
    # rho = 3/4 and alpha = -log(3) / 2 from all losses, but no weight changes yet.
    method.advance(tensor(0.5, 2, 2, 2).to(device))
    assert method.alpha.item() == pytest.approx(-math.log(3) / 2)
    assert method.weights.tolist() == pytest.approx([0.25] * 4)
    # Batch {0, 1}, now easy and hard: sqrt 3 : 1 / sqrt 3 = 3 : 1 -> 3/4, 1/4; written back times N_ks / N = 2/4.
    assert method.batch_weights(tensor(0.5, 2).to(device), torch.tensor([0, 1])).tolist() == pytest.approx([0.75, 0.25])
    # Batch {2}: one row, weight 1, written back as 1/4. Row 3 is not visited and keeps 1/4.
    assert method.batch_weights(tensor(0.5).to(device), torch.tensor([2])).tolist() == [1.0]
    assert method.weights.tolist() == pytest.approx([3 / 8, 1 / 8, 1 / 4, 1 / 4])
    # Epoch 2: hard is row 3, rho = 1/4, alpha = log(3) / 2. Batch {2, 0}, both easy: 1/4 : 3/8 -> 0.4, 0.6;
    # written back times 1/2: 0.2 and 0.3. With the rows not visited, 1/8 + 1/4, the sum is 0.875.
    method.advance(tensor(0.5, 0.5, 0.5, 2).to(device))
    assert method.rho.item() == pytest.approx(0.25)
    assert method.batch_weights(tensor(0.1, 0.2).to(device), torch.tensor([2, 0])).tolist() == pytest.approx([0.4, 0.6])
    expected = [0.3 / 0.875, 0.125 / 0.875, 0.2 / 0.875, 0.25 / 0.875]
    assert method.weights.tolist() == pytest.approx(expected)
    # Epoch 3 begins from the normalised weights: rho of a hard row 0 is 0.3 / 0.875.
    method.advance(tensor(2, 0.5, 0.5, 0.5).to(device))
    assert method.rho.item() == pytest.approx(0.3 / 0.875)


def test_i_weighting_uses_the_alpha_of_the_epoch_with_the_losses_of_the_batch() -> None:
    method = APW(2, q=2, threshold=1.0, weighting="I")
    method.advance(tensor(0.5, 2))  # rho = 1/2: alpha = 0, so nothing may change whatever the batch says
    assert method.batch_weights(tensor(0.5, 2), torch.tensor([0, 1])).tolist() == [0.5, 0.5]


def test_ei_weighting_by_hand() -> None:
    method = APW(4, q=2, threshold=1.0, weighting="EI")
    # The epoch's update as in E: 1/2, 1/6, 1/6, 1/6 with alpha = -log(3) / 2.
    method.advance(tensor(0.5, 2, 2, 2))
    assert method.weights.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    # Batch {0, 1}, easy and hard: sqrt(3)/2 : 1 / (6 sqrt 3) = 9 : 1 -> 0.9, 0.1; written back 0.45, 0.05.
    assert method.batch_weights(tensor(0.5, 2), torch.tensor([0, 1])).tolist() == pytest.approx([0.9, 0.1])
    # Rows 2 and 3 keep 1/6 each; the sum is 1/2 + 1/3 = 5/6: 0.54, 0.06, 0.2, 0.2.
    assert method.weights.tolist() == pytest.approx([0.54, 0.06, 0.2, 0.2])


def test_tau_moves_the_phase() -> None:
    method = APW(4, q=2, threshold=1.0, tau=0.8)
    # rho = 3/4 < tau: alpha = log((1/4)(4/5) / ((3/4)(1/5))) / 2 = log(4/3) / 2 > 0, so hard rows gain.
    method.advance(tensor(0.5, 2, 2, 2))
    assert method.alpha.item() == pytest.approx(math.log(4 / 3) / 2)
    assert method.weights[1] > method.weights[0]
    assert method.report()["phase"] == "later"


def test_defaults_are_the_papers() -> None:
    method = APW(10, q=200)
    assert (method.threshold.item(), method.tau, method.weighting) == (pytest.approx(math.log(2)), 0.5, "E")


# ---------------------------------------------------------------- nothing overflows


@pytest.mark.parametrize("weighting", ["E", "I", "EI"])
def test_a_hundred_epochs_for_each_unit_of_q(weighting: str) -> None:
    method = APW(6, q=2, threshold=1.0, weighting=weighting)
    for epoch in range(200):
        losses = torch.tensor([0.1, 3, 3, 3, 3, 3], dtype=torch.float64)
        losses[epoch % 6] = 0.2
        method.advance(losses if epoch < 150 else torch.full((6,), 0.1, dtype=torch.float64))
        weights = method.batch_weights(losses[:3], torch.arange(3))
        assert weights.isfinite().all()
        assert weights.sum().item() == pytest.approx(1)
    assert method.weights.isfinite().all()
    assert method.weights.sum().item() == pytest.approx(1)
    assert method.log_weights.isfinite().all()


@pytest.mark.parametrize("values", [[0.0], [1e30], [0.5, 0.5], [1e-310, 1e30], [0.0] * 5, [1e30] * 5])
def test_extreme_losses_and_tiny_sets(values: list[float]) -> None:
    method = APW(len(values), q=2, weighting="EI")
    for _ in range(3):
        method.advance(tensor(*values))
        method.batch_weights(tensor(*values), torch.arange(len(values)))
    assert method.weights.sum().item() == pytest.approx(1)


# ---------------------------------------------------------------- properties

positive = st.floats(1e-6, 1e6)
losses_of = st.lists(st.floats(0, 20), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(losses_of, min_size=1, max_size=6), st.floats(2, 50), st.floats(0.05, 3))
def test_weights_stay_positive_and_sum_to_one_and_signs_follow_table_1(
    epochs: list[list[float]], q: float, e: float
) -> None:
    n = min(map(len, epochs))
    method = APW(n, q, e)
    for losses in (tensor(*values[:n]) for values in epochs):
        before = method.weights
        method.advance(losses)
        after = method.weights
        assert (after > 0).all()
        assert after.sum().item() == pytest.approx(1)
        early = method.rho > 0.5
        easy = losses <= e
        ratio = after / before * method.z  # unnormalised change, Table 1
        gains = easy if early else ~easy
        if abs(method.rho - 0.5) > 1e-9:  # at one half nothing changes but rounding
            assert (method.alpha < 0) == early
            assert (ratio[gains] > 1).all()
            assert (ratio[~gains] < 1).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(positive, min_size=2, max_size=9), st.floats(-3, 3), st.floats(1e-3, 1e3), st.randoms())
def test_reweight_ignores_scale_and_follows_permutations(
    values: list[float], alpha: float, scale: float, random: object
) -> None:
    weights = tensor(*values)
    beta = functional.easiness(tensor(*values), sorted(values)[len(values) // 2])
    new = functional.reweight(weights, alpha, beta)
    torch.testing.assert_close(functional.reweight(weights * scale, alpha, beta), new)
    order = list(range(len(values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    torch.testing.assert_close(functional.reweight(weights[order], alpha, beta[order]), new[order])
    torch.testing.assert_close(functional.reweight(new, -alpha, beta), weights / weights.sum())


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be the number of training rows, at least 1, got 0"),
        ({"n": 2.5}, r"n of APW must be int, got 2\.5"),
        ({"q": 1.9}, r"q must be .*\[2, inf\], got 1\.9"),
        ({"q": math.nan}, "q of APW is NaN"),
        ({"threshold": 0.0}, r"threshold must be .*\(0, inf\), got 0\.0"),
        ({"threshold": -1}, r"threshold must be .*\(0, inf\), got -1"),
        ({"threshold": math.inf}, r"threshold must be .*\(0, inf\), got inf"),
        ({"threshold": "clever"}, "threshold must be a number, a rule or 'auto', got 'clever'"),
        ({"tau": 0.0}, r"tau must be .*\(0, 1\), got 0\.0"),
        ({"tau": 1}, r"tau must be .*\(0, 1\), got 1"),
        ({"weighting": "X"}, "weighting must be 'E', 'I' or 'EI', got 'X'"),
        ({"nan_strategy": "hope"}, "nan_strategy must be .*got 'hope'"),
    ],
)
def test_bad_knobs_are_refused(arguments: dict[str, object], message: str) -> None:
    kind = TypeError if isinstance(arguments.get("n"), float) else ValueError
    with pytest.raises(kind, match=message):
        APW(**{"n": 4, "q": 10, **arguments})  # type: ignore[arg-type]


def test_bad_losses_and_indices_change_nothing() -> None:
    method = APW(4, q=2, threshold=1.0, weighting="EI")
    method.advance(tensor(0.5, 2, 2, 2))
    before = method.weights.clone()
    with pytest.raises(ValueError, match=r"one loss for each of the 4 rows, shape \(4,\), got \(3,\)"):
        method.advance(tensor(1, 2, 3))
    with pytest.raises(ValueError, match="got list"):
        method.advance([1.0] * 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"2 of 4 losses are NaN or infinite, at rows \[1, 3\]"):
        method.advance(tensor(1, math.nan, 1, math.inf))
    with pytest.raises(ValueError, match=r"rows \[2\] are NaN or infinite"):
        method.batch_weights(tensor(1, math.nan), torch.tensor([0, 2]))
    with pytest.raises(IndexError, match=r"rows \[4\] are outside the training set, which has 4 rows"):
        method.batch_weights(tensor(1, 1), torch.tensor([0, 4]))
    with pytest.raises(IndexError, match=r"rows \[-1\]"):
        method.batch_weights(tensor(1, 1), torch.tensor([0, -1]))
    with pytest.raises(ValueError, match=r"rows \[2\] occur more than once in this batch"):
        method.batch_weights(tensor(1, 1, 1), torch.tensor([2, 0, 2]))
    with pytest.raises(ValueError, match=r"int64 of shape \(2,\), got torch.float32 of shape \(2,\)"):
        method.batch_weights(tensor(1, 1), torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"shape \(2,\), got torch.int64 of shape \(1,\)"):
        method.batch_weights(tensor(1, 1), torch.tensor([0]))
    assert torch.equal(method.weights, before)
    with pytest.raises(RuntimeError, match="size mismatch"):
        APW(5, q=2, weighting="EI").load_state_dict(method.state_dict())


def test_nan_strategies_go_on_without_the_bad_rows() -> None:
    loud, quiet = (APW(4, q=2, threshold=1.0, nan_strategy=strategy) for strategy in ("warn", "ignore"))
    with pytest.warns(UserWarning, match=r"1 of 4 losses are NaN or infinite, at rows \[3\]"):
        loud.advance(tensor(0.5, 2, 2, math.nan))
    quiet.advance(tensor(0.5, 2, 2, math.nan))  # counts as hard
    assert quiet.weights.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    with pytest.raises(ValueError, match=r"rows \[0\] are NaN or infinite; drop them with indexed"):
        quiet.batch_weights(tensor(math.inf, 1), torch.tensor([0, 1]))  # no weight takes it out of the graph


def test_a_threshold_rule_is_asked_at_each_epoch() -> None:
    method = APW(4, q=2, threshold=lambda losses: losses.median())
    method.advance(tensor(1, 2, 3, 4))
    assert method.threshold.item() == 2.0
    assert method.eprop.item() == 0.5
    with pytest.raises(ValueError, match=r"the threshold rule returned e = 0\.0"):
        method.advance(tensor(0, 0, 0, 0))


def test_the_step_compiles_whole() -> None:
    method = APW(8, q=4, weighting="EI")
    method.advance(torch.linspace(0.1, 2, 8))
    step = torch.compile(lambda losses, index: method.batch_weights(losses, index), fullgraph=True, backend="aot_eager")
    weights = step(torch.linspace(0.1, 2, 4), torch.arange(4))
    assert weights.sum().item() == pytest.approx(1, abs=1e-6)
