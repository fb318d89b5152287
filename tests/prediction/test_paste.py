"""A plan as lines to paste: what each program needs, what it cannot do, and what stands in when the plan is too big."""

import subprocess
import sys
from dataclasses import replace

import pytest
from fakes import made_plan

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.options.lines import programs_for
from inferlab.options.lines.base import is_default
from inferlab.options.names import options, program_named, programs
from inferlab.prediction.fit import Fit
from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.paste import above_trained, lines_for, path_for
from inferlab.prediction.search import SettingThatFits
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

ASKED = Settings(n_ctx=8192, type_k="q8_0", type_v="q8_0")
NONE = SettingThatFits("the largest n_ctx with these layers", None, None, "Not even n_ctx=256: gpu0 is too small.")
FEWER = SettingThatFits("the most layers with this n_ctx", 2, MIB, "", ASKED.but(n_gpu_layers=2))
SHORTER = SettingThatFits("the largest n_ctx with these layers", 4096, MIB, "", ASKED.but(n_ctx=4096))
ON_HOST = SettingThatFits("the most layers with this n_ctx", 0, MIB, "", ASKED.but(n_gpu_layers=0))


def fitted(settings=ASKED, room=MIB * 100, layers=NONE, context=NONE, **changes) -> Fit:
    """A plan of two blocks and an output layer on one card with so much room, and what would fit there."""
    return Fit(made_plan(settings=settings, **changes), {"gpu0": room}, 0, context, layers, NONE)


def lines(program: str, fit: Fit | None = None) -> list[str]:
    """Every line that is pasted, in one list."""
    return [line for part in lines_for(fit or fitted(), program, "m.gguf").parts for line in part.text.splitlines()]


CUT = Settings(n_ctx=256, n_batch=256, n_ubatch=256)
FOUR_SLOTS = Settings(n_ctx=512, n_seq_max=4, kv_unified=True, offload_kqv=False, devices=("CUDA0",))
TENSORS_SHARED = Settings(n_ctx=512, flash_attn="on", split_mode="tensor", tensor_split=(3, 1))


@pytest.mark.parametrize(
    ("program", "asked", "written"),
    [
        ("llama-server", ASKED, "llama-server -m m.gguf -c 8192 -ngl 3 -fa on -ctk q8_0 -ctv q8_0 -np 1 --port 8080"),
        ("llama-server", Settings(n_ctx=512), "llama-server -m m.gguf -c 512 -ngl 3 -np 1 --port 8080"),
        ("llama-server", CUT, "llama-server -m m.gguf -c 256 -ngl 3 -np 1 --port 8080"),
        ("llama-cli", ASKED, "llama-cli -m m.gguf -c 8192 -ngl 3 -fa on -ctk q8_0 -ctv q8_0"),
        (
            "llama-cli",
            FOUR_SLOTS,
            "# llama-cli chats in one sequence; the plan has 4\nllama-cli -m m.gguf -c 512 -ngl 3 -nkvo -dev CUDA0",
        ),
        (
            "llama-cpp-python",
            ASKED,
            "from llama_cpp import Llama\n\nllm = Llama(\n    model_path='m.gguf',\n    n_ctx=8192,"
            "\n    n_gpu_layers=3,\n    flash_attn=True,"
            "\n    type_k=8,  # q8_0\n    type_v=8,  # q8_0\n    n_batch=2048,\n)",
        ),
    ],
)
def test_a_plan_is_exactly_these_lines(program, asked, written):
    """What a program does by itself is left out, such as batches that llama.cpp cuts to the context."""
    assert lines(program, fitted(asked)) == written.splitlines()


