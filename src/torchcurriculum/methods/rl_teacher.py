"""Teacher-student curriculum learning: a bandit chooses the tasks whose scores change fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ..core import Epoch, Method, checks
from ..functional.tscl import (
    append_scores,
    boltzmann,
    difficulty_groups,
    epsilon_greedy,
    moving_average,
    sample_changes,
    slope,
    task_scores,
)
from .registry import register

__all__ = ["RLTeacher"]

Policy = Literal["online", "naive", "window", "sampling"]
Exploration = Literal["epsilon", "boltzmann"]


class RLTeacher(Method):
    r"""Teacher-student curriculum learning (TSCL), with an epoch as the teacher's step.

    The rows are divided into tasks. A task's score x_t is the negative mean loss of its rows at the start of epoch t,
    and the teacher trains on the rows of the tasks with the largest |Q|, where progress and forgetting count alike:

    - ``"online"``: :math:`Q \leftarrow \alpha (x_t - x_{t-1}) + (1-\alpha) Q`;
    - ``"naive"``: keeps its tasks for K epochs, then the same with the slope of their scores over these as the reward;
    - ``"window"``: Q is the slope of the last K changes of score;
    - ``"sampling"``: Q is one of the last K changes, drawn at random (after Thompson); it needs no other exploration.

    Rewards are of all tasks, as in the paper's batch formulation: the measuring pass sees all of them anyway, and a
    task whose score stays has a reward of 0. With ``measure="running"`` only trained tasks get new scores, so
    forgetting of the others is not noticed, and epsilon should be larger. Tasks without a reward are chosen first.

    Differences from the paper: its teacher chooses one task for each step, and ours half of them for an epoch, because
    an epoch on one of ten tasks is a tenth of an epoch (``picks=1`` is the paper's). Its scores are accuracies of tasks
    that are given, such as games or lengths of sums; ours are negative mean losses, which suit every loss function, and
    without given tasks the rows are divided by their losses.

    Args:
        n: Rows of the training set.
        warmup: Epochs on all rows before the first choice of tasks; ``for_run`` takes a twentieth of the run.
        policy: One of the four.
        tasks: (N,) task of each row, numbered from 0. A number divides the rows into that many equal tasks, by the
            quantiles of their losses at the end of the warm-up.
        picks: Tasks of an epoch, by default half of them; 1 is the paper's, which then makes an epoch as short as a
            task, and all of them is plain training.
        rate: alpha in (0, 1], the authors' 0.1.
        window: K >= 1 changes of score; the authors' windows have 10 scores, and that of ``"sampling"`` 10 changes.
        exploration: ``"epsilon"`` or ``"boltzmann"``.
        epsilon: The share of random choices, the authors' 0.1.
        temperature: Of the Boltzmann distribution, in units of the mean |Q|, since losses have no fixed scale.

    Example:
        >>> from torchcurriculum import Epoch
        >>> method = RLTeacher(4, warmup=0, tasks=torch.tensor([0, 0, 1, 1]), picks=1, epsilon=0.0)
        >>> before, after = torch.tensor([4.0, 4.0, 4.0, 4.0]), torch.tensor([4.0, 3.9, 3.0, 1.0])
        >>> _ = method.plan(Epoch(1, 4, before, lambda: before))
        >>> method.plan(Epoch(2, 4, after, lambda: after))               # task 1 has changed more
        tensor([2, 3])

    Reference:
        Matiisen et al., Teacher-Student Curriculum Learning, 2017.
    """

    tasks: Tensor
    history: Tensor
    values: Tensor
    picked: Tensor
    held: Tensor

    def __init__(
        self,
        n: int,
        warmup: int,
        policy: Policy = "online",
        tasks: int | Tensor = 10,
        picks: int | None = None,
        rate: float = 0.1,
        window: int = 10,
        exploration: Exploration = "epsilon",
        epsilon: float = 0.1,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.given = isinstance(tasks, Tensor)
        known = _check_tasks(tasks, n) if isinstance(tasks, Tensor) else torch.zeros(n, dtype=torch.int32)
        self.count = int(known.max()) + 1 if isinstance(tasks, Tensor) else min(n, checks.whole("tasks", tasks))
        self.picks = -(-self.count // 2) if picks is None else checks.whole("picks", picks)
        checks.real("picks", self.picks, f"[1, {self.count}]", "at most as many as tasks")
        checks.one_of("policy", policy, get_args(Policy))
        checks.one_of("exploration", exploration, get_args(Exploration))
        checks.real("rate", rate, "(0, 1]")
        checks.real("epsilon", epsilon, "[0, 1]")
        checks.real("temperature", temperature, "(0, inf)")
        self.warmup, self.window = checks.whole("warmup", warmup, 0), checks.whole("window", window)
        self.policy, self.rate = policy, rate
        self.exploration, self.epsilon, self.temperature = exploration, epsilon, temperature
        self.register_buffer("tasks", known)
        self.register_buffer("history", torch.full((window + 1, self.count), torch.inf, dtype=torch.float64))
        self.register_buffer("values", torch.zeros(self.count, dtype=torch.float64))
        self.register_buffer("picked", torch.ones(self.count, dtype=torch.bool))
        self.register_buffer("held", torch.tensor(0))

    @classmethod
    def for_run(cls, n: int, epochs: int, warmup: int | None = None, **options: Any) -> Self:
        """A twentieth of the run as the warm-up."""
        return cls(n, max(1, epochs // 20) if warmup is None else warmup, **options)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """All rows in the warm-up, then the rows of the chosen tasks."""
        if epoch.number <= self.warmup or self.picks == self.count:
            return None
        losses = epoch.losses().cpu()
        if epoch.number == self.warmup + 1 and not self.given:
            self.tasks.copy_(difficulty_groups(losses, self.count))
        tasks, before = self.tasks.cpu().long(), self.history.cpu()
        scores = task_scores(losses, tasks, self.count)
        measured = scores.isfinite() & self._measured(scores != before[-1], losses, epoch)
        history = append_scores(before, scores, measured)
        held = int(self.held)
        if self.policy != "naive" or held in (0, self.window):
            generator = epoch.generator("rl-teacher")
            values = self._value(torch.where(measured, history[-1] - before[-1], torch.nan), history, held, generator)
            self.values.copy_(values)
            self._pick(values, history[-2].isinf(), generator)
        self.history.copy_(history)
        self.held.fill_(held % self.window + 1)
        return self.picked.cpu()[tasks].nonzero().flatten()

    def report(self) -> Mapping[str, Any]:
        """The tasks of the epoch and the largest |Q|."""
        return {"tasks": self.picked.nonzero().flatten().tolist(), "value": self.values.abs().max()}

    def _measured(self, changed: Tensor, losses: Tensor, epoch: Epoch) -> Tensor:
        """(T,) all after a measuring pass; without one, losses are the last ones, and only trained tasks have new."""
        if not torch.equal(losses.double(), epoch.last.cpu().double()):
            return torch.ones_like(changed)
        return changed | self.picked.cpu()

    def _value(self, rewards: Tensor, history: Tensor, held: int, generator: torch.Generator) -> Tensor:
        values = self.values.cpu()
        if self.policy == "online":
            return moving_average(values, rewards, self.rate)
        if self.policy == "naive":
            return moving_average(values, slope(history), self.rate) if held else values
        return slope(history) if self.policy == "window" else sample_changes(history, generator)

    def _pick(self, values: Tensor, fresh: Tensor, generator: torch.Generator) -> None:
        # Tasks without a reward come first, with equal chances.
        scale = self.temperature * float(values.abs().mean()) or 1.0
        values = torch.where(fresh, values.abs().max() + 1e3 * scale, values)
        if self.exploration == "boltzmann" and self.policy != "sampling":
            chosen = boltzmann(values, self.picks, scale, generator)
        else:
            epsilon = 0.0 if self.policy == "sampling" else self.epsilon
            chosen = epsilon_greedy(values, self.picks, epsilon, generator)
        self.picked.fill_(False)
        self.picked[chosen.to(self.picked.device)] = True


def _check_tasks(tasks: Tensor, n: int) -> Tensor:
    """(N,) tasks, numbered from 0 without gaps."""
    tasks = checks.row_values("tasks", tasks, n, integers=True)
    if int(tasks.min()) < 0 or len(tasks.unique()) != int(tasks.max()) + 1:
        raise ValueError(f"tasks must be numbered from 0 without gaps, got {tasks.unique()[:8].tolist()}")
    return tasks.to(torch.int32)


register(
    "rl-teacher",
    RLTeacher,
    "a bandit trains on the tasks whose scores change fastest",
    when="The data has tasks of different difficulty (domains, lengths, sources) and you can name them with tasks=.",
    cost="One forward pass over the set per epoch (measure='pass'); an epoch visits half of the tasks unless "
    "picks= says more or fewer; 4 bytes per sample.",
)
