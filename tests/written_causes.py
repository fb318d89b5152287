"""Logs of particular causes, written by hand: files that cannot be read, starts that fail, requests that are refused.

Each message follows the source that its rule names; names and numbers are invented. A log without a finding shows
what is no cause: a program that went on, a template that a log only quotes, a client's own text.
"""

from written_logs import (
    CONTEXT_FAILED,
    HEALTHY,
    MODEL,
    NOT_LOADED,
    OLLAMA_START,
    READY,
    SERVER,
    START,
    ollama,
    runner,
)

FILE = "/models/kestrel-9b.gguf"
NOT_LOADED_FILE = NOT_LOADED.replace("/models/x.gguf", FILE)
LISTENING = "srv  llama_server: model loaded\nsrv  llama_server: listening on http://127.0.0.1:8080\n"
"""tools/server/server.cpp:485, 513"""
SERVED = SERVER + HEALTHY + READY


def not_loaded(why):
    """src/llama.cpp:375"""
    return (
        START + f"llama_model_load: error loading model: {why}\nllama_model_load_from_file_impl: failed to load model\n"
    )


def header(why, path=FILE):
    """A header that ggml refuses; src/llama-model-loader.cpp:573"""
    return SERVER + f"gguf_init_from_reader: {why}\n" + NOT_LOADED.replace("/models/x.gguf", path)


def release(task, tokens, truncated):
    """tools/server/server-context.cpp:518"""
    return f"slot      release: id  0 | task {task} | stop processing: n_tokens = {tokens}, truncated = {truncated}\n"


def prompt(task, tokens, n_ctx=4096):
    """tools/server/server-context.cpp:3126"""
    said = f"new prompt, n_ctx_slot = {n_ctx}, n_keep = 0, task.n_tokens = {tokens}"
    return f"slot   operator(): id  0 | task {task} | {said}\n"


def done(path="/v1/chat/completions", status=200):
    return f"srv  log_server_r: done request: POST {path} 127.0.0.1 {status}\n"


def exception(message, code=500):
    """tools/server/server.cpp:79"""
    return (
        f'srv    operator(): got exception: {{"error":{{"code":{code},"message":"{message}","type":"server_error"}}}}\n'
    )


def refused(tokens, limit=4096):
    said = f"request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    return f"srv    send_error: task id = 0, error: {said}\n"