@pytest.mark.parametrize(
    ("program", "asked", "line"),
    [
        ("llama-server", CUT.but(n_ubatch=128), " -ub 128 -np "),
        ("llama-server", Settings(n_ctx=8192, n_batch=128), "-b 128 "),
        (
            "llama-server",
            Settings(n_ctx=512, offload_kqv=False, tensor_split=(3, 1), devices=("CUDA0", "CUDA1"), n_ubatch=128),
            " -ngl 3 -ub 128 -np 1 -nkvo -ts 3,1 -dev CUDA0,CUDA1 --port 8080",
        ),
        ("llama-server", TENSORS_SHARED, "-sm tensor -ts 3,1"),
        ("llama-cli", TENSORS_SHARED, "-sm tensor -ts 3,1"),
        ("llama-cpp-python", TENSORS_SHARED, "split_mode=3,  # tensor"),
        ("ollama", TENSORS_SHARED, "# split_mode (several GPUs) cannot be set to tensor in Ollama"),
        ("lmstudio", TENSORS_SHARED, "# split_mode (several GPUs) cannot be set to tensor in LM Studio"),
        ("ollama", Settings(n_ctx=512, type_k="q8_0"), "export OLLAMA_KV_CACHE_TYPE=q8_0"),
        ("ollama", Settings(n_ctx=512, type_k="q8_0"), "export OLLAMA_FLASH_ATTENTION=1"),
        (
            "ollama",
            Settings(n_ctx=512, type_k="q8_0"),
            "# Ollama has one type for keys and values; the plan has q8_0 and f16, these lines have q8_0 for both",
        ),
        ("ollama", Settings(n_ctx=512, type_k="q8_0", flash_attn="off"), "these lines have f16 for both"),
        ("ollama", Settings(n_ctx=8192, n_seq_max=4), "PARAMETER num_ctx 2048"),
        ("ollama", Settings(n_ctx=8192, n_seq_max=4), "export OLLAMA_NUM_PARALLEL=4"),
        ("ollama", FOUR_SLOTS, "export LLAMA_ARG_KV_OFFLOAD=off"),
        (
            "ollama",
            Settings(n_ctx=512, op_offload=False),
            "# op_offload (large host operations on the GPU) cannot be set to off in Ollama",
        ),
        ("ollama", FOUR_SLOTS, "# devices (devices to use) cannot be set to CUDA0 in Ollama"),
        ("ollama", Settings(n_ctx=512, split_mode="none", main_gpu=1), "PARAMETER main_gpu 1"),
        (
            "ollama",
            Settings(n_ctx=8192, n_batch=1024, n_ubatch=256),
            "# Ollama has one batch size; the plan has n_batch 1024 and n_ubatch 256, these lines have 256 for both",
        ),
        ("lmstudio", Settings(n_ctx=512, flash_attn="off"), "Flash Attention: off"),
        ("lmstudio", Settings(n_ctx=512), "K Cache Quantization Type: off (f16)"),
        ("lmstudio", FOUR_SLOTS, "Unified KV Cache: on"),
        ("lmstudio", FOUR_SLOTS, " --parallel 4"),
        (
            "lmstudio",
            Settings(n_ctx=512, type_k="bf16", type_v="bf16"),
            "# type_k (type of the keys) cannot be set to bf16 in LM Studio",
        ),
        ("lmstudio", Settings(n_ctx=8192, n_seq_max=2), "Unified KV Cache: off"),
        ("lmstudio", Settings(n_ctx=8192, n_seq_max=2), " --context-length 4096 "),
        ("lmstudio", Settings(n_ctx=8192, n_seq_max=2, kv_unified=True), " --context-length 8192 "),
        ("lmstudio", ASKED.but(n_gpu_layers=0), " --gpu off "),
        ("lmstudio", ASKED.but(n_gpu_layers=1), " --gpu 0.33 "),
        ("lmstudio", ASKED.but(n_gpu_layers=2), " --gpu 0.66 "),
        ("lmstudio", ASKED.but(n_gpu_layers=40), " --gpu max "),
        (
            "llama-cpp-python",
            Settings(n_ctx=512, n_seq_max=2),
            "# kv_unified (one pool of cells for all sequences) cannot be set to off in llama-cpp-python",
        ),
        (
            "llama-cpp-python",
            Settings(n_ctx=512, n_seq_max=2),
            "    # llama-cpp-python computes one sequence; the plan has 2",
        ),
        ("llama-cpp-python", FOUR_SLOTS, "# devices (devices to use) cannot be set to CUDA0 in llama-cpp-python"),
        ("llama-cpp-python", Settings(n_ctx=512, tensor_split=(3, 1)), "    tensor_split=[3, 1],"),
    ],
)
def test_a_setting_is_a_line_of_each_program(program, asked, line):
    """In its own words, as its share, its count of one request, its one type for two; or a comment, never silence."""
    assert any(line in written for written in lines(program, fitted(asked)))


