"""A Chromium on which llama.cpp's WebGPU runs without a GPU: Mesa's llvmpipe in the place of SwiftShader."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from handbook.chromium import find_chromium

DRIVER, MANIFEST = "libvk_swiftshader.so", "vk_swiftshader_icd.json"
"""Chromium's own driver for the CPU, which WebGPU loads by its place, and the file by which the loader finds it."""
PACKAGED = Path("/usr/lib/chromium")
"""Where Debian has Chromium, of which only a script is on PATH."""
MESAS = Path("/usr/share/vulkan/icd.d")


def llvmpipe_chromium(folder: Path) -> Path:
    """Path of a copy of this machine's Chromium in a folder, with that driver; without its parts a test is skipped."""
    chromium, mesa, compiler = _chromium(), _mesa(), shutil.which("cc")
    if not (chromium and mesa and compiler and Path("/usr/include/vulkan/vulkan.h").is_file()):
        pytest.skip("needs a Chromium with SwiftShader, Mesa's llvmpipe, a C compiler and Vulkan's headers")
    for path in chromium.parent.iterdir():
        if path.name not in (chromium.name, DRIVER, MANIFEST):
            (folder / path.name).symlink_to(path)
    manifest = json.loads((chromium.parent / MANIFEST).read_text())
    manifest["ICD"]["library_path"] = str(chromium.parent / DRIVER)  # all but WebGPU keeps SwiftShader
    (folder / MANIFEST).write_text(json.dumps(manifest))
    options = ["-shared", "-fPIC", "-Wl,-Bsymbolic", f'-DMESA="{mesa}"', "-o", str(folder / DRIVER)]
    subprocess.run([compiler, *options, str(Path(__file__).with_suffix(".c")), "-ldl"], check=True)
    return Path(shutil.copy(chromium, folder))  # it looks for its files beside itself, and follows links


def _chromium() -> Path | None:
    found = Path(find_chromium() or "none").resolve()
    places = [folder / found.name for folder in (found.parent, PACKAGED)]
    return next((path for path in places if path.is_file() and (path.parent / DRIVER).is_file()), None)


def _mesa() -> str | None:
    """Path of llvmpipe's library, as its manifest names it."""
    manifests = sorted(MESAS.glob("lvp_icd*.json"))
    return json.loads(manifests[0].read_text())["ICD"]["library_path"] if manifests else None
