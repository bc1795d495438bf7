"""Chat messages as one text, in the ChatML form: what an engine's template does, near enough for what is shared.

``<|im_start|>role\\n`` + content + ``<|im_end|>\\n`` for every message, tool definitions as a system message before them, then
``<|im_start|>assistant\\n``. An answer is its content and ``<|im_end|>``, so the next turn's prompt begins with this prompt
and this answer, as it does in an engine. Tool calls are written as JSON with sorted keys. An image stands as a short
text that names it: equal images are equal, their own tokens are not counted.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from simkv.workload.rows import Row, Where, kind

START, END = "<|im_start|>", "<|im_end|>"
ANSWER_FIELDS = ("output", "completion", "answer", "response_text", "response", "assistant")


def prompt_text(body: Row, where: Where) -> tuple[str, int]:
    """The prompt of a chat request and how many images it has. Raises InputError for a message that is not one."""
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise where.error(f"the value is {kind(messages) if messages else 'empty'}", "messages", "a list of at least one message")
    parts, images = [], 0
    tools = body.get("tools") or body.get("functions")
    if tools:
        parts.append(f"{START}system\n{_json(tools)}{END}\n")
    for k, message in enumerate(messages):
        at = f"messages[{k}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise where.error(f"found {kind(message)}", at, "an object with role and content")
        text, n = _content(message.get("content"), f"{at}.content", where)
        images += n
        parts.append(f"{START}{message['role']}\n{text}{_calls(message)}{END}\n")
    return "".join(parts) + f"{START}assistant\n", images


def answer_text(reply: Row, row: Row, chat: bool, where: Where) -> str | None:
    """The text of the answer as it was generated, or ``None`` if the log does not have it."""
    choices = reply.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        if isinstance(message, dict):
            text, _ = _content(message.get("content"), "choices[0].message.content", where)
            reasoning = message.get("reasoning_content")
            return (f"{reasoning}\n" if isinstance(reasoning, str) and reasoning else "") + text + _calls(message) + END
        if isinstance(choices[0].get("text"), str):
            return str(choices[0]["text"])
    for name in ANSWER_FIELDS:
        given = row.get(name)
        if isinstance(given, str) and given.lstrip()[:1] != "{":
            return given + (END if chat else "")
    return None


def _content(content: Any, at: str, where: Where) -> tuple[str, int]:
    """A message's content as text, and its images."""
    if content is None:
        return "", 0
    if isinstance(content, str):
        return content, 0
    if not isinstance(content, list):
        raise where.error(f"the value is {kind(content)}", at, "a text or a list of parts")
    texts, images = [], 0
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict):
            images += 1
            texts.append(f"<|{str(part.get('type', 'image'))[:20]} {hashlib.sha256(_json(part).encode()).hexdigest()[:16]}|>")
        else:
            raise where.error(f"one part is {kind(part)}", at, "an object with type and text")
    return "".join(texts), images


def _calls(message: Row) -> str:
    calls = message.get("tool_calls") or message.get("function_call")
    return _json(calls) if calls else ""


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