def test_ollama_turns_flash_attention_off_without_a_cache_type():
    """A quantized cache needs it, and the batches that nobody asked for are not mentioned."""
    without = lines("ollama", fitted(Settings(n_ctx=512, type_k="q8_0", flash_attn="off")))
    assert [line for line in without if line.startswith("export")] == ["export OLLAMA_FLASH_ATTENTION=0"]
    assert "one batch size" not in "".join(lines("ollama"))


def test_a_path_with_a_space_stays_one_word():
    """A shell takes the path as one argument."""
    assert "-m '/a b/m.gguf' " in lines_for(fitted(), "llama-server", "/a b/m.gguf").parts[0].text


def test_a_plan_is_a_modelfile_and_an_environment_of_ollama():
    """Parameters are in the file; flash attention and the one cache type are variables of the server.

    The two shells of Windows do not know `export`, so the place of the lines has the word of each.
    """
    file, server, terminal = lines_for(fitted(), "ollama", "m.gguf").parts
    assert file.text == "FROM ./m.gguf\nPARAMETER num_ctx 8192\nPARAMETER num_gpu 3\nPARAMETER num_batch 512"
    assert server.text == "export OLLAMA_FLASH_ATTENTION=1\nexport OLLAMA_KV_CACHE_TYPE=q8_0\nollama serve"
    assert terminal.text.startswith("ollama create ")
    assert "Modelfile" in file.where
    assert server.where.startswith("In the terminal of the server, before it starts")
    assert "on Windows write $env:NAME='value' in PowerShell, or set NAME=value in cmd" in server.where
    assert terminal.where == "In another terminal"


def test_a_plan_is_a_command_and_fields_of_lm_studio():
    """The file first, then its settings, then the load: what `lms load` takes is a flag, the rest a field."""
    imports, fields, terminal = lines_for(fitted(), "lmstudio", "m.gguf").parts
    assert imports.text == "lms import --copy m.gguf"
    assert fields.text.splitlines() == [
        "Automatic Optimize Based on Hardware: off",
        "Flash Attention: on",
        "K Cache Quantization Type: q8_0",
        "V Cache Quantization Type: q8_0",
        "Evaluation Batch Size: 2048",
        "Physical Batch Size: 512",
        "Offload KV Cache to GPU Memory: on",
    ]
    assert terminal.text.splitlines()[-1] == "lms load MODEL_KEY --context-length 8192 --gpu max --parallel 1"


@pytest.mark.engine
def test_the_lines_for_llama_cpp_python_run():
    """They load the embedded model as the plan has it, whatever else is asked for."""
    asked = Settings(
        n_ctx=256,
        n_gpu_layers=0,
        type_k="q8_0",
        type_v="q8_0",
        n_ubatch=64,
        load_mode="none",
        split_mode="none",
        kv_unified=True,
        n_seq_max=2,
    )
    text = lines_for(lab.fit(lab.tiny_model(), asked), "llama-cpp-python", lab.tiny_model()).parts[0].text
    code = text.replace("\n)", "\n    verbose=False,\n)")
    probe = "; print(llm.n_ctx(), llm.context_params.type_k, llm.context_params.n_ubatch, llm.model_params.split_mode)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{probe[2:]}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["256", "8", "64", "0"]


