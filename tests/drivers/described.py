"""Checks values against JSON schemas. Reads a pair of both a line, and prints a list of errors for each."""

import json
import sys

from jsonschema import Draft202012Validator

for line in sys.stdin:
    schema, value = json.loads(line)
    Draft202012Validator.check_schema(schema)
    errors = Draft202012Validator(schema).iter_errors(value)
    print(json.dumps([error.message for error in errors]), flush=True)
