"""What a reader asks who knows PyTorch and nothing of curriculum learning, and where the docs answer it.

An answer is a page that the start page and the README link to, or the start page itself, and what must stand near its
top: within the first screen or two, so that nobody has to read on to find it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUESTIONS", "TOP", "Question"]

TOP = 60  # lines of a page that count as its top


@dataclass(frozen=True)
class Question:
    """A question, the page of ``docs`` that answers it, and what its top must hold.

    Args:
        words: The question.
        page: The page.
        says: Patterns that must be found in its top, the answer among them.
        code: Whether the answer is code, which some test then has to run.
    """

    words: str
    page: str
    says: tuple[str, ...]
    code: bool = False


QUESTIONS = [
    Question(
        "What does it do?", "index.md", (r"which samples to learn from\s+now, how they look, and how much they count",)
    ),
    Question("When should I not use it?", "index.md", (r"If your labels are clean, plain training is as good",)),
    Question(
        "How do I try it on my CSV?",
        "first-steps.md",
        (r"pip install 'torchcurriculum\[clean\]'", r"^curriculum clean patients\.csv --label diagnosis$"),
        code=True,
    ),
    Question(
        "How do I use it in my Lightning module?",
        "integrations/lightning.md",
        (
            r"pip install 'torchcurriculum\[lightning\]'",
            r"CurriculumCallback\(\"[\w-]+\"\)",
            r"callbacks=\[curriculum\]",
        ),
        code=True,
    ),
    Question(
        "How do I use it in my own loop?",
        "three-lines.md",
        (r"indexed\(loader\)", r"batch_weights|criterion\("),
        code=True,
    ),
    Question(
        "Which method should I use?",
        "which-method.md",
        (
            r"\*\*clean labels\*\* \| `vanilla`",
            r"\*\*many wrong labels\*\* \| `[\w-]+`",
            r"95 % interval",
        ),
        code=True,
    ),
    Question("What does it cost?", "speed.md", (r"What does a curriculum cost", r"\| 1\.\d+ \|")),
    Question(
        "What does each method cost?", "results/method-cost.md", (r"^- .*1\.1 times plain training", r"`apw-e` \| ")
    ),
    Question(
        "Which of my labels are wrong?",
        "clean.md",
        (r"^curriculum clean \S+ --label \S+$", r"^curriculum fix \S+ --out \S+$", r"review\.html"),
    ),
    Question("Which labels are wrong, in my own loop?", "audit.md", (r"audit\(record\)", r"Predictions\("), code=True),
    Question(
        "How do I add a method?",
        "add-a-method.md",
        (r"class \w+\(Method\):", r"def weigh\(self, step: Step\)", r"Curriculum\(\w+\("),
        code=True,
    ),
]
