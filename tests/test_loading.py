"""From tensors to layers: where they come to lie, and how many live at a time."""

from __future__ import annotations

import weakref

import pytest
import torch
from gpu import DEVICES

from specpilot.formats import CheckpointError
from specpilot.loading import Loader, OnDevice

BF16 = torch.bfloat16


class Source:
    """Random tensors by name, made when asked for; ``alive`` says how many of those given out still are."""

    source = "a source"

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self._shapes = {name.replace("__", "."): shape for name, shape in shapes.items()}
        self._given: list[weakref.ref] = []
        self.most = 0

    def names(self) -> list[str]:
        return list(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def tensor(self, name: str) -> torch.Tensor:
        self.most = max(self.most, 1 + sum(given() is not None for given in self._given))
        seed = torch.Generator().manual_seed(self.names().index(name))
        value = torch.randn(self._shapes[name], generator=seed).to(BF16)
        self._given.append(weakref.ref(value))
        return value


def fused():
    return Source(
        q__weight=(40, 64),
        k__weight=(24, 64),
        v__weight=(16, 64),
        k__bias=(24,),
        q__bias=(40,),
        v__bias=(16,),
    )


PARTS = [("q", 40), ("k", 24), ("v", 16)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("format", ["w12", "bf16"])
def test_parts_are_stacked_where_they_lie(device, format, assert_bits_equal):
    device = torch.device(device)
    take = Loader(OnDevice(fused(), device), format)
    linear = take.linear(PARTS, 64, bias=True)
    take.finish()
    got, plain = linear.weight.to_bf16(), fused()
    assert got.device == linear.bias.device == linear.weight.data.device == device
    assert_bits_equal(got.cpu(), torch.cat([plain.tensor(f"{name}.weight") for name, _ in PARTS]))
    assert_bits_equal(linear.bias.cpu(), torch.cat([plain.tensor(f"{name}.bias") for name, _ in PARTS]))


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_in_8_bits_lies_beside_its_original(device, assert_bits_equal):
    device = torch.device(device)
    head, made = Source(head__weight=(50, 96)), []
    for where in (device, torch.device("cpu")):
        take = Loader(OnDevice(head, where), "q8")
        made.append(take.copy(take.table("head", 50, 96), "the head").weight)
    assert made[0].data.device == made[0].scale.device == device
    assert_bits_equal(made[0].data.cpu(), made[1].data)
    assert_bits_equal(made[0].scale.cpu(), made[1].scale)


@pytest.mark.parametrize("device", DEVICES)
def test_one_tensor_is_held_at_a_time(device):
    source = fused()
    Loader(OnDevice(source, torch.device(device)), "w12").linear(PARTS, 64)
    assert source.most == 1


@pytest.mark.parametrize("device", DEVICES)
def test_errors_name_the_source(device):
    take = Loader(OnDevice(Source(a__weight=(4, 8), b__weight=(4, 8)), torch.device(device)), "bf16")
    take.linear([("a", 4)], 8)
    with pytest.raises(CheckpointError, match="a source: tensor c.weight is missing"):
        take.linear([("c", 4)], 8)
    with pytest.raises(
        CheckpointError, match=r"a source: tensor b.weight is \[4, 8\], by the config it is \[5, 8\]"
    ):
        take.linear([("b", 5)], 8)
    with pytest.raises(CheckpointError, match="a source: tensors unknown to this architecture: b.weight"):
        take.finish()