FILES = {
    # ggml/src/gguf.cpp:731; unsloth#3124, llama.cpp#11975
    "type of a newer llama.cpp": (
        header("tensor 'blk.0.ffn_up_exps.weight' has invalid ggml type 39. should be in [0, 39)"),
        ["unknown-tensor-type"],
    ),
    "type of a fork": (
        header("tensor 'blk.3.attn_q.weight' has invalid ggml type 144 (NONE)\ngguf_init: failed to read tensor info"),
        ["unknown-tensor-type"],
    ),
    "type of nobody": (
        header("tensor 'blk.3.attn_q.weight' has invalid ggml type 61 (NONE)"),
        ["unknown-tensor-type"],
    ),
    # ggml.c of 2024
    "unknown type, 2024": (
        START + "gguf_tensor_info_sanitize: invalid type (39)\n" + NOT_LOADED_FILE,
        ["unknown-tensor-type"],
    ),
    # ggml/src/gguf.cpp:741, ggml/src/ggml.c:895
    "removed type": (
        header(
            "tensor 'blk.0.attn_k.weight' of type 31 (TYPE_Q4_0_4_4 REMOVED, use Q4_0 with runtime repacking) has 4096 "
            "elements per row, not a multiple of block size (0)\ngguf_init_from_reader: failed to read tensor info"
        ),
        ["removed-tensor-type"],
    ),
    # Ollama v0.11.0 fs/ggml/type.go:194
    "Ollama's own type": (
        header(
            "tensor 'blk.0.ffn_gate_exps.weight' of type 4 (DEPRECATED) has 2880 elements per row, not a multiple of "
            "block size (0)",
            "/usr/share/ollama/.ollama/models/blobs/sha256-0000",
        ),
        ["removed-tensor-type", "ollamas-file"],
    ),
    # ggml/src/gguf.cpp:616, 774
    "row of a broken file": (
        header(
            "tensor 'blk.0.attn_k.weight' of type 12 (q4_K) has 100 elements per row, not a multiple of block size "
            "(256)\ngguf_init_from_reader: failed to read tensor info"
        ),
        ["damaged-header"],
    ),
    "header cut": (header("failed to read key-value pairs"), ["damaged-header"]),
    "big-endian": (
        header(
            "failed to load model: this GGUF file version 50331648 is extremely large, is there a mismatch between the "
            "host and model endianness?\ngguf_init_from_reader: failed to read header"
        ),
        ["other-endian"],
    ),
    "version 1": (header("GGUFv1 is no longer supported, please use a more up-to-date version"), ["gguf-version"]),
    "version 4": (
        header("this GGUF file is version 4 but this software only supports up to version 3"),
        ["gguf-version"],
    ),
    # ggml/src/gguf.cpp:471; an older one is in CASALIOY#75
    "folder": (header("failed to read magic", "/models/"), ["folder-or-empty"]),
    "folder, Windows": (
        "gguf_init_from_file: failed to open GGUF file 'C:\\models\\' (Permission denied)\n",
        ["missing-file"],
    ),
    "folder or empty": (header("failed to read magic"), ["folder-or-empty"]),
    "folder, 2023": (not_loaded("read error: Is a directory"), ["folder-or-empty"]),
    # src/llama-model-loader.cpp:605-669
    "second part": (
        not_loaded(f"illegal split file idx: 1 (file: {FILE}), model must be loaded with the first split"),
        ["split-file"],
    ),
    "part missing": (
        "gguf_init_from_file: failed to open GGUF file '/models/kestrel-00002-of-00002.gguf' (No such file or "
        "directory)\n"
        + not_loaded("llama_model_loader: failed to load GGUF split from /models/kestrel-00002-of-00002.gguf"),
        ["split-file"],
    ),
    "part renamed": (not_loaded("invalid split file name: /models/kestrel-a.gguf"), ["split-file"]),
    "part of another": (
        not_loaded("invalid split file idx: 2 (file: /models/kestrel-00002-of-00003.gguf), expected 1"),
        ["split-file"],
    ),
    "parts not all": (not_loaded("corrupted model: 500 tensors expected but 420 found"), ["split-file"]),
    "Ollama, part missing": (
        OLLAMA_START + 'Error: split GGUF "kestrel-00001-of-00003.gguf" is missing shard 2\n',
        ["split-file"],
    ),
    # src/llama-model-loader.cpp:281
    "key missing": (
        not_loaded("error loading model hyperparameters: key not found in model: kestrel.attention.head_count"),
        ["missing-key"],
    ),
    # llama.cpp#27349
    "Ollama's own file": (
        SERVER.replace("model.gguf", "/var/lib/ollama/blobs/sha256-0000")
        + not_loaded("done_getting_tensors: wrong number of tensors; expected 900, got 700"),
        ["tensor-count", "ollamas-file"],
    ),
    # src/llama-model-loader.cpp:478; lmstudio-bug-tracker#2398
    "metadata of another length": (
        not_loaded(
            "error loading model hyperparameters: key kestrel.rope.dimension_sections has wrong array length; "
            "expected 4, "
            "got 3"
        ),
        ["metadata-refused"],
    ),
    # ollama server/sched.go:583
    "Ollama, incompatible": (
        OLLAMA_START
        + ollama(
            'msg="NewLlamaServer failed" model=blobs/sha256-0000 error="failed to load model: this model may be '
            'incompatible with your version of Ollama. If you previously pulled this model, try updating it"',
            source="sched.go:455",
        ),
        ["ollama-incompatible"],
    ),
    # lmstudio-bug-tracker#774
    "LM Studio, MLX": (
        "[2026-01-02 03:04:05] [LMSInternal] Error when loading model: ValueError: Model type kestrel not supported.\n",
        ["unknown-architecture"],
    ),
    # src/llama-model-loader.cpp:1159, 1398, 916; 2024: llama.cpp#3917
    "tensor missing": (not_loaded("missing tensor 'blk.7.attn_k.weight'"), ["missing-tensor"]),
    "tensor missing, 2024": (
        not_loaded("create_tensor: tensor 'blk.0.ffn_gate.0.weight' not found"),
        ["missing-tensor"],
    ),
    "tensor of another shape": (
        not_loaded(
            "check_tensor_dims: tensor 'token_embd.weight' has wrong shape; expected  4096, 32000, got  4096, 32064,"
            "     1,     1"
        ),
        ["tensor-shape"],
    ),
    # lmstudio-bug-tracker#77
    "LM Studio, tensors": (
        "[2026-01-02 03:04:05.678] [error] [LMSInternal][Client=LM Studio][Endpoint=loadModel] Error in channel "
        "handler: "
        "Error: llama.cpp error: 'done_getting_tensors: wrong number of tensors; expected 292, got 291'\n",
        ["tensor-count"],
    ),
    # src/llama.cpp:353, src/llama-model.cpp:371
    "projector as model": (not_loaded("unknown model architecture: 'clip'"), ["projector-as-model"]),
    "projector as model, now": (
        not_loaded("CLIP cannot be used as main model, use it with --mmproj instead"),
        ["projector-as-model"],
    ),
    "adapter as model": (
        START
        + "llama_model_loader: - kv   1:                               general.type str              = adapter\n"
        + not_loaded("error loading model hyperparameters: key not found in model: llama.context_length"),
        ["adapter-as-model"],
    ),
    # src/llama-adapter.cpp:207, 213
    "adapter of another model": (
        SERVER
        + HEALTHY.partition("llama_perf")[0]
        + "llama_adapter_lora_init_from_file_ptr: failed to apply lora adapter: model arch and LoRA arch mismatch\n"
        "common_init_: failed to load lora adapter '/models/birds.gguf'\n",
        ["adapter-refused"],
    ),
    # tools/mtmd/mtmd.cpp:605; koboldcpp#1662
    "projector of another model": (
        SERVER + "mtmd_init_from_file: error: mismatch between text model (n_embd = 3584) and mmproj (n_embd = 4096)\n"
        "hint: you may be using wrong mmproj\nsrv    load_model: failed to load multimodal model, "
        "'/models/mmproj.gguf'\n",
        ["mmproj-mismatch"],
    ),
    # llama.cpp#17138
    "projector unknown": (
        SERVER
        + "clip_init: failed to load model '/models/mmproj.gguf': load_hparams: unknown projector type: heron\n\n"
        "mtmd_init_from_file: error: Failed to load CLIP model from /models/mmproj.gguf\n",
        ["unknown-projector"],
    ),
    "projector not loaded": (
        SERVER + "mtmd_init_from_file: error: Failed to load CLIP model from /models/mmproj.gguf\n\n"
        "srv    load_model: failed to load multimodal model, '/models/mmproj.gguf'\n",
        ["projector-not-loaded"],
    ),
    # src/llama-vocab.cpp:2151
    "tokenizer unknown": (
        not_loaded("error loading model vocabulary: unknown tokenizer: 'heron'"),
        ["unknown-tokenizer"],
    ),
    "vocabulary": (not_loaded("error loading model vocabulary: _Map_base::at"), ["unknown-tokenizer"]),
    # ollama server/images.go:1447
    "Ollama, digest": (
        OLLAMA_START + "Error: digest mismatch, file must be downloaded again: want sha256:00, got sha256:11\n",
        ["damaged-data"],
    ),
    # src/llama-model-loader.cpp:1768, src/llama-mmap.cpp:276
    "numbers damaged": (not_loaded("tensor 'blk.0.attn_k.weight' has invalid data"), ["damaged-data"]),
    "disk broken": (not_loaded("read error: Input/output error"), ["read-failed"]),
    # ollama#3010
    "Ollama, no GGUF": (OLLAMA_START + "Error: invalid file magic\n", ["not-gguf"]),
}