def test_a_plan_without_a_gpu_asks_for_no_layer_there():
    """Nothing was planned on a card, so nothing is asked for."""
    fit = fitted(devices={"host": DeviceBytes(MIB, MIB, MIB, 0)})
    assert " -ngl 0 " in lines("llama-server", fit)[0]
    assert "PARAMETER num_gpu 0" in lines("ollama", fit)


def test_a_windowed_model_keeps_what_was_planned():
    """Windows alone are llama-server's own way, of which llama-cpp-python must be told; the full cache has a switch."""
    fit = replace(fitted(), has_windows=True)
    assert " --swa-full" not in lines("llama-server", fit)[0]
    assert "    swa_full=False," in lines("llama-cpp-python", fit)
    full = replace(fitted(ASKED.but(swa_full=True)), has_windows=True)
    assert " --swa-full " in lines("llama-server", full)[0]
    assert "export LLAMA_ARG_SWA_FULL=on" in lines("ollama", full)
    assert not any("swa_full" in line for line in lines("llama-cpp-python", full))
    assert not any("swa_full" in line for line in lines("llama-cpp-python"))


def test_a_plan_that_does_not_fit_has_the_lines_of_fewer_layers():
    """The context stays; a sentence says what was changed, and what else would fit."""
    pasted = lines_for(fitted(room=MIB, layers=FEWER, context=SHORTER), "llama-server")
    assert pasted.notes[0] == (
        "What you asked for does not fit. These lines have 2 layers on the card (n_gpu_layers=2), the most that fit "
        "with the context you asked for. This would fit too: a context of 4,096 tokens (n_ctx), the longest that fits "
        "with the layers you asked for."
    )
    assert " -c 8192 -ngl 2 " in pasted.parts[0].text
    assert pasted.settings == FEWER.settings


def test_a_shorter_context_comes_before_no_layer_at_all():
    """Unless it were shorter than llama.cpp's own --fit would make it."""
    assert lines_for(fitted(room=MIB, layers=ON_HOST, context=SHORTER), "ollama").settings == SHORTER.settings
    tiny = replace(SHORTER, value=256, settings=ASKED.but(n_ctx=256))
    assert lines_for(fitted(room=MIB, layers=ON_HOST, context=tiny), "ollama").settings == ON_HOST.settings
    assert lines_for(fitted(room=MIB, context=tiny), "ollama").settings == tiny.settings


def test_where_nothing_fits_there_are_no_lines():
    """One paragraph says so, why for both context and layers, and what to try."""
    fit = replace(fitted(layers=replace(NONE, reason="Not even n_gpu_layers=0.")), reserve_bytes=GIB)
    pasted = lines_for(fit, "ollama")
    assert (pasted.settings, pasted.parts) == (None, ())
    assert pasted.text == (
        "Nothing that was tried fits, so there are no lines to paste. Not even n_ctx=256: gpu0 is too small. Not even "
        "n_gpu_layers=0. Try fewer layers on the card, a shorter context, less memory kept free, or weights of a "
        "smaller type."
    )


def test_weights_that_are_too_large_for_all_devices_are_said():
    """Neither a shorter context nor a smaller reserve helps there."""
    fit = replace(fitted(room=MIB), free_bytes={"gpu0": MIB, "host": MIB})
    assert lines_for(fit, "ollama").text.endswith(
        "The weights alone are too large: take weights of a smaller type, or a smaller model."
    )


