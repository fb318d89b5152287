"""`inferlab report`: this machine's records as a contribution, without anything that names its owner."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from inferlab.atlas.campaign import name_of, record, records_folder, short_stages
from inferlab.atlas.contribute import contribute, require_name, schema
from inferlab.cli.reference import print_outcome, seconds
from inferlab.engine.protocol import Engine
from inferlab.model.find import cache_folder

SHORT_SECONDS = 60.0
WHERE_TO = (
    "To send it: put the folder under src/inferlab/data/records/ in a clone of the handbook's repository, run\n"
    "`pytest tests/atlas/test_contribute.py`, and open a pull request; CONTRIBUTING.md says more.\n"
    "Read it before: everything in it becomes public."
)


def add_report(commands: Any) -> None:
    command = commands.add_parser(
        "report",
        help="this machine's records as a contribution to the handbook",
        description="Copy this machine's records into a folder that can be contributed: checked against the schema, "
        "without host name, user name, paths, prompts and answers. Without records, the shortest stages are measured.",
    )
    command.set_defaults(command=run_report)
    command.add_argument("--from", dest="source", metavar="FOLDER", help="records (default: those of this machine)")
    command.add_argument("--out", default=".", metavar="FOLDER", help="where the contribution's folder is made")
    command.add_argument("--machine", metavar="NAME", help="the folder's name (default: from the GPU or processor)")
    command.add_argument("--seconds", type=seconds, default=SHORT_SECONDS, help="limit of a stage, if any is measured")
    command.add_argument("--schema", action="store_true", help="print the JSON schema of records and do nothing else")


def run_report(options: argparse.Namespace) -> int:
    if options.schema:
        print(json.dumps(schema(), indent=1))
        return 0
    name = require_name(options.machine or name_of(options.engine.machine()))
    source = Path(options.source) if options.source else kept(name, options.seconds, options.engine)
    target = Path(options.out) / "inferlab-report" / name
    written, refused = contribute(source, target)
    for record_name, wrong in refused.items():
        print(f"left out: {record_name}: {wrong[0]}")
    size = sum(path.stat().st_size for path in written.values())
    print(f"{target}: {len(written)} records, {size:,} bytes, checked against the schema.")
    print(WHERE_TO)
    return 0


def kept(name: str, seconds: float, engine: Engine) -> Path:
    """The folder with this machine's records; without one, the shortest stages are measured into the cache folder."""
    in_repository, in_cache = records_folder() / name, cache_folder() / "records" / name
    if in_repository.is_dir():
        return in_repository
    stages = [stage for stage in short_stages(engine.machine()) if not (in_cache / f"{stage}.json").exists()]
    if stages:
        print(f"No records of {name} yet: measuring {', '.join(stages)}.", flush=True)
        record(in_cache.parent, stages, name, seconds=seconds, engine=engine, on_outcome=print_outcome)
    return in_cache
