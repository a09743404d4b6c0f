"""JSON and JSON lines. `json_records.py` finds their fields, and reads them."""

from chargpt.text.kind import Kind, Reads, finder, reader

RECORDS, FIND = reader("json_records", "records_of"), finder("json_records", r"[{\[]|window\.")
JSON_LINES = Kind(name="JSON lines", suffixes=(".jsonl", ".ndjson"), find=FIND, records=RECORDS, reads=Reads.NAMED)
JSON = Kind(name="JSON", suffixes=(".json",), find=FIND, records=RECORDS)
