"""Simulated students in a room of `make hub`, whose engines are killed meanwhile: `make hubload`.

Each logs in, gets a server and a kernel, runs a lab's code cells through the hub as a browser does, and saves the lab.
Half of the kills hit the engine that computes most at that moment, the others any engine.
The result is a JSON file: what each measurement waited, whether it was quiet, what was killed, and who finished.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from urllib.parse import urljoin

import psutil
import requests
import websocket

from inferlab.machine import read_host
from inferlab.records import as_text, write_whole

HUB = Path(__file__).resolve().parent
LAB = "labs/03-follow-the-pipeline.ipynb"
PASSWORD = "one of the simulated"
WORKER = "inferlab.engine.worker"
COLLECT = """
import json
from inferlab.measurement.base import Measurement
def _measurements(value):
    if isinstance(value, Measurement):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _measurements(one)
    elif type(value).__name__ == "ColdStartPairs":
        yield from (*value.empty, *value.full)
_found = {id(m): (name, m) for name, value in list(globals().items()) if name[0] != "_" for m in _measurements(value)}
print(json.dumps([{"cell": name, "turn": m.turn and {**vars(m.turn), "quiet": m.turn.quiet}}
                  for name, m in _found.values()]))
"""


# --- one student ------------------------------------------------------------------------------


@dataclass
class Student:
    """What one simulated student did; `problem` says why the lab was not finished."""

    name: str
    ready_seconds: float | None = None
    finished_seconds: float | None = None
    n_cells: int = 0
    n_cells_run: int = 0
    n_cells_saved: int = 0
    problem: str = ""
    measurements: list[dict] = field(default_factory=list)


class Browser:
    """One student's session with the hub: what a browser sends, without the browser."""

    def __init__(self, address: str, name: str, deadline: float) -> None:
        self.address, self.name, self.deadline = address, name, deadline
        self.session = requests.Session()
        self.token = ""

    def log_in(self) -> None:
        """Log in by the form, and ask for a token."""
        self._call("GET", "/hub/login")
        xsrf = self.session.cookies.get("_xsrf", path="/hub/")
        form = {"username": self.name, "password": PASSWORD, "_xsrf": xsrf}
        self._call("POST", "/hub/login", data=form, allow_redirects=False)  # to the page that starts the server
        xsrf = self.session.cookies.get("_xsrf", path="/hub/")
        reply = self._call("POST", f"/hub/api/users/{self.name}/tokens", json={}, headers={"X-XSRFToken": xsrf})
        self.token = reply.json()["token"]
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"token {self.token}"

    def start_server(self) -> None:
        """Ask for the server, and wait until it answers; a hub that starts many at once says try again."""
        while True:
            server = self._call("GET", f"/hub/api/users/{self.name}").json()["servers"].get("", {})
            if server.get("ready"):
                return
            if not server.get("pending"):
                self.session.post(self._url(f"/hub/api/users/{self.name}/server"), timeout=60)
            time.sleep(1)

    def notebook(self) -> dict:
        """The student's own copy of the lab."""
        return self._call("GET", f"/user/{self.name}/api/contents/{LAB}").json()["content"]

    def save(self, content: dict) -> None:
        """Save the lab with its outputs."""
        body = {"type": "notebook", "format": "json", "content": content}
        self._call("PUT", f"/user/{self.name}/api/contents/{LAB}", json=body)

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """A kernel of the student's server, connected."""
        kernel = self._call("POST", f"/user/{self.name}/api/kernels", json={"path": LAB}).json()["id"]
        place = self._url(f"/user/{self.name}/api/kernels/{kernel}/channels").replace("http", "ws", 1)
        header = [f"Authorization: token {self.token}"]
        connection = websocket.create_connection(place, timeout=5, header=header)
        try:
            yield Kernel(connection, self.deadline)
        finally:
            connection.close()

    def _call(self, method: str, place: str, **details) -> requests.Response:
        self._check_time()
        reply = self.session.request(method, self._url(place), timeout=120, **details)
        reply.raise_for_status()
        return reply

    def _check_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError("the time of the load test was over")

    def _url(self, place: str) -> str:
        return urljoin(self.address, place)


