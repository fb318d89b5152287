"""The small models of every architecture that llama.cpp's test-llama-archs writes: headers, and zeros for weights.

`python tests/architecture_files.py FOLDER` packs the headers of what `test-llama-archs -o FOLDER` wrote.
"""

import gzip
import io
import sys
import tarfile
from pathlib import Path

from inferlab.model.gguf import Model, read_gguf

PACKED = Path(__file__).parent / "data" / "architectures" / "headers.tar.gz"
LARGE = 2**40  # a size that no header's data goes beyond


def pack(folder: Path, target: Path = PACKED) -> None:
    """Pack the header of each model of a folder, in an order and with times that do not change."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.glob("*.gguf")):
            end = min(tensor.offset for tensor in read_gguf(path).tensors)
            entry = tarfile.TarInfo(path.name)
            entry.size = end
            archive.addfile(entry, io.BytesIO(path.read_bytes()[:end]))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def unpack(folder: Path) -> dict[str, Model]:
    """Every model as a sparse file in a folder, with zeros for weights; by name, in order."""
    found = {}
    with tarfile.open(PACKED) as archive:
        for entry in archive:
            path = folder / entry.name
            path.write_bytes(archive.extractfile(entry).read())
            ends = [tensor.offset + tensor.n_bytes for tensor in read_gguf(path, {path.name: LARGE}).tensors]
            with path.open("r+b") as file:
                file.truncate(max(ends))
            found[path.stem] = read_gguf(path)
    return found


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
