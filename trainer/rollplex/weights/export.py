"""Writing a Hugging Face folder that transformers and vLLM load."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from rollplex.files import remove_folder, rename_durably, sync_folder, write_file
from rollplex.weights.hf import HfView, canonical_name
from rollplex.weights.shards import Entry, plan_shards, shard_name, write_shard

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5")


def export_folder(out: Path, views: Mapping[str, HfView], source: Path, readme: str, shard_bytes: int) -> list[Path]:
    """Write ``out``; it appears whole or not at all.

    Args:
        views: tensors by their transformers 5 names.
        source: the folder that the model was loaded from: config, tokenizer and processor are copied, and every tensor
            keeps the name that it has there, which is the one that other programs of that folder's age know.
        readme: its README.md.
        shard_bytes: most bytes of one file.

    Returns:
        The weight files.

    Raises:
        ValueError: ``out`` is there already and not empty, or ``source`` lacks a tensor.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already; choose another folder")
    names = {canonical_name(name): name for name in _names(source)}
    missing = sorted(set(views) - set(names))
    if missing:
        raise ValueError(
            f"{source} has no tensor {missing[0]!r}, which the trained model has; is it the model's folder?"
        )
    entries = {names[name]: Entry(view.shape, view.view.dtype, view.tensor) for name, view in sorted(views.items())}
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".writing-{out.name}")
    if aside.exists():
        remove_folder(aside)
    aside.mkdir()
    for file in sorted(source.iterdir()):
        if file.is_file() and not file.name.startswith(".") and not _replaced(file.name):
            shutil.copyfile(file, aside / file.name)
    write_file(aside / "config.json", [_json(_config(source, next(iter(entries.values())).dtype))])
    write_file(aside / "README.md", [readme.encode()])
    files = _write_weights(aside, entries, shard_bytes)
    sync_folder(aside)
    if out.exists():
        os.rmdir(out)
    rename_durably(aside, out)
    return [out / file for file in files]


def _write_weights(folder: Path, entries: Mapping[str, Entry], limit: int) -> list[str]:
    shards = plan_shards(entries, limit)
    if len(shards) == 1:
        write_shard(folder / "model.safetensors", entries)
        return ["model.safetensors"]
    files = [shard_name("model", number, len(shards)) for number in range(1, len(shards) + 1)]
    for file, names in zip(files, shards, strict=True):
        write_shard(folder / file, {name: entries[name] for name in names})
    index = {
        "metadata": {"total_size": sum(entry.bytes for entry in entries.values())},
        "weight_map": {name: file for file, names in zip(files, shards, strict=True) for name in names},
    }
    write_file(folder / "model.safetensors.index.json", [_json(index)])
    return files


def _names(folder: Path) -> list[str]:
    names: list[str] = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as handle:
            names += handle.keys()
    return names


def _replaced(name: str) -> bool:
    return name.endswith((*_WEIGHTS, ".index.json")) or name in ("config.json", "README.md")


def _config(source: Path, dtype: torch.dtype) -> dict[str, Any]:
    """The folder's config with the dtype that the weights have now."""
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    for section in (config, config.get("text_config"), config.get("vision_config")):
        if isinstance(section, dict):
            keys = [key for key in ("torch_dtype", "dtype") if key in section]
            for key in keys or (["dtype"] if section is config else []):
                section[key] = str(dtype).removeprefix("torch.")
    return config


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
