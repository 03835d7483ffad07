"""The memory plan: what it names, what it refuses before anything is read, and what is free."""

from __future__ import annotations

import pytest
import tiny_engines
import torch

from specpilot import devices, load
from specpilot.engine import memory
from specpilot.engine.engine import buffer_bytes
from specpilot.formats import open_checkpoint


def test_what_cannot_fit_is_refused_with_the_numbers(target, drafter, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda device: 1000)
    with pytest.raises(
        MemoryError, match=r"needs 0\.\d\d GB \(weights .*, drafter .*, KV cache .*, buffers .*\)"
    ) as e:
        load(target, drafter)
    assert str(target) in str(e.value) and "smaller max_context" in str(e.value)


def test_nothing_is_loaded_before_the_plan_is_checked(target, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda device: 1000)
    monkeypatch.setattr(type(open_checkpoint(target)), "tensor", lambda *_: pytest.fail("a tensor was read"))
    with pytest.raises(MemoryError):
        load(target, None)


def test_a_longer_context_needs_more(target, drafter, monkeypatch):
    """The plan is what decides, so a context that just fits is loaded and one page more is refused."""
    plans = []
    real = memory.MemoryPlan.check
    monkeypatch.setattr(
        memory.MemoryPlan, "check", lambda self, *a: (plans.append(self.total), real(self, *a))
    )
    load(target, drafter, max_context=64)
    monkeypatch.setattr(memory, "available", lambda device: plans[0])
    load(target, drafter, max_context=64)
    with pytest.raises(MemoryError):
        load(target, drafter, max_context=128)


def buffers_of(engine) -> dict[int, int]:
    """Bytes by address of what an engine, its target and its drafter hold besides parameters and K and V."""
    found: dict[int, int] = {}
    t, d = engine.target, engine.drafter
    weights = {id(x) for m in (t, d) for x in (*m.layers, m.norm, m.head)} | {
        id(t.embedding),
        id(d.hidden_norm),
    }
    seen = weights | {id(engine._kv), id(d._kv), id(d.fc), id(d.context_kv)}

    def walk(part) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            storage = part.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(part, dict):
            [walk(x) for x in part.values()]
        elif isinstance(part, (list, tuple)):
            [walk(x) for x in part]
        elif type(part).__module__.startswith("specpilot"):
            walk(getattr(part, "__dict__", {}))

    walk(engine)
    return found


def test_the_plan_names_what_an_engine_allocates(target, drafter):
    engine = load(target, drafter, max_context=96)
    shapes = [(c.config.num_layers, c.shape) for c in (engine.target,)]
    shapes.append((engine.drafter.config.layers, engine.drafter.shape))
    parts = buffer_bytes(shapes, tiny_engines.VOCAB, 96, engine.drafter.block_size, 3)
    assert parts["KV cache"] == engine._kv.nbytes + engine.drafter._kv.nbytes
    assert parts["buffers"] == pytest.approx(sum(buffers_of(engine).values()), rel=0.03)


def test_available_memory_is_the_least_of_machine_and_control_group(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available(memory.CPU) > 10**8
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("2000000\n")
    assert memory.available(memory.CPU) == 3000000
    (tmp_path / "memory.current").write_text("6000000\n")
    assert memory.available(memory.CPU) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available(memory.CPU) > 10**8


GPU = torch.device("cuda", 1)


@pytest.fixture
def two_gpus(monkeypatch):
    """The facts of a machine whose second GPU can be used."""
    gpu = devices.Gpu("NVIDIA H200", 9, 0, 150 << 30, 132, True)
    facts = devices.Facts("90a-real", 13000, 13000, "", (gpu, gpu), "13.0", 2)
    monkeypatch.setattr(devices, "facts", lambda: facts)


def test_a_model_for_a_gpu_must_fit_into_its_memory(target, drafter, two_gpus, monkeypatch):
    free = {GPU: 1000, memory.CPU: 10**12}
    monkeypatch.setattr(memory, "available", free.__getitem__)
    monkeypatch.setattr(type(open_checkpoint(target)), "tensor", lambda *_: pytest.fail("a tensor was read"))
    with pytest.raises(MemoryError, match=r"weights .*, drafter .*, KV cache .*are free on cuda:1") as e:
        load(target, drafter, device="cuda:1")
    assert "another GPU" in str(e.value) and "device='cpu'" in str(e.value)


def test_loading_a_gpu_takes_little_of_the_hosts_memory(target, two_gpus, monkeypatch):
    largest = 2 * tiny_engines.VOCAB * 64  # the embedding
    free = {GPU: 10**12, memory.CPU: 2 * largest - 1}
    monkeypatch.setattr(memory, "available", free.__getitem__)
    with pytest.raises(MemoryError, match=r"loading .* are free on cpu: free some"):
        load(target, None, device="cuda:1")


def test_plans_count_the_peak_once():
    """Weights are laid out in the room that buffers take later: the larger of the two counts."""
    for buffers, total in ((100, 10 + 5 + 100), (20, 10 + 5 + 60)):
        [host] = memory.plans(memory.CPU, {"weights": 10, "drafter": 5}, {"KV cache": buffers}, 30)
        device, other = memory.plans(GPU, {"weights": 10, "drafter": 5}, {"KV cache": buffers}, 30)
        assert host.total == total and device.parts == {**host.parts, "kernels": memory.KERNELS}
        assert (host.device, device.device, other.device) == (memory.CPU, GPU, memory.CPU)
        assert other.total == 60


def test_free_memory_of_a_gpu_is_the_drivers_number(monkeypatch):
    given = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append("back"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (given.append(device), (7, 9))[1])
    assert memory.available(GPU) == 7 and given == ["back", GPU]


def test_a_drafter_in_8_bits_is_planned_with_its_copy_of_the_head(target, drafter, monkeypatch):
    plans = []
    monkeypatch.setattr(memory.MemoryPlan, "check", lambda self, *a: plans.append(self.parts["drafter"]))
    for weights in ("q8", "w12", "bf16"):
        loaded = load(target, drafter, max_context=64, drafter_weights=weights).drafter.nbytes
        assert 0.5 < plans[-1] / loaded < 1.2, weights
