"""GGUF files that are whole, but that this library does not plan: what each is, and what to do with it.

Versions and byte orders that llama.cpp does not read, tensor types of forks and removed ones, and files that are no
language model: adapters, projectors, control vectors, importance matrices, image models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

IMATRIX = "imatrix"  # general.type of an importance matrix (tools/imatrix/imatrix.cpp:603)
NEWEST_VERSION = 3
MOST_VERSIONS, MOST_NEW_TYPES = 9, 96
"""Numbers above these are no version or type of the near future, but damage."""

# ggml/include/ggml.h of ik_llama.cpp; below 97 it shares ggml's numbers, but for the two named here.
IK_TYPES = {
    97: "Q8_0_X4",
    98: "Q8_1_X4",
    99: "Q8_2_X4",
    133: "Q6_0",
    134: "IQ1_BN",
    135: "IQ2_BN",
    136: "Q8_K64",
    137: "IQ2_K",
    138: "IQ3_K",
    139: "IQ4_K",
    140: "IQ5_K",
    141: "IQ6_K",
    142: "IQ2_TN",
    143: "IQ1_TN",
    144: "IQ4_KS",
    145: "IQ2_KS",
    146: "IQ4_KSS",
    147: "Q8_K16",
    148: "Q8_K32",
    149: "Q8_KR8",
    150: "Q8_K128",
    151: "Q8_KV",
    152: "IQ5_KS",
    153: "IQ2_KT",
    154: "IQ3_KT",
    155: "IQ4_KT",
    156: "IQ3_KS",
    157: "IQ2_KL",
    158: "IQ1_KT",
    202: "Q4_0_R8",
    206: "Q5_0_R4",
    208: "Q8_0_R8",
    210: "Q2_K_R4",
    211: "Q3_K_R4",
    212: "Q4_K_R4",
    213: "Q5_K_R4",
    214: "Q6_K_R4",
    216: "IQ2_XXS_R4",
    217: "IQ2_XS_R4",
    218: "IQ3_XXS_R4",
    219: "IQ1_S_R4",
    220: "IQ4_NL_R4",
    221: "IQ3_S_R4",
    222: "IQ2_S_R4",
    223: "IQ4_XS_R8",
    229: "IQ1_M_R4",
    230: "BF16_R16",
    233: "Q6_0_R4",
    335: "IQ2_BN_R4",
    337: "IQ2_K_R4",
    338: "IQ3_K_R4",
    339: "IQ4_K_R4",
    340: "IQ5_K_R4",
    344: "IQ4_KS_R4",
    352: "IQ5_KS_R4",
    353: "MXFP4_R8",
    397: "Q8_K_R16",
    398: "Q8_KV_R8",
    399: "Q8_K_R8",
}
# enum ggml_type (ggml.h) has these as removed; 36 to 38 are used again by microsoft/BitNet's fork.
REMOVED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
BITNET_TYPES = {36: "I2_S", 37: "I8_S", 38: "TL1"}
OLLAMA_MXFP4, GPT_OSS = 4, ("gptoss", "gpt-oss")
"""Ollama's first number of MXFP4 (https://github.com/ollama/ollama/issues/11796), and its models' architectures."""

NO_PLAN = "No plan can be made of it."
PROJECTOR = (
    "is a projector (mmproj), which turns pictures or sound into tokens, and no language model. "
    "Give the language model's file; llama-server takes this one beside it, with --mmproj."
)
IMAGE_MODELS = {
    "aura",
    "cosmos",
    "flux",
    "hidream",
    "hyvid",
    "ltxv",
    "lumina2",
    "pig",
    "qwen_image",
    "sd1",
    "sd3",
    "sdxl",
    "wan",
}
"""Architectures of ComfyUI-GGUF (IMG_ARCH_LIST of its loader.py), and `pig`, which some of its users' files have
(https://github.com/city96/ComfyUI-GGUF/issues/230)."""
SPEECH_MODELS = {"dia", "kokoro", "orpheus", "parler-tts"}
"""Architectures of TTS.cpp."""
VOCODER = "wavtokenizer-dec"
ENCODER = re.compile(r"(?:v|a|mm)\.")
"""Tensors of a picture or sound encoder, in a projector and in a file that holds it beside its language model."""
PIECE = re.compile(
    r"\.(?:gguf[-_.]?)?(?:part[-_.]?(?:\d{1,4}(?:of\d{1,4})?(?![a-z0-9])|[a-z]{1,2}$)|split[-_.][a-z]{1,2}$)", re.I
)
"""Names of files that a tool cut up without regard to their contents: letters that count end the name."""


def other_version(version: int) -> str | None:
    """What a GGUF of this version is, if it is whole; None for a version that can only be damage."""
    turned = int.from_bytes(version.to_bytes(4, "little"), "big")
    if 1 <= turned <= MOST_VERSIONS and version > MOST_VERSIONS:
        return (
            f"a big-endian GGUF of version {turned}, made for a machine such as IBM Z. Neither this library nor "
            "llama.cpp on a usual processor reads it. Take the little-endian file, or turn it round with "
            "gguf-py: python -m gguf.scripts.gguf_convert_endian FILE little."
        )
    if version == 1:
        return (
            "a GGUF of version 1, which was used for a few days of August 2023. llama.cpp no longer reads it. "
            "Take a newer file of the same model, or convert it again from the original weights."
        )
    if NEWEST_VERSION < version <= MOST_VERSIONS:
        return (
            f"a GGUF of version {version}, newer than version {NEWEST_VERSION}, which this library reads. "
            "Update this library and llama.cpp."
        )
    return None


def other_type(number: int, architecture: Any) -> str | None:
    """What a tensor type is that ggml does not have, and what to do; None for a number that can only be damage."""
    if number == OLLAMA_MXFP4 and architecture in GPT_OSS:
        return (
            "MXFP4 under the number that Ollama gave it at first. Only Ollama reads this file. "
            "For llama.cpp take a GGUF of gpt-oss from Hugging Face, such as ggml-org's."
        )
    if number in BITNET_TYPES and str(architecture).startswith("bitnet"):
        return (
            f"{BITNET_TYPES[number]} of Microsoft's BitNet. Run it with bitnet.cpp: llama.cpp refuses it. "
            "For llama.cpp take a file in TQ1_0 or TQ2_0."
        )
    if number in REMOVED_TYPES:
        return f"{REMOVED_TYPES[number]}, which llama.cpp has removed. {_instead(number)}"
    if number in IK_TYPES:
        return (
            f"{IK_TYPES[number]} of the fork ik_llama.cpp. Run it there: llama.cpp does not know the type. "
            f"{NO_PLAN} For llama.cpp take another quantization of the model."
        )
    if number <= MOST_NEW_TYPES:
        return (
            "not known to this library: it is newer, or of a fork of llama.cpp. Update this library, or take another "
            "quantization of the model."
        )
    return None


def _instead(number: int) -> str:
    """What else a removed type's number may mean, and which file to take."""
    if number == OLLAMA_MXFP4:
        return "In Ollama's files it may be MXFP4. Take a newer file of the same model, from Hugging Face."
    if number < min(BITNET_TYPES):
        return "Take a file of the same model in Q4_0, which llama.cpp repacks by itself, or in a newer type."
    return (
        f"Microsoft's BitNet uses the number for {BITNET_TYPES[number]}, which bitnet.cpp runs. For llama.cpp take a "
        "file of the same model in another type."
    )


def other_kind(metadata: Mapping[str, Any]) -> str | None:
    """What a sound GGUF is that is no language model, and what to do; None where it may be one."""
    kind, architecture = metadata.get("general.type"), metadata.get("general.architecture")
    if kind == IMATRIX:
        return "is an importance matrix, not a model. Give it to `quantize` as `imatrix`."
    if kind == "adapter" or "adapter.type" in metadata:
        return (
            f"is a LoRA adapter for a model of the architecture {architecture!r}, and no model. Give the model's own "
            "file; llama-server takes this one beside it, with --lora, and its bytes come on top of the plan."
        )
    if kind in ("mmproj", "projector") or architecture == "clip":  # the second is Ollama's word (server/create.go)
        return PROJECTOR
    if architecture == "controlvector":
        return (
            "is a control vector, which changes a model's answers, and no model. Give the model's own file; "
            "llama-server takes this one beside it, with --control-vector."
        )
    if architecture in IMAGE_MODELS:
        return (
            f"is a model of images, video or sound ({architecture}), not a language model. stable-diffusion.cpp or "
            f"ComfyUI runs it, llama.cpp does not. {NO_PLAN}"
        )
    if architecture in SPEECH_MODELS:
        return (
            f"is a speech model ({architecture}), not a language model. TTS.cpp or koboldcpp runs it, llama.cpp does "
            f"not. {NO_PLAN}"
        )
    if architecture == VOCODER:
        return (
            "is a vocoder, which makes sound of a speech model's tokens, and no language model. Give the speech "
            "model's own file; llama-tts takes this one beside it, with --model-vocoder."
        )
    if not isinstance(architecture, str):
        return (
            "has no general.architecture, so it is no model that llama.cpp loads. It may belong to another program, "
            "such as stable-diffusion.cpp. Give the file of a language model."
        )
    return None


def piece_hint(name: str) -> str:
    """What to do with a file that is one of several pieces, by its name; "" for another name."""
    if not PIECE.search(name):
        return ""
    return (
        " By its name it is one piece of a file that was cut up: join the pieces in their order, with cat or copy /b."
    )
