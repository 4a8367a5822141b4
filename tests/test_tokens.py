"""Losses of chosen and weighted tokens: worked by hand in NumPy from the paper's equations, and in a Curriculum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import Curriculum, SuperLoss, Vanilla
from torchcurriculum.losses import Tokens, token_losses

DRAW = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 6, 5, generator=DRAW, dtype=torch.float64)
LABELS = torch.randint(0, 5, (3, 6), generator=DRAW)
LABELS[0, 4:] = -100
REFERENCE = torch.rand(3, 6, generator=DRAW, dtype=torch.float64)


def by_hand(share: float, weights: np.ndarray | None = None) -> float:
    """The paper's excess loss, indicator and mean, token after token."""
    found = []
    for row in range(3):
        for place in range(1, 6):
            label = int(LABELS[row, place])
            if label == -100:
                continue
            scores = LOGITS[row, place - 1].numpy()
            loss = np.log(np.exp(scores).sum()) - scores[label]
            found.append((loss - float(REFERENCE[row, place]), loss, 1.0 if weights is None else weights[row, place]))
    kept = sorted(found, reverse=True)[: round(share * len(found))]
    return sum(loss * weight for _, loss, weight in kept) / sum(weight for _, _, weight in kept)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_the_mean_is_the_papers_selective_loss(share: float) -> None:
    losses = Tokens(share)(LOGITS, {"labels": LABELS, "reference": REFERENCE})
    assert losses.shape == (3,)
    assert float(losses.mean()) == pytest.approx(by_hand(share), abs=1e-12)


def test_every_token_is_the_usual_loss_of_a_language_model() -> None:
    usual = F.cross_entropy(LOGITS[:, :-1].reshape(-1, 5), LABELS[:, 1:].reshape(-1))
    assert float(Tokens()(LOGITS, {"labels": LABELS}).mean()) == pytest.approx(float(usual))
    flat = F.cross_entropy(LOGITS.reshape(-1, 5), LABELS.reshape(-1))
    assert float(Tokens(shift=False)(LOGITS, {"labels": LABELS}).mean()) == pytest.approx(float(flat))


def test_weights_of_tokens() -> None:
    weights = torch.rand(3, 6, generator=DRAW, dtype=torch.float64)
    losses = Tokens(0.5)(LOGITS, {"labels": LABELS, "reference": REFERENCE, "weights": weights})
    assert float(losses.mean()) == pytest.approx(by_hand(0.5, weights.numpy()), abs=1e-12)
    nothing = Tokens()(LOGITS, {"labels": LABELS, "weights": torch.zeros(3, 6)})
    assert nothing.tolist() == [0.0, 0.0, 0.0]


def test_a_token_that_is_not_chosen_gives_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    Tokens(0.3)(logits, {"labels": LABELS, "reference": REFERENCE}).mean().backward()
    moved = logits.grad.abs().sum(2) > 0  # type: ignore[union-attr]
    assert int(moved.sum()) == round(0.3 * int((LABELS[:, 1:] != -100).sum()))


@pytest.mark.parametrize(
    ("loss", "y", "words"),
    [
        (Tokens(), LABELS, "takes targets as a dict with labels .* got Tensor"),
        (Tokens(0.5), {"labels": LABELS}, "share=0.5 needs the reference model's losses under 'reference'"),
        (Tokens(), {"labels": LABELS, "reference": REFERENCE}, "share=1 ignores 'reference'"),
        (Tokens(), {"labels": LABELS[:, :3]}, r"for labels of shape \(3, 3\), got .* shape \(3, 6, 5\)"),
        (Tokens(), {"labels": LABELS, "weights": torch.ones(3)}, r"weights must have the shape .* got \(3,\)"),
    ],
)
def test_what_is_wrong_is_said(loss: Tokens, y: object, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        loss(LOGITS, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"share must be a number in \(0, 1\], got 0"):
        Tokens(share=0.0)


class Bigram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)


class Sentences:
    """Each next token is known, but for every third one, which is noise that a reference knows to be hard."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(1)
        self.tokens = (torch.arange(12) + torch.arange(40)[:, None]) % 11
        self.noise = torch.zeros(40, 12, dtype=torch.bool)
        self.noise[:, ::3] = True
        self.tokens[self.noise] = torch.randint(0, 11, (int(self.noise.sum()),), generator=draw)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> tuple[Tensor, dict[str, Tensor]]:
        return self.tokens[row], {"labels": self.tokens[row], "reference": 9.0 * self.noise[row]}


@pytest.mark.parametrize("method", [Vanilla(), SuperLoss(tau="running")])
def test_noise_that_the_reference_knows_is_not_learned(method: Vanilla | SuperLoss) -> None:
    data = Sentences()
    torch.manual_seed(0)
    model = Bigram()
    untouched = model.table.weight.detach().clone()
    curriculum = Curriculum(method, data, Tokens(0.6), batch_size=10)
    optimizer = torch.optim.SGD(model.parameters(), 20.0)
    before = token_losses(model(data.tokens), data.tokens).detach()
    for _ in range(10):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    after = token_losses(model(data.tokens), data.tokens).detach()
    easy = ~data.noise & (torch.arange(12) > 0) & ~data.noise.roll(1, 1)  # known, behind a known token
    assert float(after[easy].mean()) < 0.7 * float(before[easy].mean())
    assert not torch.equal(model.table.weight, untouched)
