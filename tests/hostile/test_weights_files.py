"""Files of weights: what is missing, not finite or too large is said before anything is trained."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torchcurriculum.cli import main
from torchcurriculum.lab.models import load_weights, resnet18
from torchcurriculum.lab.models.small import digits_cnn


def test_half_of_the_tensors_are_refused_unless_asked_for(tmp_path: Path) -> None:
    whole = resnet18().state_dict()
    half = dict(list(whole.items())[: len(whole) // 2 + 1])
    save_file(half, tmp_path / "half.safetensors")
    model = resnet18()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"lacks 50 of the network's 122 tensors \(.*, \.\.\.\)"):
        load_weights(model, tmp_path / "half.safetensors")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert len(load_weights(model, tmp_path / "half.safetensors", strict=False)) == 50


def test_counters_of_batch_norm_may_be_missing(tmp_path: Path) -> None:
    old = {name: tensor for name, tensor in resnet18().state_dict().items() if "num_batches" not in name}
    save_file(old, tmp_path / "old.safetensors")
    assert load_weights(resnet18(), tmp_path / "old.safetensors") == []


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused_unless_asked_for(tmp_path: Path, bad: float) -> None:
    state = resnet18().state_dict()
    state["layer2.0.conv1.weight"][3, 0, 0, 0] = bad
    torch.save(state, tmp_path / "bad.pth")
    with pytest.raises(ValueError, match=r"1 of its tensors .* not finite \(layer2\.0\.conv1\.weight\)"):
        load_weights(resnet18(), tmp_path / "bad.pth")
    assert load_weights(resnet18(), tmp_path / "bad.pth", strict=False) == []


def test_a_small_file_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(4)}, tmp_path / "w.pth")
    with zipfile.ZipFile(tmp_path / "w.pth") as plain, zipfile.ZipFile(tmp_path / "bomb.pth", "w") as bomb:
        for entry in plain.infolist():
            if entry.filename.endswith("data/0"):
                with bomb.open(zipfile.ZipInfo(entry.filename), "w", force_zip64=True) as file:
                    file._compressor = zipfile._get_compressor(zipfile.ZIP_DEFLATED, 1)  # type: ignore[attr-defined]
                    file._zinfo.compress_type = zipfile.ZIP_DEFLATED  # type: ignore[attr-defined]
                    for _ in range(300):
                        file.write(bytes(2**20))
            else:
                bomb.writestr(entry.filename, plain.read(entry))
    assert (tmp_path / "bomb.pth").stat().st_size < 3e6
    tracemalloc.start()
    with pytest.raises(ValueError, match="is compressed"):
        load_weights(resnet18(), tmp_path / "bomb.pth")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_a_run_says_what_was_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = digits_cnn().state_dict()
    name = next(name for name in state if name.endswith("weight"))
    command = ["run", "digits", "--method", "vanilla", "--seeds", "0", "--epochs", "1", "--weights"]
    save_file({key: value for key, value in state.items() if key != name}, tmp_path / "w.safetensors")
    assert main([*command, str(tmp_path / "w.safetensors"), "--out", str(tmp_path / "out")]) == 2
    assert f"lacks 1 of the network's {len(state)} tensors ({name})" in capsys.readouterr().err
    with pytest.warns(UserWarning, match=rf"1 of the network's {len(state)} tensors keep .* \({name}\)"):
        assert main([*command, str(tmp_path / "w.safetensors"), "--partial-weights", "--out", str(tmp_path / "o")]) == 0