STARTS = {
    # common/arg.cpp:827
    "argument unknown": ("error: invalid argument: --draft-max-tokens\n", ["unknown-argument"]),
    "argument replaced": ("error: invalid argument: --no-mmap\n", ["unknown-argument"]),
    "argument, 2024": ("error: unknown argument: --kv-unified\nusage: llama-server [options]\n", ["unknown-argument"]),
    "argument with a long dash": ("error: invalid argument: \N{EN DASH}ngl\n", ["unknown-argument"]),
    "value of a switch": ("error: invalid argument: on\n", ["unknown-argument"]),
    "argument corrected": ("error: invalid argument: --no-mmap\n" + SERVED + LISTENING, []),
    "Ollama, argument": ("Error: unknown flag: --num-ctx\n", ["unknown-argument"]),
    # common/arg.cpp:872; flexllama#15, LLMKube#147
    "flash attention without a value": (
        "error while handling argument \"-fa\": error: unknown value for --flash-attn: '--jinja'\n\n\nusage:\n"
        "-fa,   --flash-attn [on|off|auto]       set Flash Attention use\n",
        ["bad-argument"],
    ),
    "flash attention at the end": (
        'error while handling argument "-fa": expected value for argument\n',
        ["bad-argument"],
    ),
    "argument removed": (
        'error while handling argument "--draft": the argument has been removed. use --spec-draft-n-max or '
        "--spec-ngram-mod-n-max\n",
        ["bad-argument"],
    ),
    "variable": (
        'error while handling environment variable "LLAMA_ARG_FLASH_ATTN": error: unknown value for --flash-attn: '
        "'perhaps'\n",
        ["bad-argument"],
    ),
    "cache type unknown": ('error while handling argument "-ctk": Unsupported cache type: q9_0\n', ["bad-argument"]),
    "llama-bench": ("error: invalid parameter for argument: -fa\n", ["bad-argument"]),
    # ld.so, dyld; llama.cpp#17950, llama-cpp-python#1169, #1150
    "library": (
        "llama-server: error while loading shared libraries: libmtmd.so.0: cannot open shared object file: No "
        "such file "
        "or directory\n",
        ["missing-library"],
    ),
    "library, Python": (
        "RuntimeError: Failed to load shared library '/venv/llama_cpp/lib/libllama.so': libcuda.so.1: cannot "
        "open shared "
        "object file: No such file or directory\n",
        ["missing-library"],
    ),
    "library, Windows": (
        "FileNotFoundError: Could not find module 'C:\\venv\\llama_cpp\\lib\\ggml.dll' (or one of its "
        "dependencies). Try "
        "using the full path with constructor syntax.\n",
        ["missing-library"],
    ),
    "library of a newer system": (
        "./llama-server: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by "
        "./llama-server)\n",
        ["missing-library"],
    ),
    # ggml/src/ggml-backend-reg.cpp:224
    "backend not loaded": (
        "load_backend: failed to load /app/libggml-cuda.so: libcudart.so.12: cannot open shared object file: No "
        "such file "
        "or directory\n" + START + MODEL,
        ["backend-not-loaded"],
    ),
    "another backend loaded": (
        "load_backend: failed to load /app/libggml-vulkan.so: libvulkan.so.1: cannot open shared object file\n"
        "load_backend: loaded CUDA backend from /app/libggml-cuda.so\n" + HEALTHY,
        [],
    ),
    # common/arg.cpp:954
    "template does not parse": (
        "common_chat_templates_init: error: parser: Parser Error: Expected }} (Got )\n"
        "common_chat_templates_init: failed to initialize chat template\n"
        "error: the supplied chat template is not supported: {% for m in messages %}{{ m.content\n",
        ["chat-template"],
    ),
    # ramalama#1890
    "template fell back": (
        SERVER + HEALTHY + "common_chat_templates_init: failed to parse chat template (defaulting to chatml): Expected "
        "value expression at row 1, column 4:\n{{- /*\n   ^\n" + READY,
        ["template-fallback"],
    ),
    # src/llama-context.cpp:3855, 3836
    "cache type": (
        SERVER
        + MODEL
        + "llama_init_from_model: K cache type q4_0 with block size 32 does not divide n_embd_head_k=80\n"
        "srv    load_model: failed to create_context with model 'model.gguf'\n",
        ["cache-type-refused"],
    ),
    "cache types": (
        SERVER + MODEL + "llama_init_from_model: model does not support different K (q8_0) and V (f16) cache types\n",
        ["cache-types-differ"],
    ),
    "split mode": (
        SERVER + not_loaded("LLAMA_SPLIT_MODE_TENSOR not implemented for architecture 'kestrel'"),
        ["split-mode-refused"],
    ),
    "main GPU": (
        SERVER + "llama_prepare_model_devices: invalid value for main_gpu: 2 (available devices: 1)\n",
        ["main-gpu-missing"],
    ),
    # tools/server/server-http.cpp:517
    "port of the system": (
        SERVER + "srv         start: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 80\n",
        ["address-refused"],
    ),
    "address of another machine": (
        SERVER + "srv         start: couldn't bind HTTP server socket, hostname: 192.0.2.7, port: 8080\n",
        ["address-refused"],
    ),
    # ollama#9444, #10063
    "Ollama, port reserved": (
        "Error: listen tcp 127.0.0.1:11434: bind: An attempt was made to access a socket in a way forbidden by "
        "its access "
        "permissions.\n",
        ["address-refused"],
    ),
    "Ollama, address": (
        "Error: listen tcp 192.0.2.7:11434: bind: cannot assign requested address\n",
        ["address-refused"],
    ),
    "Ollama, port free again": (
        "Error: listen tcp 127.0.0.1:11434: bind: address already in use\n" + OLLAMA_START + runner() + HEALTHY,
        [],
    ),
    "Ollama, port": ("Error: listen tcp 127.0.0.1:11434: bind: address already in use\n", ["port-taken"]),
    # common/hf-cache.cpp:199, 201; olah#85
    "repository unknown": (
        "get_repo_commit: error: GET failed (404): Repository not found\n"
        "get_repo_files: failed to resolve commit for nobody/kestrel-GGUF\n" + SERVER + NOT_LOADED,
        ["hf-refused"],
    ),
    "repository with conditions": (
        "common_pull_file: download received non-successful status code: 403\n" + SERVER + NOT_LOADED,
        ["hf-refused"],
    ),
    "no such quantization": (
        "get_hf_plan: no GGUF files found in repository nobody/kestrel\n" + SERVER + NOT_LOADED,
        ["hf-refused"],
    ),
    # common/arg.cpp of 2025
    "repository unknown, 2025": (
        "error: model is private or does not exist; if you are accessing a gated model, please provide a valid "
        "HF token\n",
        ["hf-refused"],
    ),
    "no network": (
        "get_repo_commit: error: HTTPLIB failed: Could not establish connection\n" + SERVER + NOT_LOADED,
        ["hf-unreachable"],
    ),
    # llama.cpp#13202
    "no network, 2025": (
        "error: failed to get manifest: error: cannot make GET request: Couldn't resolve host name\n"
        "try reading from cache\nerror: failed to get manifest (check your internet connection)\n",
        ["hf-unreachable"],
    ),
    "no preset, and a load that fails": (
        "common_download_file: invalid http status code received: 404\nno remote preset found, skipping\n"
        + SERVER
        + MODEL
        + not_loaded("missing tensor 'blk.7.attn_k.weight'").partition("\n")[2],
        ["missing-tensor"],
    ),
    "no model": (
        SERVER.replace("model.gguf", "") + "llama_model_load_from_file_impl: exactly one out metadata, path_model, and "
        "file must be defined\n" + NOT_LOADED,
        ["no-model-path"],
    ),
    "no network, but a cache": (
        "error: failed to get manifest: error: cannot make GET request: Couldn't resolve host name\n"
        "try reading from cache\n" + SERVED + LISTENING,
        [],
    ),
    # common/http.h:110
    "no HTTPS": (
        "get_repo_commit: error: HTTPS is not supported. Please rebuild with one of:\n  -DLLAMA_OPENSSL=ON\n"
        + SERVER
        + NOT_LOADED,
        ["no-https"],
    ),
    # ollama#3816, #2402
    "Ollama without a network": (
        OLLAMA_START
        + ollama(
            'msg="request failed: Get \\"https://registry.ollama.ai/v2/library/kestrel/manifests/9b\\": dial '
            "tcp: lookup "
            'registry.ollama.ai on 127.0.0.53:53: no such host"',
            source="images.go:713",
        ),
        ["ollama-offline"],
    ),
    "Ollama, command without a network": (
        'Error: pull model manifest: Get "https://registry.ollama.ai/v2/library/kestrel/manifests/9b": dial tcp '
        "198.51.100.4:443: i/o timeout\n",
        ["ollama-offline"],
    ),
    "Ollama downloads again": (
        OLLAMA_START
        + ollama(
            'msg="0000 part 3 attempt 0 failed: Get \\"https://registry.ollama.ai/x\\": read tcp: connection '
            "reset by peer, "
            'retrying in 1s"',
            source="download.go:295",
        )
        + runner()
        + HEALTHY,
        [],
    ),
    # ollama#11739
    "Ollama too old": (
        "pulling manifest\nError: pull model manifest: 412:\n\nThe model you are attempting to pull requires a newer "
        "version of Ollama.\n",
        ["ollama-too-old"],
    ),
    "Ollama, no such model": ("Error: pull model manifest: file does not exist\n", ["model-not-found"]),
    # ollama#7697, lms#107
    "Ollama, no server": ("Error: could not connect to ollama app, is it running?\n", ["server-not-running"]),
    "LM Studio, no model": (
        "[LM STUDIO SERVER] (404): No models loaded. Please load a model in the developer page\n",
        ["no-model-loaded"],
    ),
    "Ollama, import": ("Error: unsupported architecture\n", ["import-refused"]),
    "disk full": (
        OLLAMA_START + "Error: write /models/blobs/sha256-0000-partial: no space left on device\n",
        ["disk-full"],
    ),
    # ollama#8470, llm/llama_server.go:1336; llama-swap#92
    "Ollama, time out": (
        OLLAMA_START
        + ollama(
            'msg="error loading llama server" error="timed out waiting for llama runner to start - progress 0.42 - "',
            "ERROR",
            "sched.go:456",
        ),
        ["load-timed-out"],
    ),
    "llama-swap, time out": (
        SERVER + MODEL + "[ERROR] <kestrel> unable to start process: health check failed after 15s\n",
        ["load-timed-out"],
    ),
    # ollama discover/gpu.go:573, cuda_common.go:65
    "Ollama, CUDA library": (
        OLLAMA_START
        + ollama('msg="Unable to load cudart library /usr/lib/libcudart.so: not found"', source="gpu.go:602")
        + ollama('msg="no compatible GPUs were discovered"', source="gpu.go:377"),
        ["ollama-cuda-library", "ollama-found-no-gpu"],
    ),
    "Ollama, old driver": (
        OLLAMA_START
        + ollama(
            'msg="old CUDA driver detected - please upgrade to a newer driver" version=11.4',
            "WARN",
            "cuda_common.go:65",
        )
        + runner()
        + HEALTHY,
        ["ollama-old-driver"],
    ),
}

