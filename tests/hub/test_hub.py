"""A real room: JupyterHub with one student, whom the load test's browser plays; `make hub` installs what it needs."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
import requests
import simulated_students

HUB = Path(__file__).parents[2] / "hub"
pytestmark = pytest.mark.skipif(
    not (HUB.parent / ".hub" / ".installed").exists(), reason="JupyterHub is not installed (`make hub`)"
)
SAYS = """
import json, os, resource, sys
print(json.dumps([sys.executable, len(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_DATA)[0],
                  os.environ["INFERLAB_QUEUE"], os.getcwd()]))
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """The folder and the address of a running hub."""
    folder = tmp_path_factory.mktemp("room")
    with simulated_students.running_hub(["ada"], folder) as address:
        yield folder / "room", address


def test_a_name_on_the_list_gets_its_labs_and_a_limited_kernel(room):
    """From the login to a cell's output: the book's Python, the student's own folder, its cores, and the queue."""
    folder, address = room
    browser = simulated_students.Browser(address, "ada", time.monotonic() + 120)
    browser.log_in()
    browser.start_server()
    assert (folder / "students" / "ada" / "labs" / "start.md").is_file()
    with browser.kernel() as kernel:
        python, n_cores, n_bytes, queue, where = json.loads(kernel.execute(SAYS)[0]["text"])
    assert python == sys.executable
    assert n_cores == max(1, len(os.sched_getaffinity(0)) // 2)
    assert n_bytes in (2 * 2**30, -1)  # -1 where a control group limits the memory
    assert queue == str(folder / "queue")
    assert where == str(folder / "students" / "ada" / "labs")


def test_a_name_that_is_not_on_the_list_stays_outside(room):
    """A stranger cannot choose a password."""
    with pytest.raises(requests.HTTPError, match="403"):
        simulated_students.Browser(room[1], "eve", time.monotonic() + 60).log_in()
