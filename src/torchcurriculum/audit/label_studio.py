"""Label Studio: tasks to import, the matching labelling interface, and people's answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

__all__ = ["OBJECTS", "REMOVE", "answers", "interface", "task"]

OBJECTS = {"picture": ("Image", "image"), "text": ("Text", "text"), "values": ("Table", "values")}
REMOVE = "drop this row"


def interface(classes: Sequence[str], shown: str) -> str:
    """The labelling interface: the classes, a box to drop the row, and the sample.

    Args:
        classes: All labels.
        shown: ``"picture"``, ``"text"`` or ``"values"``.

    Example:
        >>> print(interface(["cat", '"dog" & co'], "text"))
        <View>
          <Header value="$question"/>
          <Choices name="label" toName="sample" choice="single">
            <Choice value="cat"/>
            <Choice value='"dog" &amp; co'/>
          </Choices>
          <Choices name="remove" toName="sample" choice="multiple">
            <Choice value="drop this row"/>
          </Choices>
          <Text name="sample" value="$text"/>
        </View>
    """
    tag, field = OBJECTS[shown]
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in classes)
    return f"""<View>
  <Header value="$question"/>
  <Choices name="label" toName="sample" choice="single">
{choices}
  </Choices>
  <Choices name="remove" toName="sample" choice="multiple">
    <Choice value="{REMOVE}"/>
  </Choices>
  <{tag} name="sample" value="${field}"/>
</View>"""


def task(data: Mapping[str, Any], given: str, suggested: str | None, score: float | None) -> dict[str, Any]:
    """A task: the sample and, as a prediction, the suggested label.

    Args:
        data: With ``row`` and the field that the interface shows.
        given: The label in the data.
        suggested: The better label, or None.
        score: The probability that the given label is wrong, or None.
    """
    better = "no better label is known" if suggested is None else f"suggested: {suggested}"
    made: dict[str, Any] = {"data": {**data, "given_label": given, "question": f"given: {given}; {better}"}}
    if suggested is not None:
        choice = {"from_name": "label", "to_name": "sample", "type": "choices", "value": {"choices": [suggested]}}
        made["predictions"] = [{"model_version": "torchcurriculum", "score": score, "result": [choice]}]
    return made


def answers(tasks: Any) -> Iterator[tuple[int, str | None]]:
    """(row, label, or None to drop the row) of the answered tasks, from an export as JSON or JSON-MIN.

    The last annotation of a task counts, without skipped ones. Anything else raises ValueError.

    Example:
        >>> choice = {"from_name": "label", "type": "choices", "value": {"choices": ["dog"]}}
        >>> long = {"data": {"row": 7}, "annotations": [{"result": [choice]}]}
        >>> list(answers([long, {"row": 3, "remove": "drop this row"}, {"row": 4, "label": "cat"}, {"row": 5}]))
        [(7, 'dog'), (3, None), (4, 'cat')]
    """
    if not isinstance(tasks, list) or not all(isinstance(one, dict) for one in tasks):
        raise ValueError("the answers of Label Studio are a list of tasks, exported as JSON or JSON-MIN")
    for one in tasks:
        data = one.get("data", one)
        row = data.get("row") if isinstance(data, dict) else None
        if type(row) is not int:
            raise ValueError(f"a task has no number of a row: {str(one)[:80]}")
        chosen = _annotated(one["annotations"]) if "annotations" in one else one
        if REMOVE in _texts(chosen.get("remove")):
            yield row, None
        elif labels := _texts(chosen.get("label")):
            yield row, labels[0]


def _annotated(annotations: Any) -> dict[str, Any]:
    """The choices of the last annotation that was not skipped."""
    given = annotations if isinstance(annotations, list) else []
    done = [one for one in given if isinstance(one, dict) and not one.get("was_cancelled")]
    results = done[-1].get("result") if done else None
    parts = [part for part in results if isinstance(part, dict)] if isinstance(results, list) else []
    values = {part.get("from_name"): part.get("value") for part in parts if part.get("type") == "choices"}
    return {str(name): value.get("choices") for name, value in values.items() if isinstance(value, dict)}


def _texts(value: Any) -> list[str]:
    """JSON-MIN writes one choice as a text and several as an object."""
    value = value.get("choices") if isinstance(value, dict) else value
    value = [value] if isinstance(value, str) else value
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
