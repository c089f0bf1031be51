"""The second client: writes and reads objects by boto3. Reads commands from standard input, a JSON list a line, and
answers each with one line of JSON.

    ["put", BUCKET, KEY, FILE]   ["copies", BUCKET, PREFIX, COUNT, FILE]   ["delete", BUCKET, KEY]
    ["list", BUCKET, PREFIX]     ["get", BUCKET, KEY, FILE]
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config

endpoint, key, secret = sys.argv[1:]
config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 8}, max_pool_connections=16)
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="garage", aws_access_key_id=key, aws_secret_access_key=secret, config=config
)


def put(bucket, name, body):
    client.put_object(Bucket=bucket, Key=name, Body=body)


def answer(what, bucket, name, *rest):
    if what == "put":
        put(bucket, name, Path(rest[0]).read_bytes())
    elif what == "copies":
        body = Path(rest[1]).read_bytes()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda number: put(bucket, f"{name}{number:05}.png", body), range(rest[0])))
    elif what == "delete":
        client.delete_object(Bucket=bucket, Key=name)
    elif what == "list":
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=name)
        return [[found["Key"], found["ETag"]] for page in pages for found in page.get("Contents", [])]
    elif what == "get":
        Path(rest[0]).write_bytes(client.get_object(Bucket=bucket, Key=name)["Body"].read())
    return None


for line in sys.stdin:
    try:
        print(json.dumps({"ok": answer(*json.loads(line))}), flush=True)
    except Exception as error:  # told to the test, which knows whether it may be
        print(json.dumps({"error": str(error)}), flush=True)
