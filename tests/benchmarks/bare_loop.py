"""The shortest loop that times llama.cpp from Python: llama_decode and llama_synchronize by ctypes, nothing else.

A process of its own, so that it shares no thread and no clock with the engine that it is compared with.
Its only argument is a JSON job: model, settings, prompt and answer ids. Each line on standard input asks for
one pass; each line on standard output is one: seconds of the prefill, seconds of all later tokens together.
"""

import ctypes
import json
import os
import sys
from time import perf_counter

import llama_cpp.llama_cpp as api


def main() -> None:
    job = json.loads(sys.argv[1])
    quiet = api.llama_log_callback(lambda *_: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    params = api.llama_model_default_params()
    params.load_mode = api.LLAMA_LOAD_MODE_MMAP
    model = api.llama_model_load_from_file(os.fsencode(job["model"]), params)
    context = api.llama_init_from_model(model, context_params(job["settings"]))
    for _ in sys.stdin:
        print(json.dumps(one_pass(context, job["prompt"], job["answer"])), flush=True)


def context_params(settings):
    """llama.cpp's defaults, but for what the compared run says."""
    params = api.llama_context_default_params()
    for name in ("n_ctx", "n_batch", "n_ubatch", "n_threads", "n_threads_batch", "swa_full", "kv_unified"):
        setattr(params, name, settings[name])
    return params


def one_pass(context, prompt, answer):
    """Prefill `prompt` in one batch, then decode the known ids of `answer`, its last excepted."""
    api.llama_memory_clear(api.llama_get_memory(context), True)
    ids = (api.llama_token * len(prompt))(*prompt)
    batch = api.llama_batch_get_one(ids, len(prompt))
    began = perf_counter()
    api.llama_decode(context, batch)
    api.llama_synchronize(context)
    prefilled = perf_counter()
    one = (api.llama_token * 1)()
    batch = api.llama_batch_get_one(one, 1)
    decoding = perf_counter()
    for token in answer[:-1]:
        one[0] = token
        api.llama_decode(context, batch)
        api.llama_synchronize(context)
    return {"prefill_seconds": prefilled - began, "decode_seconds": perf_counter() - decoding}


if __name__ == "__main__":
    main()
