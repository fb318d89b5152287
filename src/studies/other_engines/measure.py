"""Several engines on the same prompts, on the CPU: answers, seconds and memory by one harness.

Every engine stays open in a process of its own, and all answer the same prompt in each turn, one after the other.
Prompts are random tokens, new in each turn, so that no engine finds a prompt in a cache of prefixes; a second request
with the same prompt then shows which engine has such a cache. Time is taken in the engine's process, token by token.
`pip install -e ".[engines]"` brings the engines; nothing else needs them.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from inferlab.engine.client import LlamaEngine
from inferlab.engine.quantize import quantize
from inferlab.measurement.base import common_fields, with_context
from inferlab.measurement.pytorch import peak_growth, required
from inferlab.measurement.same_answer import n_same
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.other_engines.client import Answer, OtherEngine, Request
from studies.other_engines.study import EngineComparison, EngineRow
from studies.recipes import Recipe

WITHOUT_MLX = {
    "transformers": ("float32", "bfloat16"),
    "OpenVINO": ("F16 exact", "F16", "Q8_0", "Q4_0"),
    "ONNX Runtime": ("fp32", "int4"),
}
WEIGHTS = {**WITHOUT_MLX, "MLX": ("float32", "float16")}
"""Engine -> the weights it is measured with, in the engine's own words."""
TYPES = ("F16", "Q8_0", "Q4_0")
"""Of the GGUF files; F16 is the reference, and what is converted."""
LLAMA, REFERENCE = "llama.cpp", "F16"
FIRST_TOKEN = 300  # special tokens and single bytes lie below, in the vocabularies that are used here
PAUSE_SECONDS = 0.2  # the threads of some engines wait busily for a while after their work
NO_TOKENIZER = "?"


def on_tiny(weights: Mapping[str, Sequence[str]], n_prompt: int, n_gen: int, repeats: int) -> EngineComparison:
    """The embedded model in all types."""
    files = {type: tiny_model() if type == REFERENCE else quantize("tiny", type) for type in TYPES}
    return compare_engines(files, weights, n_prompt, n_gen, repeats)


def on_shape(weights: Mapping[str, Sequence[str]], n_prompt: int, n_gen: int, repeats: int) -> EngineComparison:
    """Two layers of Mistral 7B in all types, each with synthetic weights of its own."""
    files = {type: make_shape("mistral-7b", type, n_layer=2, n_vocab=16384) for type in TYPES}
    return compare_engines(files, weights, n_prompt, n_gen, repeats)


def compare_engines(
    files: Mapping[str, Path], weights: Mapping[str, Sequence[str]], n_prompt: int, n_gen: int, repeats: int
) -> EngineComparison:
    """Measure llama.cpp on each of `files` and every engine with each of its `weights`, in turns.

    The first answer of an engine is not counted. Raises OtherEngineFailed where an engine's process ends.
    """
    settings = with_context(Settings(n_threads=2, n_threads_batch=2), n_prompt, n_gen)
    header = read_gguf(files[REFERENCE])
    tokens = prompt(header.n_vocab, n_prompt, -1)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        llama = {type: stack.enter_context(closing(LlamaEngine())) for type in files}
        entrants = [_llama(llama[type], type, path, settings, tokens, n_gen) for type, path in files.items()]
        for engine, kind in ((engine, kind) for engine, kinds in weights.items() for kind in kinds):
            path = converted(engine, kind, files, Path(folder))
            request = Request(engine, kind, path, settings.n_threads, settings.n_ctx)
            entrants.append(_other(stack.enter_context(closing(OtherEngine())), request, tokens, n_gen))
        for turn in range(repeats):
            tokens = prompt(header.n_vocab, n_prompt, turn)
            expected = entrants[0].answered(tokens, n_gen)
            for entrant in entrants[1:]:
                entrant.answered(tokens, n_gen, expected)
        reference = llama[REFERENCE]
        common = common_fields(reference, reference.open(files[REFERENCE], settings), header)
    return EngineComparison(**common, n_prompt=n_prompt, n_gen=n_gen, rows=tuple(entrant.row() for entrant in entrants))


