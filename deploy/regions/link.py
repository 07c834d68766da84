#!/usr/bin/env python3
"""A way to servers of another region: each PORT=HOST:PORT is forwarded with a delay of SECONDS each way, until this ends.

    link.py SECONDS PORT=HOST:PORT...
"""

import asyncio
import sys


async def pump(reader, writer, delay):
    """Carries bytes one way; what has come leaves after the delay, in its order."""
    chunks = asyncio.Queue(maxsize=4096)
    loop = asyncio.get_running_loop()

    async def write():
        while chunk := await chunks.get():
            due, data = chunk
            await asyncio.sleep(max(0, due - loop.time()))
            writer.write(data)
            await writer.drain()

    writing = asyncio.create_task(write())
    try:
        while data := await reader.read(64 << 10):
            await chunks.put((loop.time() + delay, data))
        await chunks.put(None)
        await writing
    except OSError:
        writing.cancel()
    finally:
        writer.close()


async def serve(port, host, there, delay):
    """Listens on a port of this machine."""

    async def accept(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(host, there)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer, delay), pump(far_reader, writer, delay))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    await server.serve_forever()


async def main():
    delay, ways = float(sys.argv[1]), sys.argv[2:]
    servers = []
    for way in ways:
        port, address = way.split("=")
        host, there = address.rsplit(":", 1)
        servers.append(serve(int(port), host, int(there), delay))
    await asyncio.gather(*servers)


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
