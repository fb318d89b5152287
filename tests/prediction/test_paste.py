"""A plan as lines to paste: what each program needs, what it cannot do, and what stands in when the plan is too big."""

import subprocess
import sys
from dataclasses import replace

import pytest
from fakes import CARD, made_plan

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.options.lines import programs_for
from inferlab.options.lines.base import is_default
from inferlab.options.names import options, program_named, programs
from inferlab.prediction.fit import Answer, Fit
from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.paste import Pasted, above_trained, lines_for
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

ASKED = Settings(n_ctx=8192, type_k="q8_0", type_v="q8_0")
NONE = Answer("the largest n_ctx with these layers", None, None, "Not even n_ctx=256: gpu0 is too small.")
FEWER = Answer("the most layers with this n_ctx", 2, MIB, "", ASKED.but(n_gpu_layers=2))
SHORTER = Answer("the largest n_ctx with these layers", 4096, MIB, "", ASKED.but(n_ctx=4096))
ON_HOST = Answer("the most layers with this n_ctx", 0, MIB, "", ASKED.but(n_gpu_layers=0))


def fitted(settings=ASKED, room=MIB * 100, layers=NONE, context=NONE, **changes) -> Fit:
    """A plan of two blocks and an output layer on one card with so much room, and what would fit there."""
    return Fit(made_plan(settings=settings, **changes), {"gpu0": room}, 0, context, layers, NONE)


def lines(program: str, found: Fit | None = None) -> list[str]:
    """Every line that is pasted, in one list."""
    return [line for part in lines_for(found or fitted(), program, "m.gguf").parts for line in part.text.splitlines()]


def test_a_plan_is_one_command_of_llama_server():
    """Context, counted layers, cache types, flash attention for them, one slot, and the port that is the default."""
    assert lines("llama-server") == [
        "llama-server -m m.gguf -c 8192 -ngl 3 -fa on -ctk q8_0 -ctv q8_0 -np 1 --port 8080"
    ]


def test_what_llama_server_does_by_itself_is_not_written():
    """Full precision, automatic flash attention and the usual batches are its defaults."""
    assert lines("llama-server", fitted(Settings(n_ctx=512))) == [
        "llama-server -m m.gguf -c 512 -ngl 3 -np 1 --port 8080"
    ]


def test_a_batch_as_large_as_the_context_is_not_written():
    """llama.cpp cuts batches to the context by itself; a smaller micro-batch that was asked for stays."""
    cut = Settings(n_ctx=256, n_batch=256, n_ubatch=256)
    assert lines("llama-server", fitted(cut)) == ["llama-server -m m.gguf -c 256 -ngl 3 -np 1 --port 8080"]
    assert " -ub 128 -np " in lines("llama-server", fitted(cut.but(n_ubatch=128)))[0]
    assert "-b 128 " in lines("llama-server", fitted(Settings(n_ctx=8192, n_batch=128)))[0]


def test_switches_and_shares_reach_llama_server():
    """What is off has a switch of its own; shares and devices of one machine are written too."""
    asked = Settings(n_ctx=512, offload_kqv=False, tensor_split=(3, 1), devices=("CUDA0", "CUDA1"), n_ubatch=128)
    assert lines("llama-server", fitted(asked))[0].split(" -ngl 3 ")[1] == (
        "-ub 128 -np 1 -nkvo -ts 3,1 -dev CUDA0,CUDA1 --port 8080"
    )


def test_a_chat_of_llama_cli_has_the_flags_of_llama_server():
    """But for the port and for the slots, of which it has one by itself; a plan with more is said."""
    assert lines("llama-cli") == ["llama-cli -m m.gguf -c 8192 -ngl 3 -fa on -ctk q8_0 -ctv q8_0"]
    several = fitted(Settings(n_ctx=512, n_seq_max=4, kv_unified=True, offload_kqv=False, devices=("CUDA0",)))
    assert lines("llama-cli", several) == [
        "# llama-cli chats in one sequence; the plan has 4",
        "llama-cli -m m.gguf -c 512 -ngl 3 -nkvo -dev CUDA0",
    ]


def test_a_path_with_a_space_stays_one_word():
    """A shell takes the path as one argument."""
    assert "-m '/a b/m.gguf' " in lines_for(fitted(), "llama-server", "/a b/m.gguf").parts[0].text


