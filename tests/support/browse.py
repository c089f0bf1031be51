#!/usr/bin/env python3
"""Opens a page in headless Chromium and prints as JSON what is there: pictures, drawings, text, requests, errors.

    browse.py PAGE.html SHOT WIDTH...

SHOT-WIDTH.png is a picture of the whole page at each width. Speaks the DevTools protocol over a pipe; Python's
standard library alone. The browser is `chromium`, or what REFMILL_TEST_CHROMIUM names.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FACTS = """(() => ({
  images: [...document.images].map(i => [i.naturalWidth, i.naturalHeight]),
  gamuts: [...document.querySelectorAll('svg polygon.own')].map(p => {
    const box = p.getBoundingClientRect(), style = getComputedStyle(p);
    return {width: box.width, height: box.height, stroke: style.stroke};
  }),
  elements: [...new Set([...document.querySelectorAll('*')].map(e => e.localName))].sort(),
  handlers: [...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length,
  title: document.title,
  text: document.body.innerText,
  styled: getComputedStyle(document.querySelector('article')).borderTopStyle,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
}))()"""


class Browser:
    """One browser with one tab."""

    def __init__(self, profile):
        down, self.up = os.pipe()
        self.down, up = os.pipe()
        # The browser reads at 3 and writes at 4; both go there by way of numbers that are neither.
        read_end, write_end = os.dup(down), os.dup(up)
        shell = f"exec 3<&{read_end} 4>&{write_end}; exec \"$0\" \"$@\""
        name = os.environ.get("REFMILL_TEST_CHROMIUM", "chromium")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        options += ["--disable-component-update", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        command = ["bash", "-c", shell, name, *options]
        self.process = subprocess.Popen(command, pass_fds=(read_end, write_end), stderr=subprocess.DEVNULL)
        for end in (down, up, read_end, write_end):
            os.close(end)
        self.number, self.rest, self.events = 0, b"", []

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.down, 1 << 16)
            if not part:
                sys.exit("the browser ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.up, data) :]
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())


def main():
    page, shot, widths = Path(sys.argv[1]).resolve(), sys.argv[2], [int(width) for width in sys.argv[3:]]
    with tempfile.TemporaryDirectory(prefix="browse-", ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        tab = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime", "Log"):
            browser.ask(f"{domain}.enable", tab)
        browser.ask("Page.navigate", tab, url=page.as_uri())
        browser.wait("Page.loadEventFired")
        facts = []
        for width in widths:
            browser.ask("Emulation.setDeviceMetricsOverride", tab, width=width, height=900, deviceScaleFactor=1, mobile=False)
            found = browser.ask("Runtime.evaluate", tab, expression=FACTS, returnByValue=True)
            facts.append({"width": width} | found["result"]["value"])
            picture = browser.ask("Page.captureScreenshot", tab, captureBeyondViewport=True)
            Path(f"{shot}-{width}.png").write_bytes(base64.b64decode(picture["data"]))
        browser.ask("Browser.close")
        browser.process.wait()
    of = lambda name: [event["params"] for event in browser.events if event.get("method") == name]
    requests = [event["request"]["url"][:80] for event in of("Network.requestWillBeSent")]
    errors = [event["entry"]["text"] for event in of("Log.entryAdded")]
    errors += [event["exceptionDetails"]["text"] for event in of("Runtime.exceptionThrown")]
    print(json.dumps({"page": page.as_uri(), "facts": facts, "requests": requests, "errors": errors}))


main()
