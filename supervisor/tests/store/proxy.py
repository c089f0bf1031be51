"""Stands between a client and an S3 server on 127.0.0.1, and disturbs.

proxy.py SERVER_PORT [--tls CERT KEY] [--hold TEXT SEEN GO] [--mute]

Prints its own port. --tls speaks TLS to the client. --hold waits with whatever a client sends that has TEXT in it: it
makes the file SEEN and goes on when there is a file GO. --mute takes connections and never answers.
"""

import argparse
import asyncio
import ssl
from pathlib import Path


async def carry(reader, writer, options):
    try:
        while data := await reader.read(1 << 16):
            if options and options.hold and options.hold[0].encode() in data:
                Path(options.hold[1]).touch()
                while not Path(options.hold[2]).exists():
                    await asyncio.sleep(0.01)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(reader, writer, options):
    if options.mute:
        await asyncio.sleep(3600)
    try:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", options.port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(carry(reader, server_writer, options), carry(server_reader, writer, None))


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--tls", nargs=2)
    parser.add_argument("--hold", nargs=3)
    parser.add_argument("--mute", action="store_true")
    options = parser.parse_args()
    context = None
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
    server = await asyncio.start_server(lambda r, w: serve(r, w, options), "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