@dataclass
class _Entrant:
    """An engine that has given its first answer, which is not counted, and what it has answered since."""

    engine: str
    weights: str
    version: str
    grown_bytes: int | None
    generate: Callable[[Sequence[int], int], Answer]
    samples: list[tuple[float, float, float, int]] = field(default_factory=list)

    def answered(self, tokens: Sequence[int], n_gen: int, expected: Sequence[int] = ()) -> tuple[int, ...]:
        """Ask once and once more; the tokens of the first answer."""
        time.sleep(PAUSE_SECONDS)
        answer, again = self.generate(tokens, n_gen), self.generate(tokens, 1)
        first, last = answer.seconds[0], answer.seconds[-1]
        same = n_same(answer.tokens, expected or answer.tokens)
        self.samples.append((first, (last - first) / (n_gen - 1), again.seconds[0], same))
        return answer.tokens

    def row(self) -> EngineRow:
        return EngineRow(self.engine, self.weights, self.version, self.grown_bytes, *zip(*self.samples, strict=True))


def _llama(
    engine: LlamaEngine, type: str, path: Path, settings: Settings, tokens: Sequence[int], n_gen: int
) -> _Entrant:
    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        done = engine.generate(tokens, n_gen)
        return Answer(done.tokens, done.token_seconds)

    version = f"{LLAMA} {engine.machine().llama_cpp_commit}"  # starts the worker
    with peak_growth(engine.pid) as grown:
        engine.open(path, settings)
        generate(tokens, n_gen)
    return _Entrant(LLAMA, type, version, grown[0], generate)


def _other(engine: OtherEngine, request: Request, tokens: Sequence[int], n_gen: int) -> _Entrant:
    with peak_growth(engine.pid) as grown:
        version = engine.open(request)
        engine.generate(tokens, n_gen)
    return _Entrant(request.engine, request.weights, version, grown[0], engine.generate)


def prompt(n_vocab: int, n_prompt: int, turn: int) -> list[int]:
    """Random token ids, the same for every engine and others in each turn; the lowest, special ones are left out."""
    return random.Random(turn).choices(range(FIRST_TOKEN, n_vocab), k=n_prompt)


# --- weights in the format of each engine -----------------------------------------------------


def converted(engine: str, weights: str, files: Mapping[str, Path], folder: Path) -> Path:
    """What `engine` opens for these weights: one of `files`, or what its own converter writes into `folder`.

    OpenVINO GenAI reads GGUF files. The others begin with safetensors in 32 bits, which hold every 16-bit number.
    """
    if engine == "OpenVINO":
        return files[weights.split()[0]]
    source, target = folder / "safetensors", folder / f"{engine} {weights}".replace(" ", "-").lower()
    if not source.is_dir():
        write_safetensors(files[REFERENCE], source)
    if engine == "ONNX Runtime":
        module = ["onnxruntime_genai.models.builder", "-i", source, "-o", target, "-p", weights, "-e", "cpu"]
    elif (engine, weights) == ("MLX", "float16"):
        module = ["mlx_lm", "convert", "--hf-path", source, "--mlx-path", target, "--dtype", weights]
    else:
        return source
    subprocess.run([sys.executable, "-m", *map(str, module)], check=True)
    return target


def write_safetensors(gguf: Path, folder: Path) -> None:
    """The weights of a GGUF file in F16 or F32 as safetensors of 32 bits, with a tokenizer that knows nothing."""
    torch = required()
    import tokenizers
    import transformers

    unpacked = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=unpacked
    )
    words = tokenizers.models.WordLevel({NO_TOKENIZER: 0}, unk_token=NO_TOKENIZER)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words)).save_pretrained(folder)
    model.save_pretrained(folder)


RECIPES: Mapping[str, Recipe] = {
    "engines-tiny": partial(on_tiny, WEIGHTS, n_prompt=128, n_gen=32, repeats=15),
    "engines-shape": partial(on_shape, WITHOUT_MLX, n_prompt=128, n_gen=16, repeats=15),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
