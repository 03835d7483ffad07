"""Names of models: what is a path, what the Hub has, what is refused in one line; which drafter belongs to which target."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from specpilot import zoo
from specpilot.fetch import WheelFile
from specpilot.formats import CheckpointError, open_checkpoint

SHAPES = {pair.target: pair.shape for pair in zoo.PAIRS}
DEFAULT, QWEN3 = "HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen3-8B"


def refused(name, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        zoo.resolve_target(name)
    message = str(caught.value)
    assert message.isprintable() and len(message) <= 600 and all(word in message for word in words), message


@pytest.fixture
def offline(tmp_path, monkeypatch) -> Path:
    """The Hub's client as HF_HUB_OFFLINE=1 makes it, with a cache of its own."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def target(source: str, shape: dict[str, int] | None = None):
    return SimpleNamespace(source=source, config=dict(shape if shape is not None else SHAPES[QWEN3]))


def test_paths_are_themselves(tmp_path, monkeypatch):
    for name in ("model.gguf", "with space", "umläut-東京", "-dash", "a;b$(c)", "Qwen", "line\nend"):
        path = tmp_path / name
        path.mkdir()
        assert zoo.resolve_target(path) == zoo.resolve_target(str(path)) == path
    monkeypatch.chdir(tmp_path)
    assert zoo.resolve_target("with space") == Path("with space")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert zoo.resolve_target("~/Qwen") == tmp_path / "Qwen"
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir()
    assert zoo.resolve_target(QWEN3) == Path(QWEN3)  # a path here comes before the Hub


ODD = [
    "",
    " ",
    "nothing",
    "smollm2-135M",
    "a/b/c",
    "../a/b",
    "/a/b",
    "a/",
    "/",
    "a/b\n",
    "a b/c",
    "-a/b",
    ".a/b",
    "a\0b/c",
]


@pytest.mark.parametrize(
    "name", [*ODD, "東/京", "\x1b[2J", "\ud800", "a/\ud800", "x" * 5000, "~nobody-at-all/x"], ids=ascii
)
def test_odd_names_are_refused_in_one_line(name, offline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name != "/":
        refused(name)


def test_unknown_names_are_told_what_is_known():
    refused("smollm2", "'smollm2'", "smollm2-135m", "smollm2-135m-dflash", "Qwen/Qwen3-8B")


def test_hub_names_offline(offline):
    refused("organisation/model", "organisation/model", "no such path", "give the path of a local copy")
    snapshot = offline / "models--organisation--model" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    assert zoo.resolve_target("organisation/model") == snapshot


def test_hub_errors_are_one_line(monkeypatch):
    import huggingface_hub

    def fail(*_args, **_options):
        raise OSError("\n\n  401 Client Error\nfor url: …\n")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    refused("organisation/model", "did not give it: 401 Client Error;")


def test_the_default_model_is_pinned(smollm2):
    wanted = zoo.FETCHED[zoo.DEFAULT_TARGET]
    assert isinstance(wanted, WheelFile) and smollm2.stat().st_size == wanted.size
    with open_checkpoint(smollm2) as checkpoint:
        assert zoo.known_drafter(checkpoint) == "smollm2-135m-dflash"


def test_the_shipped_drafter_opens():
    with open_checkpoint("smollm2-135m-dflash") as drafter:
        assert drafter.config["architectures"] == ["DFlashDraftModel"]


@pytest.mark.parametrize("pair", zoo.PAIRS, ids=lambda pair: pair.target)
def test_pairs_are_known_by_shape_and_name(pair):
    model, cached = pair.target.split("/")[1], f"models--{pair.target.replace('/', '--')}"
    for source in (f"/m/{model}", f"/m/{model.lower()}", f"/m/{model}-w12", f"/hub/{cached}/snapshots/0f"):
        assert zoo.known_drafter(target(source, pair.shape)) == pair.drafter, source
    for key in pair.shape:
        assert zoo.known_drafter(target(f"/m/{model}", {**pair.shape, key: 7})) is None, key
    assert zoo.known_drafter(target(f"/m/{model}", {})) is None


@pytest.mark.parametrize(
    "name", ["Qwen3-8B-Base", "Qwen3-8B-abliterated", "MyQwen3-8B", "DeepSeek-R1-0528-Qwen3-8B", "x"]
)
def test_relatives_are_not_given_a_drafter_that_has_to_be_downloaded(name):
    assert zoo.known_drafter(target(f"/models/{name}")) is None


@pytest.mark.parametrize(
    "name", ["Qwen3-8B-bf16", "Qwen3-8B.w12", "Qwen3-8B-Q4_K_M.gguf", "qwen3-8b-iq4_xs.gguf", "Qwen3-8B_f16"]
)
def test_forms_of_a_model_are_the_model(name):
    assert zoo.known_drafter(target(f"/models/{name}")) == "z-lab/Qwen3-8B-DFlash-b16"


def test_relatives_share_a_drafter_that_is_at_hand(monkeypatch, tmp_path):
    finetune = target("/models/my-finetune", SHAPES[DEFAULT])
    assert zoo.known_drafter(finetune) == "smollm2-135m-dflash"
    monkeypatch.setitem(zoo.SHIPPED, "smollm2-135m-dflash", tmp_path / "gone")
    assert zoo.known_drafter(finetune) is None
