"""`inferlab plan` as owners of a machine ask it, with models and cards in their spelling."""

from __future__ import annotations

import pytest

from inferlab import cli

ASKED = [
    ("Qwen3.6 27B", "3090", "-c 64k", "Qwen3.6 27B shape, Q4_K_M, on GeForce RTX 3090, 24 GiB: n_ctx 65,536"),
    ("gpt-oss:20b", "MacBook Pro M2 Pro 16GB", "", "gpt-oss 20B shape, MXFP4_MOE, on Apple M2 Pro, 16 GiB"),
    ("gptoss 120b", "Ryzen AI Max 395 128GB", "-c 0", "gpt-oss 120B shape, MXFP4_MOE, on Ryzen AI Max+ 395, 128 GiB"),
    ("glm 4.5 air", "4090", "--ram 128GB", "128.00 GiB of RAM"),
    ("Qwen 3 32B", "2x3060", "--type q4_k_m", "on 2 x GeForce RTX 3060 12GB, 12 GiB: n_ctx 4,096"),
    ("Qwen3-8B-Instruct Q8_0", "3090,3060", "", "Qwen3 8B shape, Q8_0, on GeForce RTX 3090, 24 GiB and GeForce"),
    ("llama4 scout", "3090", "--cpu-moe --ram 64G", "is no file here and is taken as the known model llama-4-scout."),
    ("Devstral Small 2 24B fp16", "5060 Ti 16GB", "", "Devstral Small 2 24B shape, F16, on GeForce RTX 5060 Ti"),
    ("gemma-3-27b-it", "MI50 32GB", "--type fp16", "Gemma 3 27B shape, F16, on Instinct MI50 32GB"),
    ("mixtral 8x7b", "RX7900XTX", "", "It fits with -ncmoe "),
    ("Llama-3.1-8B", "GTX 1660 6GB", "", "It fits with -c "),
    ("qwen3-8b", "3060", "-c 128k", "The model was trained for 40,960 tokens"),
]
REFUSED = [
    ("gemma 4", "3060", "Did you mean gemma-4-"),
    ("deepseek-r1:8b", "3060", "Did you mean deepseek-r1-"),
    ("deepseek r1 70b", "2x3090", "Did you mean deepseek-r1-distill-llama-70b?"),
    ("mistral large", "3090", "Did you mean mistral-large-3"),
    ("falcon 7b", "3090", "Did you mean falcon-h1-7b?"),
    ("kimi k2 thinking", "3090", "kimi-k2"),
    ("qwen3-8b", "16x 3090", "at most 15 devices"),
    ("qwne3.6 27b", "3060", "Did you mean qwen3.6-27b"),
    ("models/mine.gguf", "3060", "models/mine.gguf does not exist."),
    ("qwen3-8b", "3060 7GB", "or give --vram 7GiB."),
    ("qwen3-8b", "2x M4 16GB", "Name cards of one maker with memory of their own."),
]


@pytest.fixture(autouse=True)
def nothing_of_ollama(monkeypatch, tmp_path):
    """No model of Ollama's, whatever this machine has."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))


@pytest.mark.parametrize(("model", "card", "options", "said"), ASKED)
def test_a_question_is_answered_at_its_first_spelling(capsys, model, card, options, said):
    """The answer names the model with its type and the card that were meant, and says what would fit."""
    assert cli.main(["plan", model, "--card", card, "--no-simulation", *options.split()]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert "fits: " in shown.partition("weights")[0]


@pytest.mark.parametrize(("model", "card", "said"), REFUSED)
def test_what_can_mean_several_is_not_guessed(capsys, model, card, said):
    """The names that are meant are told, and nothing is told of names where a file is missing."""
    assert cli.main(["plan", model, "--card", card]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert ("Such names" in told) is False
