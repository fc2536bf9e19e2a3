"""One zip of the built book and its checksum: python tools/archive.py VERSION.

The same pages give the same bytes: the files come in the order of their names
and carry one fixed date. The zip opens without a server or a network.
"""

import hashlib
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "masked-diffusion-exactly"
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold


def write(html: Path, folder: Path, version: str) -> Path:
    """Zip the files below html into folder; returns the path of the zip.

    A file of the same name with `.sha256` added is what `sha256sum --check`
    reads. Raises ValueError where html holds no index.html.
    """
    if not (html / "index.html").is_file():
        raise ValueError(f"html is {html}; expected a folder with index.html")
    stem = f"{NAME}-{version}"
    path = folder / f"{stem}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(p for p in html.rglob("*") if p.is_file()):
            name = f"{stem}/{file.relative_to(html).as_posix()}"
            entry = zipfile.ZipInfo(name, FIRST_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    Path(f"{path}.sha256").write_text(f"{digest}  {path.name}\n")
    return path


if __name__ == "__main__":
    print(write(ROOT / "_build" / "html", ROOT / "_build", sys.argv[1]))