def test_a_plan_is_a_modelfile_and_an_environment_of_ollama():
    """Parameters are in the file; flash attention and the one cache type are variables of the server."""
    file, server, terminal = lines_for(fitted(), "ollama", "m.gguf").parts
    assert file.text.splitlines() == [
        "FROM ./m.gguf",
        "PARAMETER num_ctx 8192",
        "PARAMETER num_gpu 3",
        "PARAMETER num_batch 512",
    ]
    assert server.text.splitlines() == [
        "export OLLAMA_FLASH_ATTENTION=1",
        "export OLLAMA_KV_CACHE_TYPE=q8_0",
        "ollama serve",
    ]
    assert terminal.text.startswith("ollama create ")
    assert "Modelfile" in file.where
    assert server.where.startswith("In the terminal of the server, before it starts")
    assert terminal.where == "In another terminal"


def test_a_variable_is_set_otherwise_on_windows():
    """Its two shells do not know `export`; the place of the lines has the word of each."""
    server = lines_for(fitted(), "ollama", "m.gguf").parts[1]
    assert "on Windows write $env:NAME='value' in PowerShell, or set NAME=value in cmd" in server.where


def test_ollama_has_one_type_for_keys_and_values():
    """Two types become the smaller one, with flash attention for it, and a comment says so."""
    mixed = lines("ollama", fitted(Settings(n_ctx=512, type_k="q8_0")))
    assert {"export OLLAMA_KV_CACHE_TYPE=q8_0", "export OLLAMA_FLASH_ATTENTION=1"} <= set(mixed)
    assert (
        "# Ollama has one type for keys and values; the plan has q8_0 and f16, these lines have q8_0 for both" in mixed
    )
    without = lines("ollama", fitted(Settings(n_ctx=512, type_k="q8_0", flash_attn="off")))
    assert [line for line in without if line.startswith("export")] == ["export OLLAMA_FLASH_ATTENTION=0"]
    assert any(line.endswith("these lines have f16 for both") for line in without)


def test_ollama_counts_the_context_of_one_request():
    """It multiplies num_ctx by the requests side by side, where a plan has all cells."""
    several = lines("ollama", fitted(Settings(n_ctx=8192, n_seq_max=4)))
    assert {"PARAMETER num_ctx 2048", "export OLLAMA_NUM_PARALLEL=4"} <= set(several)


def test_what_ollama_lacks_reaches_its_llama_server_or_is_said():
    """A variable of llama-server is inherited; what has none is a comment, never silence."""
    found = lines("ollama", fitted(Settings(n_ctx=512, offload_kqv=False, op_offload=False, devices=("CUDA0",))))
    assert "export LLAMA_ARG_KV_OFFLOAD=off" in found
    assert "# op_offload (large host operations on the GPU) cannot be set to off in Ollama" in found
    assert "# devices (devices to use) cannot be set to CUDA0 in Ollama" in found


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("llama-server", "-sm tensor -ts 3,1"),
        ("llama-cli", "-sm tensor -ts 3,1"),
        ("llama-cpp-python", "split_mode=3,  # tensor"),
        ("ollama", "# split_mode (several GPUs) cannot be set to tensor in Ollama"),
        ("lmstudio", "# split_mode (several GPUs) cannot be set to tensor in LM Studio"),
    ],
)
def test_matrices_shared_by_cards_are_said_where_a_program_can(program, told):
    """A flag, a number of llama.cpp's enum, or a comment where there is no such setting."""
    asked = Settings(n_ctx=512, flash_attn="on", split_mode="tensor", tensor_split=(3, 1))
    assert any(told in line for line in lines(program, fitted(asked)))


def test_one_gpu_alone_is_main_gpu_in_ollama():
    """Its main_gpu also turns splitting off, so that split_mode needs no line."""
    assert "PARAMETER main_gpu 1" in lines("ollama", fitted(Settings(n_ctx=512, split_mode="none", main_gpu=1)))


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


def test_what_memory_depends_on_is_always_said_to_lm_studio():
    """It keeps settings for each model, so that a default of its schema may not be what is set there."""
    found = lines("lmstudio", fitted(Settings(n_ctx=512, n_seq_max=4, kv_unified=True, flash_attn="off")))
    assert {"Flash Attention: off", "K Cache Quantization Type: off (f16)", "Unified KV Cache: on"} <= set(found)
    assert found[-1].endswith(" --parallel 4")