REQUESTS = {
    # tools/server/server-context.cpp:3187
    "beyond what was trained": (SERVED + refused(45000), ["request-beyond-training"]),
    "longest of several": (SERVED + refused(5000) + refused(9000) + refused(6000), ["request-too-long"]),
    "answer of a server of 2025": (
        SERVED + '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the '
        'context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}\n',
        ["request-too-long"],
    ),
    "embedding too long": (
        SERVED + "srv    send_error: task id = 0, error: input (700 tokens) is larger than the max context size (512 "
        "tokens). skipping\n",
        ["request-too-long"],
    ),
    "prompt of a program too long": (
        START + MODEL + "main: prompt is too long (5000 tokens, max 4092)\n",
        ["request-too-long"],
    ),
    # ollama#14186
    "Ollama, embedding too long": (
        OLLAMA_START + runner() + HEALTHY + '{"error":"the input length exceeds the context length"}\n',
        ["request-too-long"],
    ),
    # lmstudio-bug-tracker#546, opencode#11141, lmstudio-bug-tracker#1251
    "LM Studio, too long": (
        "2026-01-02 03:04:05 [ERROR]\nTrying to keep the first 9000 tokens when context the overflows. However, "
        "the model "
        "is loaded with context length of only 4096 tokens, which is not enough.\n[LM STUDIO SERVER] x\n",
        ["request-too-long"],
    ),
    "LM Studio, keep": (
        "[LM STUDIO SERVER] Cannot truncate prompt with n_keep (9000) >= n_ctx (4096)\n",
        ["request-too-long"],
    ),
    "LM Studio, context full": (
        "[LM STUDIO SERVER] Reached context length of 4096 tokens with model (arch: kestrel) that does not currently "
        "support mid-generation context overflow. Try reloading with a larger context length.\n",
        ["context-full"],
    ),
    # ollama server/prompt.go:77
    "Ollama, history": (
        OLLAMA_START
        + runner()
        + HEALTHY
        + ollama('msg="truncating input messages which exceed context length" truncated=3', "DEBUG", "prompt.go:77"),
        ["history-dropped"],
    ),
    "embedding, 2024": (
        SERVED
        + "srv    send_error: task id = 1, error: input is too large to process. increase the physical batch size\n",
        ["batch-too-small"],
    ),
    # tools/server/server-context.cpp:1868, 518
    "answer cut": (SERVED + prompt(0, 3900) + release(0, 4095, 1), ["answer-cut"]),
    "answer complete": (SERVED + prompt(0, 3900) + release(0, 3999, 0), []),
    # tools/server/server-context.cpp:2896; llama.cpp#16983
    "context full": (
        SERVED
        + prompt(0, 900)
        + "srv    send_error: task id = 0, error: context shift is disabled\n"
        + release(0, 4096, 1),
        ["context-full"],
    ),
    # tools/server/server-context.cpp:1881
    "answer limited": (
        SERVED
        + "slot process_toke: id  0 | task 0 | stopped by limit, n_gen = 128, n_predict = 128\n"
        + release(0, 200, 0),
        ["answer-limited"],
    ),
    # ollama v0.9.6 runner/ollamarunner/cache.go:262
    "keep too long": (
        OLLAMA_START
        + runner()
        + HEALTHY
        + "unable to shift context - keep exceeds context (keep: 4096 context: 4096)\n",
        ["keep-exceeds-context"],
    ),
    # tools/server/server-context.cpp:3126
    "chats without words": (SERVED + prompt(0, 2) + done() + prompt(9, 2) + done(), ["prompt-without-words"]),
    "short completions": (SERVED + prompt(0, 2) + done("/completion") + prompt(9, 3) + done("/completion"), []),
    # ollama llm/server.go:114, tools/server/server-context.cpp:1214
    "context capped": (
        OLLAMA_START
        + ollama(
            'msg="requested context size too large for model" num_ctx=8192 n_ctx_train=2048', "WARN", "server.go:114"
        )
        + runner(2048),
        ["context-capped"],
    ),
    "context capped, llama-server": (
        SERVER
        + HEALTHY
        + "srv    load_model: the slot context (65536) exceeds the training context of the model (32768) - "
        "capping\n" + READY,
        ["context-capped"],
    ),
    # tools/server/server.cpp:79; llama.cpp#19851, node-llama-cpp#263
    "roles": (
        SERVED
        + exception(
            "\\n------------\\nWhile executing CallExpression at line 1, column 125 in source:\\n...{{ raise_exception("
            "'Conversation roles must alternate user...\\nError: Jinja Exception: Conversation roles must alternate "
            "user/assistant/user/assistant/..."
        ),
        ["template-roles"],
    ),
    "roles, Python": (
        HEALTHY
        + "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...\n",
        ["template-roles"],
    ),
    "system": (
        SERVED + exception("Error: Jinja Exception: System role not supported"),
        ["template-without-system"],
    ),
    "LM Studio, roles": (
        '[2026-01-02 03:04:05] [ERROR] Error rendering prompt with jinja template: "Error: Only user and '
        "assistant roles "
        'are supported!"\n[2026-01-02 03:04:05] [LM STUDIO SERVER] x\n',
        ["template-without-system"],
    ),
    "template quoted": (
        SERVER
        + "llama_model_loader: - kv  20:  tokenizer.chat_template str = {{ raise_exception('Conversation roles must "
        "alternate user/assistant') }}\n" + HEALTHY + READY,
        [],
    ),
    "template with an error": (
        SERVED + exception("Value is not callable: null at row 62, column 114"),
        ["template-error"],
    ),
    "tools without Jinja": (SERVED + exception("tools param requires --jinja flag"), ["template-needs-jinja"]),
    # tools/server/server-common.cpp:1156
    "image": (
        SERVED
        + exception("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        ["image-refused"],
    ),
    # tools/server/server-context.cpp:5374
    "embeddings off": (
        SERVED
        + '{"error":{"code":501,"message":"This server does not support embeddings. Start it with `--embeddings`",'
        '"type":"not_supported_error"}}\n',
        ["feature-off"],
    ),
    "embeddings only": (
        SERVED + "srv    send_error: task id = 0, error: the current context does not support logits computation. "
        "skipping\n",
        ["no-logits"],
    ),
    # ollama server/images.go:43
    "no tools": (
        OLLAMA_START + '{"error":"registry.ollama.ai/library/kestrel:9b does not support tools"}\n',
        ["capability-missing"],
    ),
    "no thinking, but relaxed": (
        OLLAMA_START
        + runner()
        + HEALTHY
        + ollama(
            'msg="model does not support thinking, relaxing thinking to nil" model=kestrel', "WARN", "routes.go:2625"
        ),
        [],
    ),
    # src/llama-grammar.cpp:1229
    "grammar": (
        SERVED + "parse: error parsing grammar: expecting ')' at \n\nroot ::= (\nfailed to parse grammar\n",
        ["grammar-refused"],
    ),
    # tools/server/server-http.cpp:302
    "key": (SERVED + "srv    operator(): unauthorized: Invalid API Key\n", ["api-key"]),
    # src/llama-context.cpp:467
    "cache of values": (
        SERVER + MODEL + CONTEXT_FAILED.format("quantized V cache was requested, but this requires Flash Attention"),
        ["quantized-values"],
    ),
}

LOGS_OF_CAUSES = FILES | STARTS | REQUESTS
