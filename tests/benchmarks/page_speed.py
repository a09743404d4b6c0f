"""How fast exported pages write in headless Chromium. Needs the package playwright and Chromium.

    python -m chargpt export RUN --to html page.html
    python tests/benchmarks/page_speed.py page.html [PAGE ...] [--length 2000] [--rounds 5] [--chromium /usr/bin/chromium]

Each round opens the page, presses Write, and reads the speed that the page shows: characters written, divided by the time that
the worker computed, the reading of the prompt and of each context that was full included.
"""

import argparse
import re
import statistics
import time
from pathlib import Path

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


def measure(browser: object, page_file: Path, length: int) -> tuple[float, float]:
    """Seconds until the page can write, and characters a second."""
    page = browser.new_page()
    started = time.perf_counter()
    page.goto(page_file.resolve().as_uri())
    page.locator("#start:enabled").wait_for(timeout=120_000)
    seconds = time.perf_counter() - started
    page.fill("#length", str(length))
    page.fill("#seed", "1")
    page.click("#start")
    status = page.locator("#status", has_text="a second")
    status.wait_for(timeout=600_000)
    speed = re.search(r"([\d,]+) a second", status.text_content())[1]
    page.close()
    return seconds, float(speed.replace(",", ""))


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    print("| page | MB | seconds until ready | characters a second |")
    print("|---|---|---|---|")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        for page in options.pages:
            rounds = [measure(browser, page, options.length) for _ in range(options.rounds)]
            ready, speed = (statistics.median(column) for column in zip(*rounds))
            print(f"| {page.name} | {page.stat().st_size / 1e6:.2f} | {ready:.2f} | {speed:,.0f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
