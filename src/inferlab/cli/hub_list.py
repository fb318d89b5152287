"""What `inferlab plan hf:owner/repo` prints: the models of a repository with types and sizes, and how to plan one."""

from __future__ import annotations

import json
from shlex import join

from inferlab.model.hub import Repository, hub_address


def repository_of(name: str) -> Repository | None:
    """The models of a repository that is named without one of its files; None for any other name.

    Raises NotReached, or ModelNotFound where it has none.
    """
    address = hub_address(name)
    if address is None or address.file or address.type:
        return None
    from inferlab.model.remote import listed

    return listed(address)


def print_repository(found: Repository, as_json: bool = False) -> None:
    """Its models, the smallest first, what goes with them, and a command for one of them."""
    if as_json:
        print(json.dumps({"repository": str(found.address), "files": found.fields()}, indent=1))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(str(found.address)), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("kind", "type", "size", "file"):
        table.add_column(heading, justify="right" if heading == "size" else "left", overflow="fold")
    for row in found.rows():
        table.add_row(*map(Text, row))
    Console().print(table)
    print(f"Plan one of them: {join(['inferlab', 'plan', found.example])}")