class Kernel:
    """A kernel behind a websocket: cells go in, outputs come back."""

    def __init__(self, connection: websocket.WebSocket, deadline: float) -> None:
        self.connection, self.deadline = connection, deadline

    def execute(self, code: str) -> list[dict]:
        """Run a cell and wait for its end; its outputs. Raises RuntimeError with the error that it ended with."""
        sent = uuid.uuid4().hex
        header = {"msg_id": sent, "msg_type": "execute_request", "username": "", "session": sent, "version": "5.3"}
        content = {"code": code, "silent": False, "allow_stdin": False, "store_history": True, "stop_on_error": True}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self.connection.send(json.dumps(message))
        outputs, ends = [], set()
        while ends != {"idle", "reply"}:
            reply = self._next()
            if reply.get("parent_header", {}).get("msg_id") != sent:
                continue
            kind, content = reply["msg_type"], reply["content"]
            if kind == "execute_reply":
                ends.add("reply")
            elif kind == "status" and content["execution_state"] == "idle":
                ends.add("idle")
            elif kind == "error":
                raise RuntimeError(f"{content['ename']}: {content['evalue']}"[:500])
            elif kind in ("stream", "display_data", "execute_result"):
                outputs.append({"output_type": kind, **{k: v for k, v in content.items() if k != "transient"}})
        return outputs

    def _next(self) -> dict:
        while True:
            if time.monotonic() > self.deadline:
                raise TimeoutError("the time of the load test was over")
            with suppress(websocket.WebSocketTimeoutException):
                if text := self.connection.recv():
                    return json.loads(text)
                raise RuntimeError("the connection to the kernel was closed")


def work(student: Student, browser: Browser, began: float) -> None:
    """One student's lesson, from the login to the saved lab."""
    try:
        browser.log_in()
        browser.start_server()
        student.ready_seconds = time.monotonic() - began
        with browser.kernel() as kernel:
            _run_lab(student, browser, kernel)
        student.finished_seconds = time.monotonic() - began
    except Exception as error:  # whatever happened to one student is a result
        student.problem = f"{type(error).__name__}: {error}"[:500]


def _run_lab(student: Student, browser: Browser, kernel: Kernel) -> None:
    content = browser.notebook()
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    student.n_cells = len(cells)
    try:
        for number, cell in enumerate(cells, 1):
            cell["outputs"], cell["execution_count"] = kernel.execute("".join(cell["source"])), number
            student.n_cells_run = number
    finally:
        browser.save(content)
        saved = [cell for cell in browser.notebook()["cells"] if cell["cell_type"] == "code"]
        student.n_cells_saved = sum(bool(cell["execution_count"]) for cell in saved)
    text = "".join(output.get("text", "") for output in kernel.execute(COLLECT) if output.get("name") == "stdout")
    student.measurements = json.loads(text)


# --- the hub, and what kills engines ----------------------------------------------------------