def test_a_smaller_cache_type_that_fits_is_said():
    """Beside the fewer layers; where nothing else fits, the lines have it."""
    smaller = SettingThatFits("the KV cache type", "q4_0", MIB, "", ASKED.but(type_k="q4_0", type_v="q4_0"))
    beside = replace(fitted(room=MIB, layers=FEWER), cache_type=smaller)
    assert (
        lines_for(beside, "ollama")
        .notes[0]
        .endswith(
            " This would fit too: a KV cache of type q4_0 (type_k and type_v), with the context and the layers "
            "you asked for."
        )
    )
    alone = replace(fitted(room=MIB), cache_type=smaller)
    assert lines_for(alone, "ollama").settings == smaller.settings


def test_no_layer_on_the_card_is_said_in_words():
    """Not as a number of layers that fit, but as what happens to all of them."""
    note = lines_for(fitted(room=MIB, layers=ON_HOST), "ollama").notes[0]
    assert "These lines have no layer on the card (n_gpu_layers=0), and all of them in RAM." in note


def test_lines_that_fill_a_shared_memory_say_so():
    """Its system needs a part of it too; where the lines leave more, nothing is said."""
    fit = replace(fitted(room=MIB, context=SHORTER), free_bytes={SHARED: GIB + MIB}, reserve_bytes=GIB)
    assert "They use all of the shared memory but the 1.00 GiB kept free." in lines_for(fit, "ollama").notes[0]
    roomy = replace(fit, largest_n_ctx=replace(SHORTER, margin_bytes=GIB))
    assert "They use all" not in lines_for(roomy, "ollama").notes[0]
    assert "They use all" not in lines_for(fitted(room=MIB, context=SHORTER), "ollama").notes[0]


def test_a_plan_that_is_not_sure_is_written_as_it_was_asked():
    """With a sentence that says so."""
    pasted = lines_for(fitted(room=None), "llama-server", "m.gguf")
    assert pasted.settings == ASKED
    assert pasted.notes == ("This may not fit, and these lines are the plan as you asked for it.",)


BIG = DeviceBytes(5 * GIB, GIB, None, 0)


def test_ram_that_was_not_compared_is_said():
    """Where the host's memory is unknown and it holds more than a little, by the most that the lines need there."""
    plan = {"devices": {"host": BIG, "gpu0": DeviceBytes()}, "compute_range": {"host": (0, GIB)}}
    said = "RAM was not compared: these lines need up to 7.00 GiB there."
    assert said in lines_for(fitted(**plan), "ollama").notes
    compared = replace(fitted(**plan), free_bytes={"gpu0": 9 * GIB, "host": 9 * GIB})
    assert said not in lines_for(compared, "ollama").notes
    assert "RAM was" not in lines_for(fitted(), "ollama").text


def test_ram_of_fewer_layers_is_that_of_their_own_plan():
    """Not of what was asked for; a compute buffer that their plan leaves open is said."""
    settings = ASKED.but(n_gpu_layers=2)
    held = {"host": DeviceBytes(5 * GIB // 2, 0, None, 0), "gpu0": DeviceBytes(GIB, 0, MIB, 0)}
    fewer = replace(FEWER, plan=made_plan(settings=settings, devices=held))
    pasted = lines_for(fitted(room=MIB, layers=fewer), "ollama")
    assert "RAM was not compared: these lines need up to 2.50 GiB there, and a compute buffer." in pasted.notes


EXPERTS = SettingThatFits("experts", 35, MIB, "", ASKED.but(n_cpu_moe=35))
NO_ROOM = SettingThatFits("experts", None, MIB, "", ASKED.but(cpu_moe=True, n_gpu_layers=2))


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("llama-server", "-ncmoe 35"),
        ("llama-cli", "-ncmoe 35"),
        ("ollama", "export LLAMA_ARG_N_CPU_MOE=35"),
        ("lmstudio", "Number of layers for which to force MoE weights onto CPU: 35"),
    ],
)
def test_experts_leave_the_card_before_layers_do(program, line):
    """Where a program can move experts, its lines have them in RAM, and fewer layers are named as another way.

    llama-cpp-python's class has no such argument, so it gets fewer layers.
    """
    pasted = lines_for(replace(fitted(room=MIB, layers=FEWER), expert_layers=EXPERTS), program)
    assert line in pasted.text
    assert "the experts of 35 layers in RAM (n_cpu_moe=35) and all else on the card. This would fit" in pasted.notes[0]
    without = lines_for(replace(fitted(room=MIB, layers=FEWER), expert_layers=EXPERTS), "llama-cpp-python").text
    assert "n_gpu_layers=2," in without
    assert "n_cpu_moe" not in without


