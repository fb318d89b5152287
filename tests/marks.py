"""Marks of tests that need what a build of llama.cpp may lack."""

import pytest

from inferlab.doctor import Host

BACKENDS = Host().backends() or ()
"""The backends of the installed llama.cpp; nothing where it is not installed."""

needs_rpc = pytest.mark.skipif("rpc" not in BACKENDS, reason="llama.cpp is not installed, or built without RPC")
