"""page_browser.py FOLDER: serves it, and prints what a headless Chromium shows.
On a busy machine it may look before the page has said anything: asked again."""
import functools
import http.server
import re
import subprocess
import sys
import threading


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(
    ("127.0.0.1", 0), functools.partial(Quiet, directory=sys.argv[1]))
threading.Thread(target=server.serve_forever, daemon=True).start()


def look():
    return subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu",
         "--dump-dom", "--virtual-time-budget=20000",
         f"http://127.0.0.1:{server.server_port}/"],
        capture_output=True, text=True, timeout=100).stdout


def text(name):
    found = re.search(rf'<pre id="{name}"[^>]*>(.*?)</pre>', shown, re.S)
    return found.group(1).split("\n")[0] if found else "nothing"


shown = look()
for _ in range(4):
    if text("said"):
        break
    shown = look()
print("said:", text("said"))
print("explained:", text("explained"))
print("cells:", len(re.findall(r'<rect class="(?:skipped|partial|full)"', shown)))
