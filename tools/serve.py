"""Serve a built book on 127.0.0.1: python tools/serve.py FOLDER PORT."""

import functools
import http.server
import os
import sys
import webbrowser


def main(folder: str, port: int) -> None:
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=folder
    )
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:  # the port is taken: let the system choose one
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    url = f"http://127.0.0.1:{server.server_port}/"
    print(f"The book is at {url} (Ctrl-C stops it)", flush=True)
    has_screen = sys.platform in ("darwin", "win32") or any(
        name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if has_screen:
        webbrowser.open(url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
