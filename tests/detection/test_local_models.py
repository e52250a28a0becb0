"""Models that engines keep on the disk are found, and named."""

import json
from pathlib import Path

import pytest
from looked_at import looked_at

from helmsman.detection.local_models import find_models, named_model
from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.schemas.errors import UsageError

HUB = ".cache/huggingface/hub"
DIGEST = "ab" * 32


def made(place: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def repository(name: str, revision: str, *files: str) -> dict[str, str]:
    folder = f"{HUB}/models--{name.replace('/', '--')}"
    snapshot = {f"{folder}/snapshots/{revision}/{file}": "weights" for file in files}
    return {f"{folder}/refs/main": revision, **snapshot}


def manifest(*layers: tuple[str, str]) -> str:
    kinds = {"model": "application/vnd.ollama.image.model", "license": "application/vnd.ollama.image.license"}
    return json.dumps({"layers": [{"mediaType": kinds[kind], "digest": digest} for kind, digest in layers]})


def test_models_of_every_store_are_found(tmp_path: Path) -> None:
    system = looked_at(tmp_path, {})
    ollama = ".ollama/models"
    made(
        tmp_path / "home",
        {
            **repository("Qwen/Qwen3-8B", "1f", "config.json", "model.safetensors"),
            **repository(
                "unsloth/Qwen3-4B-GGUF", "2f", "Qwen3-4B-Q4_K_M.gguf", "Qwen3-4B-Q8_0.gguf", "mmproj-F16.gguf"
            ),
            **repository("google-bert/bert-base", "3f", "config.json"),
            f"{ollama}/manifests/registry.ollama.ai/library/llama3.1/8b": manifest(
                ("license", "sha256:" + "0" * 64), ("model", f"sha256:{DIGEST}")
            ),
            f"{ollama}/manifests/hf.co/bartowski/Qwen3-8B-GGUF/Q4_K_M": manifest(("model", f"sha256:{DIGEST}")),
            f"{ollama}/manifests/registry.ollama.ai/library/gone/1b": manifest(("model", "sha256:" + "c" * 64)),
            f"{ollama}/manifests/registry.ollama.ai/library/broken/1b": "{",
            f"{ollama}/manifests/registry.ollama.ai/library/evil/1b": manifest(("model", "sha256:../../x")),
            f"{ollama}/blobs/sha256-{DIGEST}": "GGUF",
            ".lmstudio/models/lmstudio-community/Qwen3-30B-GGUF/Qwen3-30B-A3B-Q4_K_M-00001-of-00002.gguf": "1",
            ".lmstudio/models/lmstudio-community/Qwen3-30B-GGUF/Qwen3-30B-A3B-Q4_K_M-00002-of-00002.gguf": "22",
            ".cache/llama.cpp/ggml-org_gemma-3-1b-it-GGUF.gguf": "x",
        },
    )
    models = {model.name: model for model in find_models(system)}
    assert {name: (model.store, model.entry) for name, model in models.items()} == {
        "Qwen/Qwen3-8B": ("hugging-face", "Qwen3-8B"),
        "unsloth/Qwen3-4B-Q4_K_M": ("hugging-face", "Qwen3-4B"),
        "unsloth/Qwen3-4B-Q8_0": ("hugging-face", "Qwen3-4B"),
        "llama3.1:8b": ("ollama", "Llama-3.1-8B"),
        "hf.co/bartowski/Qwen3-8B-GGUF:Q4_K_M": ("ollama", "Qwen3-8B"),
        "lmstudio-community/Qwen3-30B-A3B-Q4_K_M": ("lm-studio", "Qwen3-30B-A3B"),
        "ggml-org_gemma-3-1b-it-GGUF": ("llama.cpp", None),
    }
    split = models["lmstudio-community/Qwen3-30B-A3B-Q4_K_M"]
    assert split.bytes == 3 and split.path.endswith("00001-of-00002.gguf")
    blob = Path(models["llama3.1:8b"].path)
    assert blob.name == f"sha256-{DIGEST}" and is_gguf(blob) and not is_gguf(Path(f"elsewhere/sha256-{DIGEST}"))


def test_models_are_where_the_environment_says(tmp_path: Path) -> None:
    files = {"hub/models--a--b/snapshots/1/config.json": "{}", "hub/models--a--b/snapshots/1/model.safetensors": "x"}
    made(tmp_path / "disk", files)
    for variables in ({"HF_HUB_CACHE": "disk/hub"}, {"HF_HOME": "disk"}):
        stated = {name: str(tmp_path / place) for name, place in variables.items()}
        assert [model.name for model in find_models(looked_at(tmp_path, {}, **stated))] == ["a/b"]
    made(tmp_path / "disk", {"o/manifests/registry.ollama.ai/me/mine/v1": manifest(("model", f"sha256:{DIGEST}"))})
    made(tmp_path / "disk", {f"o/blobs/sha256-{DIGEST}": "GGUF"})
    system = looked_at(tmp_path, {}, OLLAMA_MODELS=str(tmp_path / "disk" / "o"))
    assert [model.name for model in find_models(system)] == ["me/mine:v1"]
    assert find_models(looked_at(tmp_path, {}, HOME="")) == ()


def test_models_are_named_in_short_and_what_means_several_is_refused(tmp_path: Path) -> None:
    one = repository("Qwen/Qwen3-8B", "1f", "config.json", "model.safetensors")
    two = repository("mine/Qwen3-8B", "1f", "config.json", "model.safetensors")
    made(tmp_path / "home", one)
    models = find_models(looked_at(tmp_path, {}))
    for name in ("local:Qwen/Qwen3-8B", "local:qwen3-8b", "qwen3-8b"):
        model = named_model(name, models)
        assert model is not None and model.name == "Qwen/Qwen3-8B"
    assert named_model("other", models) is None
    with pytest.raises(UsageError, match="did you mean local:Qwen/Qwen3-8B"):
        named_model("local:qwen3-9b", models)
    made(tmp_path / "home", two)
    with pytest.raises(UsageError, match="local:mine/Qwen3-8B or local:Qwen/Qwen3-8B"):
        named_model("local:Qwen3-8B", find_models(looked_at(tmp_path, {})))