def test_experts_of_all_layers_and_fewer_layers_may_be_needed():
    """As a switch where a program has one, as a number of layers where it has that."""
    fit = replace(fitted(room=MIB, layers=FEWER), expert_layers=NO_ROOM)
    assert "-ngl 2 " in lines("llama-server", fit)[0]
    assert " -cmoe " in lines("llama-server", fit)[0]
    assert "export LLAMA_ARG_CPU_MOE=on" in lines("ollama", fit)
    assert "Number of layers for which to force MoE weights onto CPU: 2" in lines("lmstudio", fit)


def test_overrides_by_name_are_one_quoted_list():
    """As -ot takes them, safe for a shell; a program without them says so."""
    fit = fitted(ASKED.but(override_tensor=(r"blk\.0\.ffn=CPU", "attn=CUDA0")))
    assert r"-ot 'blk\.0\.ffn=CPU,attn=CUDA0'" in lines("llama-server", fit)[0]
    assert r"export LLAMA_ARG_OVERRIDE_TENSOR='blk\.0\.ffn=CPU,attn=CUDA0'" in lines("ollama", fit)
    comment = "# override_tensor (memory of single tensors, found by their names) cannot"
    assert comment in lines_for(fit, "lmstudio").text


def test_a_context_above_the_trained_one_is_said():
    """For each sequence; llama-server caps its slots, and of others nothing is claimed."""
    said = "The model was trained for 4,096 tokens; more are of little use."
    assert said in lines_for(fitted(), "ollama", n_ctx_train=4096).notes
    capped = f"{said} llama-server gives each slot at most 4,096."
    assert capped in lines_for(fitted(), "llama-server", n_ctx_train=4096).notes
    assert "trained" not in lines_for(fitted(ASKED.but(n_seq_max=2)), "llama-server", None, 4096).text


def test_a_context_that_no_model_was_trained_for_is_said():
    """Also where the file does not say what the model was trained for; its usual contexts pass."""
    assert above_trained(Settings(n_ctx=10**9), None).startswith("No model here was trained for so long a context")
    assert above_trained(Settings(n_ctx=10**5), None) == ""


def test_a_page_and_a_terminal_show_the_same_lines():
    """Each part below its place: as a code block, or indented."""
    pasted = lines_for(fitted(), "ollama")
    assert "In a file named Modelfile:\n\n```text\nFROM ./model.gguf\n" in pasted.markdown
    assert "In a file named Modelfile:\n  FROM ./model.gguf\n" in pasted.text
    assert pasted._repr_markdown_() == pasted.markdown
    assert "model.gguf stands for the path of your file." in pasted.notes


def test_an_unknown_program_is_answered_with_the_known_ones():
    """vLLM reads other files, so no plan is written for it."""
    assert programs_for() == ("llama-server", "llama-cli", "llama-cpp-python", "ollama", "lmstudio")
    assert programs_for() == tuple(name for program in programs().values() for name in program.pastes)
    with pytest.raises(InvalidSettings, match=r"No lines can be written for .vllm.[.] There are: llama-server, "):
        lines_for(fitted(), "vllm")


