"""Makes a container in an Azurite: container.py PORT NAME. Its account and key are those that every Azurite has."""

import base64
import hashlib
import hmac
import sys
import urllib.request
from email.utils import formatdate

port, container = sys.argv[1:3]
account = 'devstoreaccount1'
key = 'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=='
headers = {'x-ms-date': formatdate(usegmt=True), 'x-ms-version': '2021-08-06'}
signed = ''.join(f'{name}:{value}\n' for name, value in sorted(headers.items()))
# Of a request without a body all lines between are empty.
text = 'PUT' + 12 * '\n' + signed + f'/{account}/{account}/{container}\nrestype:container'
signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
headers['Authorization'] = f'SharedKey {account}:{signature}'
url = f'http://127.0.0.1:{port}/{account}/{container}?restype=container'
urllib.request.urlopen(urllib.request.Request(url, method='PUT', headers=headers))
