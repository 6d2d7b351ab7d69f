"""Makes parquet/: the rows of its .jsonl files as files of Parquet. Run: python parquet.py (pyarrow)."""

import json
import pathlib

import pyarrow
import pyarrow.parquet

FOLDER = pathlib.Path(__file__).parent / "parquet"
WAYS = {"plain": {}, "older": {"use_compliant_nested_type": False, "compression": "gzip"}, "small": {"compression": "zstd", "row_group_size": 3}}


def main():
    for source in FOLDER.glob("*.jsonl"):
        rows = [json.loads(line) for line in source.read_text().splitlines()]
        for way, options in WAYS.items():
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), FOLDER / f"{source.stem}-{way}.parquet", **options)


main()
