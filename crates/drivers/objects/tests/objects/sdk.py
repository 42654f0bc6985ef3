"""The SDK's own functions for objects: `put URL` writes one and prints its place, `get URL PLACE` reads it as a service does."""

import json
import sys

from intersect_sdk_common.config import DataStoreConfig, HierarchyConfig
from intersect_sdk_common.data_plane import minio_utils

hierarchy = HierarchyConfig(organization='org', facility='fac', system='sys', subsystem='sub', service='compute')
verb, url = sys.argv[1:3]
host, port = url.removeprefix('http://').split(':')
store = minio_utils.create_minio_store(
    DataStoreConfig(username='access', password='secret', host='http://' + host, port=int(port))
)
if verb == 'put':
    print(json.dumps(minio_utils.send_minio_object(b'{"a": 1}', store, 'application/json', hierarchy)))
else:
    content = minio_utils.get_minio_object(store, json.loads(sys.argv[3]))
    print(json.dumps({'content': content.decode()}))
