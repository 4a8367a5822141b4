"""Every method and every loss of the library once: CIFAR-10 (N-40), Simple-CNN, 60 epochs."""

from __future__ import annotations

from ..recipe import Recipe
from .cifar_10_100 import noisy_cifar

__all__ = ["NOT_RUN", "RECOMMENDED", "every_method"]

RECOMMENDED = ("vanilla", "rapw", "elr", "superloss@0.25", "apw-e", "infobatch", "argmax", "vanilla@gce")
NEXT = (
    "sop", "superloss", "mixup", "two-views", "co-teaching", "small-loss", "s-apw-e", "m-apw-beta-e", "spl", "jocor",
    "random", "vanilla@sce", "vanilla@bootstrap-soft", "vanilla@bootstrap-hard", "vanilla@forward", "vanilla@focal",
    "superloss@running", "ema", "rho-loss", "cutmix", "selective-backprop", "dihcl", "screenernet", "spcl", "spld",
    "competence", "baby-step", "lambda-step", "ttcl", "adaptive-cl", "efficient-train", "efficient-train-plus", "dcl",
    "cbs", "cbm", "c2f", "lgl", "rl-teacher", "importance-sampling", "mcl", "jtt", "group-dro", "anti", "apw-i",
    "apw-ei", "s-apw-a", "m-apw-e", "s-apw-i", "s-apw-ei", "m-apw-i", "m-apw-ei", "m-apw-beta-i", "m-apw-beta-ei",
    "drw", "vanilla@ldam", "vanilla@logit-adjusted", "vanilla@class-balanced",
)  # fmt: skip
SLOW = ("mw-net@clean", "lre@clean", "dds@clean", "mw-net", "lre", "dds")

NOT_RUN = {
    "given-weights": "takes the weights that you give it, and here nobody has any",
    "length-warmup": "cuts sequences, and images have no length",
}


def every_method() -> Recipe:
    """The most wanted first, the slowest last."""
    losses = [name for name in (*RECOMMENDED, *NEXT) if name.startswith("vanilla@")]
    recipe = noisy_cifar().with_(epochs=60)
    return recipe.with_(
        name="cifar10-every-method",
        summary=f"every method and loss: {recipe.summary}",
        methods=(*RECOMMENDED, *NEXT, *SLOW),
        seeds=(0,),
        options={
            **{name: {"loss": name.partition("@")[2]} for name in losses},
            **{name: {"forget": recipe.noise_rate} for name in ("small-loss", "co-teaching", "jocor")},
            **{f"{name}@clean": {"meta": "valid"} for name in ("mw-net", "lre", "dds")},
            **{name: {"keep_size": True} for name in ("efficient-train", "efficient-train-plus")},
            "superloss@0.25": {"lam": 0.25},
            "superloss@running": {"tau": "running"},
            "rho-loss": {"irreducible": "valid"},
            "group-dro": {"groups": "labels"},
        },
    )
