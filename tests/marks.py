"""Marks of tests that need what a build of llama.cpp may lack."""

import pytest

from inferlab.engine import libraries

needs_rpc = pytest.mark.skipif("rpc" not in libraries.backends(), reason="this llama.cpp was built without RPC")
