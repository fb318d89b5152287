"""The particular causes of failed starts and refused requests: what their sentences say of a log."""

import pytest
from written_causes import (
    LOGS_OF_CAUSES,
    SERVED,
    exception,
    header,
    not_loaded,
    prompt,
    refused,
    release,
)
from written_logs import HEALTHY, OLLAMA_START, READY, SERVER, ollama, runner

import inferlab as lab


def first(log):
    return lab.explain(log).findings[0]


def told(name):
    """What the first finding of a written log says."""
    return first(LOGS_OF_CAUSES[name][0]).what


def ids(log):
    return [finding.id for finding in lab.explain(log).findings]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (39, "Type 39 is MXFP4, which newer versions know."),
        (42, "is Q2_0, which newer versions know, unless a fork wrote the file"),
        (144, "IQ4_KS, which only ik_llama.cpp reads"),
        (400, "is none of llama.cpp"),
        (61, "of a newer llama.cpp, or of a fork of it"),
    ],
)
def test_an_unknown_type_is_named(number, words):
    """The number of a tensor's type tells whether the file is newer than the program, or of a fork."""
    assert words in first(header(f"tensor 'blk.0.attn_q.weight' has invalid ggml type {number} (NONE)")).what


@pytest.mark.parametrize(
    ("number", "name"), [(4, "Q4_2"), (5, "Q4_3"), (33, "Q4_0_8_8"), (36, "IQ4_NL_4_4"), (38, "IQ4_NL_8_8")]
)
def test_a_removed_type_is_named(number, name):
    """A type with blocks of no size was removed, whatever the version calls it."""
    said = "(DEPRECATED) has 4096 elements per row, not a multiple of block size (0)"
    assert f"type {number}, {name}," in first(header(f"tensor 'blk.0.attn_q.weight' of type {number} {said}")).what


def test_the_first_line_that_names_the_cause_is_shown():
    """Of a failed load, the line of the cause is quoted and not one of those that follow from it."""
    log = LOGS_OF_CAUSES["type of a fork"][0]
    assert "has invalid ggml type 144" in first(log).lines[0].text
    assert "key not found in model" in first(LOGS_OF_CAUSES["key missing"][0]).lines[0].text


def test_a_folder_is_told_from_what_may_be_an_empty_file():
    """A path that ends in a slash is a folder; of another, only its first bytes are known to be missing."""
    assert told("folder") == "There is no model at this path. The path /models/ is a folder, not a file."
    assert "is a folder or an empty file" in told("folder or empty")


def test_a_missing_part_is_no_missing_model():
    """The part is named, and the path that was given is not blamed."""
    assert told("part missing").endswith(
        "A part of the model is missing or cannot be read: /models/kestrel-00002-of-00002.gguf."
    )


def test_shapes_are_shown_without_their_columns():
    """The two shapes of a tensor are told as llama.cpp means them."""
    assert "has the shape 4096 x 32064 x 1 x 1 where the file's metadata mean 4096 x 32000" in told(
        "tensor of another shape"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("argument replaced", "`-lm none` in its place"),
        ("argument with a long dash", "begins with a long dash"),
        ("value of a switch", "`-fa` takes `on`, `off` or `auto` since August 2025"),
        ("flash attention without a value", "it took the next argument, --jinja, for its value"),
        ("flash attention at the end", "its value is missing. Since August 2025"),
        ("argument removed", "it was removed: use --spec-draft-n-max"),
        ("variable", "“perhaps” is none of its values"),
        ("cache type unknown", "a cache has no type “q9_0”"),
    ],
)
def test_a_wrong_argument_is_explained(name, words):
    """What is wrong with an argument is said, and what this version wants in its place."""
    assert words in told(name)


def test_an_old_spelling_of_a_wrong_value_is_read():
    """The first versions with a value of `-fa` wrote `unkown`."""
    log = "error while handling argument \"--flash-attn\": error: unkown value for --flash-attn: '--main-gpu'\n"
    assert "it took the next argument, --main-gpu, for its value" in first(log).what


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("library", "The library libmtmd.so.0 was not found"),
        ("library, Python", "libllama.so needs the library libcuda.so.1"),
        ("library, Windows", "The library ggml.dll was not found"),
        ("library of a newer system", "built for a newer system: GLIBC_2.38"),
    ],
)
def test_a_missing_library_is_named(name, words):
    """The library that is missing is told from the one that needs it."""
    assert words in told(name)


def test_a_backend_that_is_missing_is_no_failed_start():
    """The program goes on without the backend, which costs speed; with another GPU's backend it costs nothing."""
    assert first(LOGS_OF_CAUSES["backend not loaded"][0]).severity == "slow"
    assert ids(LOGS_OF_CAUSES["another backend loaded"][0]) == []


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", 8080, "Most often another server has port 8080"),
        ("0.0.0.0", 80, "below 1024, such as 80, needs the right"),
        ("192.0.2.7", 8080, "This machine does not have the address 192.0.2.7"),
        ("/run/kestrel.sock", 8080, "The socket /run/kestrel.sock could not be made"),
    ],
)
def test_an_address_that_was_refused_is_explained(host, port, words):
    """llama-server gives no reason, so the address and the port say which is likely."""
    log = SERVER + f"srv         start: couldn't bind HTTP server socket, hostname: {host}, port: {port}\n"
    assert words in first(log).what