@pytest.mark.parametrize(("n_layers", "share"), [(0, "off"), (1, "0.33"), (2, "0.66"), (3, "max"), (40, "max")])
def test_layers_are_a_share_in_lm_studio(n_layers, share):
    """Rounded down, so that no more is on the card than was planned."""
    assert f" --gpu {share} " in lines("lmstudio", fitted(ASKED.but(n_gpu_layers=n_layers)))[-1]


def test_lm_studio_counts_the_context_by_its_pool():
    """One pool has all cells; without it each prediction has a context of its own."""
    apart, shared = (
        lines("lmstudio", fitted(Settings(n_ctx=8192, n_seq_max=2, kv_unified=one))) for one in (False, True)
    )
    assert "Unified KV Cache: off" in apart
    assert " --context-length 4096 " in apart[-1]
    assert " --context-length 8192 " in shared[-1]


def test_a_cache_type_that_lm_studio_does_not_offer_is_said():
    """bf16 is no choice of its interface."""
    found = lines("lmstudio", fitted(Settings(n_ctx=512, type_k="bf16", type_v="bf16")))
    assert "# type_k (type of the keys) cannot be set to bf16 in LM Studio" in found


def test_a_plan_is_a_call_of_llama_cpp_python():
    """Types are ggml's numbers; what equals the class's own default is left out."""
    assert lines("llama-cpp-python") == [
        "from llama_cpp import Llama",
        "",
        "llm = Llama(",
        "    model_path='m.gguf',",
        "    n_ctx=8192,",
        "    n_gpu_layers=3,",
        "    flash_attn=True,",
        "    type_k=8,  # q8_0",
        "    type_v=8,  # q8_0",
        "    n_batch=2048,",
        ")",
    ]


def test_what_the_class_cannot_do_is_a_comment_in_its_call():
    """More than one sequence, and devices by name."""
    found = lines("llama-cpp-python", fitted(Settings(n_ctx=512, n_seq_max=2, devices=("CUDA0",), tensor_split=(3, 1))))
    assert "    # kv_unified (one pool of cells for all sequences) cannot be set to off in llama-cpp-python" in found
    assert "    # llama-cpp-python computes one sequence; the plan has 2" in found
    assert "    # devices (devices to use) cannot be set to CUDA0 in llama-cpp-python" in found
    assert "    tensor_split=[3, 1]," in found


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
    plain = lab.fit(lab.tiny_model(), asked)
    code = (
        lines_for(plain, "llama-cpp-python", lab.tiny_model()).parts[0].text.replace("\n)", "\n    verbose=False,\n)")
    )
    probe = "; print(llm.n_ctx(), llm.context_params.type_k, llm.context_params.n_ubatch, llm.model_params.split_mode)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{probe[2:]}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["256", "8", "64", "0"]


def test_a_plan_without_a_gpu_asks_for_no_layer_there():
    """Nothing was planned on a card, so nothing is asked for."""
    found = fitted(devices={"host": DeviceBytes(MIB, MIB, MIB, 0)})
    assert " -ngl 0 " in lines("llama-server", found)[0]
    assert "PARAMETER num_gpu 0" in lines("ollama", found)


def test_a_windowed_model_keeps_what_was_planned():
    """Its full cache has a switch of llama-server, which leaves it out by itself; others have no such switch."""
    found = fitted(model=replace(CARD, architecture="gemma3"))
    assert " --swa-full " in lines("llama-server", found)[0]
    assert "export LLAMA_ARG_SWA_FULL=on" in lines("ollama", found)
    assert " --swa-full" not in lines("llama-server")[0]


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
    found = replace(fitted(layers=replace(NONE, reason="Not even n_gpu_layers=0.")), reserve_bytes=GIB)
    pasted = lines_for(found, "ollama")
    assert (pasted.settings, pasted.parts) == (None, ())
    assert pasted.text == (
        "Nothing that was tried fits, so there are no lines to paste. Not even n_ctx=256: gpu0 is too small. Not even "
        "n_gpu_layers=0. Plan with a smaller --reserve, `--devices none` (the card unused), or weights of a smaller "
        "type."
    )


