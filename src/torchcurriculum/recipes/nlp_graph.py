"""The paper's table nlp_and_graph: RTE and NCI1, clean and N-40, APW-E with the default and the PD-estimated e."""

from __future__ import annotations

from .recipe import Recipe

__all__ = ["nci1", "nlp_graph"]

METHODS = ("vanilla", "apw-e", "apw-e@pd")
PD = {"apw-e@pd": {"threshold": "pd"}}


def nci1(noise_rate: float = 0.0) -> Recipe:
    """CurBench's settings, which the paper follows: GCN, Adam 0.01, batch 50, 200 epochs, split 8:1:1."""
    return Recipe(
        name="nci1-n40" if noise_rate else "nci1",
        summary=f"NCI1{' with 40 % synthetic label noise' if noise_rate else ''}, GCN, 200 epochs (needs --data)",
        data="nci1",
        model="gcn",
        methods=METHODS,
        seeds=(0, 1, 2, 3, 4),
        epochs=200,
        batch_size=50,
        lr=0.01,
        weight_decay=0.0,
        optimizer="adam",
        schedule="constant",
        noise_rate=noise_rate,
        options=PD,
    )


def nlp_graph() -> tuple[Recipe, ...]:
    """The four columns of the table."""
    return nci1(), nci1(0.4)
