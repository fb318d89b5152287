"""A GGUF file's weights in the format of each engine, written by the engines' own converters.

OpenVINO GenAI reads the GGUF file itself. The others begin with the folder of safetensors that transformers makes of a
16-bit GGUF file, in 32 bits, which hold every 16-bit number exactly.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from inferlab.errors import InvalidSettings, OtherEngineFailed
from inferlab.measurement.pytorch import required

WEIGHTS = {
    "transformers": ("float32", "bfloat16"),
    "OpenVINO": ("F16 exact", "F16", "Q8_0", "Q4_0"),
    "ONNX Runtime": ("fp32", "int4"),
    "MLX": ("float32", "float16"),
}
"""Engine -> the weights it is measured with, in the engine's own words."""
NO_TOKENIZER = "?"


def safetensors_folder(gguf: Path, folder: Path) -> Path:
    """The weights of a GGUF file in F16 or F32 as safetensors of 32 bits, with a tokenizer that knows nothing."""
    if not (folder / "config.json").is_file():
        import tokenizers
        import transformers

        torch, unpacked = required(), transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=unpacked
        )
        words = tokenizers.models.WordLevel({NO_TOKENIZER: 0}, unk_token=NO_TOKENIZER)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words)).save_pretrained(folder)
        model.save_pretrained(folder)
    return folder


def converted(engine: str, weights: str, gguf: Path, folder: Path) -> Path:
    """What `engine` opens for these weights: `gguf` itself, or a folder below `folder` that is written once.

    gguf  in F16, or for OpenVINO in the type that `weights` names
    Raises InvalidSettings for a pair that WEIGHTS does not have, OtherEngineFailed where a converter fails.
    """
    if weights not in WEIGHTS.get(engine, ()):
        raise InvalidSettings(f"{engine!r} is not compared with {weights!r} weights. There are: {WEIGHTS}.")
    if engine == "OpenVINO":
        return gguf
    source = safetensors_folder(gguf, folder / "safetensors")
    target = folder / f"{engine} {weights}".replace(" ", "-").lower()
    if engine == "transformers" or (engine, weights) == ("MLX", "float32"):
        return source
    if not (target / "config.json").is_file() and not (target / "genai_config.json").is_file():
        _run(_command(engine, weights, source, target))
    return target


def _command(engine: str, weights: str, source: Path, target: Path) -> list[str]:
    if engine == "ONNX Runtime":
        return ["onnxruntime_genai.models.builder", "-i", str(source), "-o", str(target), "-p", weights, "-e", "cpu"]
    return ["mlx_lm", "convert", "--hf-path", str(source), "--mlx-path", str(target), "--dtype", weights]


def _run(module: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *module], capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was written"])[-1]
        raise OtherEngineFailed(f"{module[0]} ended with exit status {done.returncode}: {last}")