def test_a_download_that_was_not_needed_is_no_fault():
    """Where the model was loaded from the cache, a network that failed is no finding; a later failure is one."""
    log = LOGS_OF_CAUSES["no network, but a cache"][0]
    assert ids(log) == []
    assert ids(LOGS_OF_CAUSES["no network"][0]) == ["hf-unreachable"]


@pytest.mark.parametrize(
    ("status", "words"), [(401, "sign-in"), (403, "access was granted"), (404, "no such repository or file")]
)
def test_the_status_of_a_download_is_explained(status, words):
    """The number with which Hugging Face answered becomes a reason."""
    assert words in first(f"get_repo_commit: error: GET failed ({status}): x\n" + SERVER).what


def test_a_client_that_went_away_is_no_time_out():
    """Ollama writes the same words for a load whose client no longer waits."""
    gone = ollama('msg="Load failed" error="timed out waiting for llama runner to start: context canceled"', "ERROR")
    assert "load-timed-out" not in ids(OLLAMA_START + gone)
    assert "at 42 % of it" in told("Ollama, time out")
    assert "after 15s" in told("llama-swap, time out")


def test_the_longest_request_counts():
    """Of several refused requests the longest says how much context is wanted."""
    assert told("longest of several") == "A request of 9,000 tokens is longer than the context of 4,096."


def test_a_longer_context_is_not_advised_beyond_the_training():
    """Neither for a request that is longer than the training, nor for a context that is as long."""
    beyond = first(SERVED + refused(45000))
    assert "for which the model was trained" in beyond.what
    assert not any("`-c`" in sentence for sentence in beyond.fix)
    whole = HEALTHY.replace("n_ctx                 = 4096", "n_ctx                 = 32768")
    whole = SERVER + whole.replace("n_ctx_seq             = 4096", "n_ctx_seq             = 32768")
    cut = first(whole + prompt(0, 30000, 32768) + release(0, 32767, 1))
    assert cut.id == "answer-cut"
    assert not any("`-c`" in sentence for sentence in cut.fix)
    assert any("`-c`" in sentence for sentence in first(SERVED + release(0, 4095, 1)).fix)


def test_ollamas_capped_context_cannot_be_raised():
    """A prompt that was cut at the length of the training is not told to ask for more."""
    capped = ollama('msg="requested context size too large for model" num_ctx=8192 n_ctx_train=2048', "WARN")
    cut = ollama('msg="truncating input prompt" limit=2048 prompt=3963 keep=5 new=2048', "WARN", "runner.go:131")
    report = lab.explain(OLLAMA_START + capped + runner(2048) + cut)
    assert [finding.id for finding in report.findings] == ["prompt-truncated", "context-capped"]
    assert not any("longer context" in sentence for sentence in report.findings[0].fix)


def test_slots_are_only_reduced_where_they_have_shares():
    """Without a line that shows shares, nothing is said of slots: current versions give all slots one pool."""
    pool = SERVER + HEALTHY.replace("kv_unified            = false", "kv_unified            = true") + READY
    pool = pool.replace("n_slots = 1", "n_slots = 4").replace("'false'", "'true'")
    assert not any("slots" in sentence for sentence in first(pool + refused(6000)).fix)
    unknown = "srv    load_model: initializing slots, n_slots = 4\n" + refused(6000)
    assert not any("slots" in sentence for sentence in first(SERVER + unknown).fix)


def test_an_answer_that_a_shift_went_on_with_was_not_cut():
    """`truncated = 1` also follows a context shift, which has a finding of its own."""
    shifted = "slot update_slots: id  0 | task 0 | slot context shift, n_keep = 0, n_left = 4095, n_discard = 2047\n"
    assert ids(SERVED + shifted + release(0, 3000, 1)) == ["context-shift"]


def test_a_quoted_template_is_no_exception():
    """The words of an exception stand in the templates themselves, which a log may show."""
    assert ids(LOGS_OF_CAUSES["template quoted"][0]) == []


def test_an_error_of_a_template_is_quoted():
    """What the template says stands in the sentence."""
    assert told("template with an error").endswith("Value is not callable: null at row 62, column 114.")
    assert first(SERVED + exception("Error: Jinja Exception: No user query found in messages.")).what.endswith(
        "No user query found in messages."
    )


def test_two_requests_are_needed_for_prompts_without_words():
    """One short prompt, or a longer one beside it, is no sign of a template that loses the messages."""
    chat = "srv  params_from_: Chat format: Content-only\n"
    assert ids(SERVED + chat + prompt(0, 2)) == []
    assert ids(SERVED + chat + prompt(0, 2) + prompt(1, 2) + prompt(2, 40)) == []
    assert ids(SERVED + chat + prompt(0, 2) + prompt(1, 2)) == ["prompt-without-words"]


@pytest.mark.parametrize("program", ["cli", "ollama"])
def test_a_file_of_ollama_is_named_only_to_others(program):
    """That the path is in Ollama's store is news only to another program."""
    failed = not_loaded("done_getting_tensors: wrong number of tensors; expected 900, got 700")
    log = SERVER.replace("model.gguf", "/var/lib/ollama/blobs/sha256-0000") + failed
    found = ids(OLLAMA_START + log if program == "ollama" else log)
    assert ("ollamas-file" in found) == (program == "cli")