def test_weights_that_are_too_large_for_all_devices_are_said():
    """Neither a shorter context nor a smaller reserve helps there."""
    found = replace(fitted(room=MIB), free_bytes={"gpu0": MIB, "host": MIB})
    assert lines_for(found, "ollama").text.endswith(
        "The weights alone are too large: plan with weights of a smaller type, or with a smaller model."
    )


def test_a_smaller_cache_type_that_fits_is_said():
    """Beside the fewer layers; where nothing else fits, the lines have it."""
    smaller = Answer("the KV cache type", "q4_0", MIB, "", ASKED.but(type_k="q4_0", type_v="q4_0"))
    beside = replace(fitted(room=MIB, layers=FEWER), cache_type=smaller)
    assert (
        lines_for(beside, "ollama")
        .notes[0]
        .endswith(
            " This would fit too: a KV cache of type q4_0 (type_k and type_v), "
            "with the context and the layers you asked for."
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
    found = replace(fitted(room=MIB, context=SHORTER), free_bytes={SHARED: GIB + MIB}, reserve_bytes=GIB)
    assert "They use all of the shared memory but the 1.00 GiB kept free." in lines_for(found, "ollama").notes[0]
    roomy = replace(found, largest_n_ctx=replace(SHORTER, margin_bytes=GIB))
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


EXPERTS = Answer("experts", 35, MIB, "", ASKED.but(n_cpu_moe=35))
NO_ROOM = Answer("experts", None, MIB, "", ASKED.but(cpu_moe=True, n_gpu_layers=2))


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
    """Where a program can move experts, its lines have them in RAM, and fewer layers are named as another way."""
    pasted = lines_for(replace(fitted(room=MIB, layers=FEWER), expert_layers=EXPERTS), program)
    assert line in pasted.text
    assert "the experts of 35 layers in RAM (n_cpu_moe=35) and all else on the card. This would fit" in pasted.notes[0]


def test_a_program_that_moves_no_experts_gets_fewer_layers():
    """llama-cpp-python's class has no such argument, and all layers would not fit."""
    pasted = lines_for(replace(fitted(room=MIB, layers=FEWER), expert_layers=EXPERTS), "llama-cpp-python")
    assert "n_gpu_layers=2," in pasted.text
    assert "n_cpu_moe" not in pasted.text


def test_experts_of_all_layers_and_fewer_layers_may_be_needed():
    """As a switch where a program has one, as a number of layers where it has that."""
    found = replace(fitted(room=MIB, layers=FEWER), expert_layers=NO_ROOM)
    assert "-ngl 2 " in lines("llama-server", found)[0]
    assert " -cmoe " in lines("llama-server", found)[0]
    assert "export LLAMA_ARG_CPU_MOE=on" in lines("ollama", found)
    assert "Number of layers for which to force MoE weights onto CPU: 2" in lines("lmstudio", found)


def test_overrides_by_name_are_one_quoted_list():
    """As -ot takes them, safe for a shell; a program without them says so."""
    found = fitted(ASKED.but(override_tensor=(r"blk\.0\.ffn=CPU", "attn=CUDA0")))
    assert r"-ot 'blk\.0\.ffn=CPU,attn=CUDA0'" in lines("llama-server", found)[0]
    assert r"export LLAMA_ARG_OVERRIDE_TENSOR='blk\.0\.ffn=CPU,attn=CUDA0'" in lines("ollama", found)
    comment = "# override_tensor (memory of single tensors, found by their names) cannot"
    assert comment in lines_for(found, "lmstudio").text


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


def test_one_batch_size_of_ollama_is_said_where_two_were_asked_for():
    """The usual two are left alone: nobody asked for them."""
    said = "# Ollama has one batch size; the plan has n_batch 1024 and n_ubatch 256, these lines have 256 for both"
    assert said in lines("ollama", fitted(Settings(n_ctx=8192, n_batch=1024, n_ubatch=256)))
    assert "one batch size" not in "".join(lines("ollama"))


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


def test_lines_are_a_value_of_their_own():
    """Equal requests give equal lines, which a page can compare."""
    assert lines_for(fitted(), "ollama") == lines_for(fitted(), "ollama")
    assert isinstance(lines_for(fitted(), "ollama"), Pasted)
