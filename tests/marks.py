"""Marks of tests that need what a build of llama.cpp may lack."""

import pytest

from inferlab import native

needs_rpc = pytest.mark.skipif("rpc" not in native.backends(), reason="this llama.cpp was built without RPC")