@contextmanager
def running_hub(names: list[str], folder: Path) -> Iterator[str]:
    """A hub for these names with its folder there; yields its address, and ends it."""
    (folder / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    ports = free_ports(3)
    address = f"http://127.0.0.1:{ports[0]}"
    places = {"HUB_NAMES": str(folder / "names.txt"), "HUB_FOLDER": str(folder / "room"), "HUB_PYTHON": sys.executable}
    ways = {"HUB_ADDRESS": address, "HUB_PORT": str(ports[1]), "HUB_PROXY_PORT": str(ports[2])}
    environment = {**os.environ, **places, **ways}
    hub = HUB.parent / ".hub" / "venv" / "bin" / "python"
    command = [hub, "-m", "jupyterhub", "-f", HUB / "jupyterhub_config.py"]
    with (folder / "hub.log").open("wb") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(address, child, folder / "hub.log")
        yield address
    finally:
        child.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(60)
        child.kill()


def free_ports(n: int) -> list[int]:
    """Ports that nothing listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(address: str, child: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    """Wait until the hub answers. Raises RuntimeError with its log where it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.poll() is None:
        with suppress(requests.RequestException):
            if requests.get(f"{address}/hub/api/", timeout=5).ok:
                return
        time.sleep(0.3)
    raise RuntimeError(f"The hub does not answer. Its log ends with:\n{log.read_text()[-2000:]}")


def engines(room: Path) -> list[psutil.Process]:
    """The engines of the students in this room."""
    workers = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            of_room = process.environ().get("HOME", "").startswith(str(room))
            if WORKER in process.cmdline() and of_room and process.status() != psutil.STATUS_ZOMBIE:
                workers.append(process)
    return workers


def busiest(processes: list[psutil.Process]) -> psutil.Process:
    """The process that computes most within a fifth of a second."""
    seconds = {}
    before = {process: sum(process.cpu_times()[:2]) for process in processes}
    time.sleep(0.2)
    for process in processes:
        with suppress(psutil.Error):
            seconds[process] = sum(process.cpu_times()[:2]) - before[process]
    return max(seconds, key=seconds.get)


def kill_engines(room: Path, n_kills: int, seconds: float, ended: threading.Event, kills: list[dict]) -> None:
    """Kill so many engines at random moments within `seconds`; `kills` gets when and whose."""
    began, chance = time.monotonic(), random.Random(n_kills)
    for number, moment in enumerate(sorted(chance.uniform(0.1, 1.0) * seconds for _ in range(n_kills))):
        if ended.wait(max(0.0, began + moment - time.monotonic())):
            return
        with suppress(psutil.Error, ValueError):
            while not (running := engines(room)) and not ended.wait(1):
                pass
            victim = busiest(running) if number % 2 else chance.choice(running)
            name = Path(victim.environ()["HOME"]).name
            victim.kill()
            kills.append({"seconds": time.monotonic() - began, "student": name, "busiest": bool(number % 2)})


def watch_memory(ended: threading.Event, seen: list[int]) -> None:
    """Note every second how much of the machine's memory is in use, in bytes; files that the system keeps are not."""
    while not ended.wait(1):
        seen.append(memory_in_use())


def memory_in_use() -> int:
    """Bytes that no program could have without taking them from another."""
    memory = psutil.virtual_memory()
    return memory.total - memory.available


# --- the whole test ---------------------------------------------------------------------------


def load_test(n_students: int, n_kills: int, minutes: float, kill_minutes: float) -> dict:
    """Run the lesson; the result as JSON. At `minutes` everybody stops, finished or not."""
    names = [f"student{number:02d}" for number in range(1, n_students + 1)]
    memory = [memory_in_use()]
    with tempfile.TemporaryDirectory(prefix="inferlab-room-") as folder, running_hub(names, Path(folder)) as address:
        began, ended, kills = time.monotonic(), threading.Event(), []
        students = [Student(name) for name in names]
        lessons = [
            threading.Thread(
                target=work, args=(student, Browser(address, student.name, began + 60 * minutes), began), daemon=True
            )
            for student in students
        ]
        room = Path(folder) / "room"
        others = [
            threading.Thread(target=kill_engines, args=(room, n_kills, 60 * kill_minutes, ended, kills), daemon=True),
            threading.Thread(target=watch_memory, args=(ended, memory), daemon=True),
        ]
        for thread in (*lessons, *others):
            thread.start()
        for lesson in lessons:
            lesson.join()
        ended.set()
        for thread in others:
            thread.join()
        return result(students, kills, n_kills, time.monotonic() - began, max(memory) - memory[0])


def result(students: list[Student], kills: list[dict], n_kills: int, seconds: float, memory_bytes: int) -> dict:
    """What is reported of a lesson: a summary, and everything it is computed from."""
    labelled = [
        measurement["turn"] for student in students for measurement in student.measurements if measurement["turn"]
    ]
    turns = _turns(students)
    waits = sorted(turn["waited_seconds"] for turn in turns)
    finished = [student for student in students if student.finished_seconds is not None]
    host = read_host()
    summary = {
        "date": date.today().isoformat(),
        "cpu": host.cpu,
        "cores": os.cpu_count(),
        "ram_bytes": host.ram_bytes,
        "lab": LAB,
        "students": len(students),
        "finished": len(finished),
        "cells_run": sum(student.n_cells_run for student in students),
        "cells_saved": sum(student.n_cells_saved for student in students),
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "ready_seconds_median": _median(student.ready_seconds for student in students),
        "finished_seconds_median": _median(student.finished_seconds for student in students),
        "kills_wanted": n_kills,
        "kills": len(kills),
        "measurements": sum(len(student.measurements) for student in students),
        "measurements_labelled": len(labelled),
        "quiet": sum(turn["quiet"] for turn in labelled),
        "disturbed": sum(not turn["quiet"] for turn in labelled),
        "others_median": _median(turn["others"] for turn in turns),
        "turns": len(turns),
        "queued_again": sum(turn["n_interrupted"] for turn in turns),
        "waited_seconds_median": _median(waits),
        "waited_seconds_most": waits[-1] if waits else None,
        "most_ahead": max((turn["n_ahead"] for turn in turns), default=None),
        "problems": {student.name: student.problem for student in students if student.problem},
    }
    return {"summary": summary, "kills": kills, "students": [asdict(student) for student in students]}


def _turns(students: list[Student]) -> list[dict]:
    """One for each turn: measurements of one turn waited once, so they have the same waiting time; the last one's."""
    return list(
        {
            (student.name, measurement["turn"]["waited_seconds"]): measurement["turn"]
            for student in students
            for measurement in student.measurements
            if measurement["turn"]
        }.values()
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def write(result: dict, path: Path) -> None:
    """Write a result as JSON to the millisecond, with a line for each kill and each student."""
    rounded = json.loads(json.dumps(result), parse_float=lambda text: round(float(text), 3))
    write_whole(path, as_text(rounded))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=30, help="at most; then all stop")
    parser.add_argument("--kill-minutes", type=float, help="the kills are spread over them (default: --minutes)")
    parser.add_argument("--out", type=Path, default=HUB.parent / ".hub" / "load-test.json")
    asked = parser.parse_args()
    report = load_test(asked.students, asked.kills, asked.minutes, asked.kill_minutes or asked.minutes)
    write(report, asked.out)
    print(json.dumps(report["summary"], indent=1))


if __name__ == "__main__":
    main()
