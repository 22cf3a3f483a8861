"""Asks the served model a question through the Service, until it answers."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from local import steps

URL = "http://127.0.0.1:8080/v1/chat/completions"
MODEL = "chat"
QUESTION = "What is the capital of France?"
EXPECTED = "Paris"
# Nothing between us and the node's port, whatever the environment says about proxies.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def body() -> bytes:
    messages = [{"role": "user", "content": QUESTION}]
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": 48, "temperature": 0}).encode()


def ask(timeout_s: float = 60) -> str:
    """One request. Raises OSError or HTTPException when nothing answers, with the words of a refusal."""
    request = urllib.request.Request(URL, body(), {"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            text: str = json.load(answer)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        raise OSError(f"{error.code} {error.read(500).decode(errors='replace')}") from error
    return text


def wait(timeout_s: float, ask_once: Callable[[], str] = ask, every_s: float = 0.5) -> str:
    """The model's answer. Raises StepError when there is none in time, or when it does not name the city."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            text = ask_once()
            break
        except (OSError, HTTPException) as error:
            if time.monotonic() > deadline_s:
                raise steps.StepError(f"no answer from {URL} within {timeout_s:.0f} s: {error}") from error
        time.sleep(every_s)
    if EXPECTED not in text:
        raise steps.StepError(f"the model answers, but does not say {EXPECTED}: {text!r}")
    return text.strip()