@pytest.mark.parametrize("program", ["llama-cpp-python", "ollama", "lmstudio"])
def test_how_the_file_is_read_is_not_lost_in_silence(program):
    """Direct reads are no setting of the three; pages locked in RAM are one of two of them."""
    direct, locked = (
        "\n".join(lines(program, fitted(Settings(n_ctx=512, load_mode=one)))) for one in ("direct_io", "mlock")
    )
    assert "# load_mode (how the file is read) cannot be set to direct_io in " in direct
    words = {"llama-cpp-python": "use_mlock=True", "lmstudio": "Keep Model in Memory: on"}
    assert words.get(program, "cannot be set to mlock in Ollama") in locked
    assert ("cannot be set to mlock" in locked) == (program == "ollama")


EVERY = Settings(
    n_ctx=768,
    n_batch=96,
    n_ubatch=48,
    n_seq_max=3,
    n_threads=5,
    n_threads_batch=7,
    n_gpu_layers=1,
    main_gpu=11,
    split_mode="none",
    tensor_split=(13, 17),
    devices=("D19",),
    rpc_servers=("h:23",),
    type_k="q4_1",
    type_v="q5_1",
    flash_attn="on",
    offload_kqv=False,
    op_offload=False,
    kv_unified=True,
    load_mode="none",
    use_extra_bufts=False,
    no_host=True,
)
OTHER_WORDS = {
    ("cli", "op_offload"): "--no-op-offload",
    ("cli", "use_extra_bufts"): "--no-repack",
    ("cli", "devices"): "-dev D19",
    ("cli", "rpc_servers"): "--rpc h:23",
    ("cli", "offload_kqv"): "-nkvo",
    ("ollama", "split_mode"): "main_gpu 11",
    ("python", "n_seq_max"): "one sequence",
}
"""Words that stand for a setting, where they are not its name."""


@pytest.mark.parametrize("key", ["cli", "python", "ollama", "lmstudio"])
def test_no_setting_is_dropped_in_silence(key):
    """Each that is not llama.cpp's default has its name, its variable or a comment in the lines of each program."""
    text = "\n".join(lines(programs()[key].pastes[0], fitted(EVERY)))
    changed = [name for name, value in EVERY.to_dict().items() if value != Settings().to_dict()[name]]
    assert len(changed) >= 20
    for name in changed:
        if is_default(name, EVERY.to_dict()[name], key):
            continue
        option = options().get(name)
        words = {name, OTHER_WORDS.get((key, name), name)}
        words |= {*option.names_in(key), option.env, option.lmstudio if key == "lmstudio" else ""} if option else set()
        assert any(word in text for word in words if word), f"{name} is missing in:\n{text}"


def test_a_default_is_recognized_by_its_name_and_its_meaning():
    """None means f16 in the Python class; what has no row is no default."""
    assert is_default("type_k", "f16", "python")
    assert is_default("op_offload", True, "python")
    assert not is_default("flash_attn", "auto", "python")
    assert not is_default("n_ctx", 512, "python")
    assert not is_default("devices", (), "cli")


def test_a_program_is_found_by_any_of_its_names():
    """By key, title with or without a hyphen, and the name for --for."""
    assert (
        program_named("LM-Studio") is program_named("lmstudio") is program_named("LM Studio") is programs()["lmstudio"]
    )
    assert program_named("llama-server") is program_named("llama.cpp") is programs()["cli"]
    assert options()["n_ctx"].names_in("lmstudio") == ("--context-length",)
    with pytest.raises(InvalidSettings, match=r"no program 'koboldcpp'.*There are: llama\.cpp, "):
        program_named("koboldcpp")


def test_a_model_of_ollama_is_pasted_by_its_name_there(tmp_path):
    """Elsewhere as the file that its name stands for; a known model has no file for any program."""
    blob = tmp_path / "sha256-a"
    blob.write_bytes(lab.tiny_model().read_bytes())
    model = lab.read_gguf(blob)
    for name in ("qwen3:8b", "ollama:qwen3:8b"):
        assert path_for("ollama", name, model) == "ollama:qwen3:8b"
        assert path_for("llama-server", name, model) == str(blob)
    assert path_for("ollama", "mistral-7b", lab.shape("mistral-7b")) is None
