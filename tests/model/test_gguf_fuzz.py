"""A fuzz target for the header reader: bytes that hypothesis invents, and shrinks when one gets through.

Runs briefly with the other tests; for hours with
`pytest tests/model/test_gguf_fuzz.py --hypothesis-profile=hours`.
"""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlab.errors import HeaderIncomplete, ModelError
from inferlab.model.gguf import Model, read_gguf

settings.register_profile("hours", max_examples=2_000_000, deadline=None)

COUNTS = st.one_of(st.integers(0, 6), st.sampled_from([2**16, 2**31, 2**32, 2**63, 2**64 - 1]))
NAMES = st.one_of(st.binary(max_size=12), st.sampled_from([b"general.architecture", b"general.alignment", b"a\x00b"]))


def string(data: bytes, claimed: int | None = None) -> bytes:
    return struct.pack("<Q", len(data) if claimed is None else claimed) + data


ENTRIES = st.builds(
    lambda name, kind, value, claimed: string(name, claimed) + struct.pack("<I", kind) + value,
    NAMES,
    st.integers(0, 14),
    st.one_of(st.binary(max_size=24), NAMES.map(string)),
    st.one_of(st.none(), COUNTS),
)
TENSORS = st.builds(
    lambda name, shape, kind, offset: (
        (string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape))
        + struct.pack("<IQ", kind, offset)
    ),
    NAMES,
    st.lists(COUNTS, max_size=5),
    st.integers(0, 50),
    COUNTS,
)
HEADERS = st.builds(
    lambda version, tensors, entries, n_tensors, n_entries, tail: (
        b"GGUF"
        + struct.pack("<I", version)
        + struct.pack("<QQ", n_tensors if n_tensors is not None else len(tensors), n_entries or len(entries))
        + b"".join(entries)
        + b"".join(tensors)
        + tail
    ),
    st.integers(0, 4),
    st.lists(TENSORS, max_size=3),
    st.lists(ENTRIES, max_size=4),
    st.one_of(st.none(), COUNTS),
    st.one_of(st.none(), COUNTS),
    st.binary(max_size=64),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.gguf"


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=1000, max_examples=400)
@given(data=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda tail: b"GGUF" + tail), HEADERS))
def test_whatever_the_bytes_the_answer_is_a_model_or_our_error(path, data):
    """No other exception, and no example takes a second."""
    path.write_bytes(data)
    answer = answer_to(path)
    assert isinstance(answer, Model) or str(path) in str(answer)


def answer_to(path, sizes=None):
    """The model, or the refusal."""
    try:
        return read_gguf(path, sizes)
    except ModelError as refusal:
        return refusal


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=1000, max_examples=300)
@given(data=HEADERS, share=st.floats(0, 1))
def test_a_beginning_is_answered_as_the_whole_or_asks_for_more(path, data, share):
    """With the whole size known, the first bytes get the whole's answer, or say that they are too few."""
    path.write_bytes(data)
    whole = answer_to(path)
    path.write_bytes(data[: int(share * len(data))])
    answer = answer_to(path, {path.name: len(data)})
    assert isinstance(answer, HeaderIncomplete) or said(answer) == said(whole)


def said(answer):
    """All that an answer says; numbers as they are written, because one that is none does not equal itself."""
    facts = (repr(answer.metadata), answer.tensors) if isinstance(answer, Model) else ()
    return type(answer), str(answer), *facts
